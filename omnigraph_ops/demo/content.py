"""The rows of a demo graph: a pure function of the spec, so that equal specs give equal rows."""

from __future__ import annotations

import random
from datetime import date, timedelta

import lance
import numpy as np
import pyarrow as pa

from omnigraph_ops.demo.schema import VECTOR_LENGTH, DemoProperty, DemoType
from omnigraph_ops.demo.spec import DemoSpec
from omnigraph_ops.graph.ids import encode_ulid

_WORDS = (
    *("lance", "graph", "edge", "node", "path", "index", "vector", "branch"),
    *("fragment", "version", "merge", "query", "drift", "repair", "commit"),
)
_TIERS = ("free", "pro", "team")
_EPOCH_MS = 1_767_225_600_000
_DAY_MS = 86_400_000
_STEPS = {"Person": 1, "Knows": 1, "Doc": 2, "Wrote": 2, "Photo": 5}
_PREFIXES = {"Person": "p", "Company": "c", "Doc": "d", "Photo": "ph"}
_OTHER_STEP = 10


def load_rows(declared: DemoType, spec: DemoSpec, load: int) -> pa.Table:
    """What load number `load` (from 0) appends to one table. Pure."""
    first = load * spec.rows
    step = _step(declared)
    numbers = [first + step * k for k in range(max(1, spec.rows // step))]
    return _rows(declared, spec, numbers, f"{spec.seed}:{declared.name}:{load}", first + spec.rows)


def branch_rows(declared: DemoType, spec: DemoSpec, branch: int) -> pa.Table:
    """The people hired on a written branch; their numbers follow all loads. Pure."""
    first = spec.loads * spec.rows + branch * spec.rows
    numbers = list(range(first, first + max(1, spec.rows // 10)))
    return _rows(declared, spec, numbers, f"{spec.seed}:{declared.name}:branch:{branch}", first)


def updated_rows(declared: DemoType, spec: DemoSpec) -> pa.Table:
    """New contents for `spec.updates` existing people, spread over all loads. Pure."""
    draw = random.Random(f"{spec.seed}:updates")
    numbers = sorted(draw.sample(range(spec.loads * spec.rows), spec.updates))
    return _rows(declared, spec, numbers, f"{spec.seed}:{declared.name}:updates", spec.loads * spec.rows)


def deleted_ids(declared: DemoType, spec: DemoSpec) -> tuple[str, ...]:
    """The ids that a node table loses; founders first, so that every edge table loses rows too. Pure."""
    step = _step(declared)
    per_load = [step * k for k in range(max(1, spec.rows // step))]
    numbers = [load * spec.rows + offset for load in range(spec.loads) for offset in per_load]
    draw = random.Random(f"{spec.seed}:deletes")
    rank = {n: draw.random() for n in range(spec.loads * spec.rows)}
    numbers.sort(key=lambda n: ((n % spec.rows) % _OTHER_STEP != 0, rank[n]))
    return tuple(node_id(declared.name, n) for n in numbers[: spec.deletes])


def node_id(type_name: str, number: int) -> str:
    """The id of a node, which is the value of its key property. Pure."""
    prefix = _PREFIXES.get(type_name) or f"t{type_name[-2:]}-"
    return f"{prefix}{number}"


def _step(declared: DemoType) -> int:
    return _STEPS.get(declared.name, _OTHER_STEP)


def _rows(declared: DemoType, spec: DemoSpec, numbers: list[int], seed: str, people: int) -> pa.Table:
    draw = random.Random(seed)
    schema = declared.arrow(spec.stamp)
    columns: list[pa.Array] = []
    if declared.ends is None:
        ids = [node_id(declared.name, n) for n in numbers]
    else:
        ids = [encode_ulid(_EPOCH_MS + n, draw.getrandbits(80)) for n in numbers]
        columns += _ends(declared.ends, numbers, draw, people)
    for prop in declared.stored:
        columns.append(_column(prop, spec, numbers, ids, draw))
    return pa.Table.from_arrays([pa.array(ids, pa.string()), *columns], schema=schema)


def _ends(ends: tuple[str, str], numbers: list[int], draw: random.Random, people: int) -> tuple[pa.Array, pa.Array]:
    """People know anyone loaded so far; companies and documents carry the number of their person."""
    targets = [draw.randrange(people) for _ in numbers] if ends[0] == ends[1] else numbers
    sources = [node_id(ends[0], n) for n in numbers]
    return pa.array(sources), pa.array([node_id(ends[1], n) for n in targets])


def _column(prop: DemoProperty, spec: DemoSpec, numbers: list[int], ids: list[str], draw: random.Random) -> pa.Array:
    if prop.mark == "key":
        return pa.array(ids, pa.string())
    if prop.scalar == "Vector":
        return _vectors(spec, len(numbers), draw)
    if prop.scalar == "Blob":
        return lance.blob_array([_image(n, draw) for n in numbers]).storage
    if prop.scalar == "DateTime":
        return pa.array([_EPOCH_MS + n % 300 * _DAY_MS for n in numbers], pa.int64()).cast(pa.date64())
    if prop.scalar == "Date":
        return pa.array([date(2020, 1, 1) + timedelta(days=n % 300) for n in numbers], pa.date32())
    if prop.scalar == "I32":
        return pa.array([draw.randrange(18, 80) for _ in numbers], pa.int32())
    if prop.enum_values is not None:
        return pa.array(draw.choices(_TIERS, k=len(numbers)), pa.string())
    length = {"bio": 6, "title": 3}.get(prop.name, 20)
    return pa.array([" ".join(draw.choices(_WORDS, k=length)) for _ in numbers], pa.string())


def _vectors(spec: DemoSpec, rows: int, draw: random.Random) -> pa.Array:
    kind = pa.list_(pa.field("item", pa.float32()), VECTOR_LENGTH)
    if not spec.vectors:
        return pa.nulls(rows, kind)
    values = np.random.default_rng(draw.getrandbits(64)).random(rows * VECTOR_LENGTH, dtype=np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(values), type=kind)


def _image(number: int, draw: random.Random) -> bytes | None:
    """Every third photo has no image; null blobs are where compaction went wrong before."""
    return None if number // 5 % 3 == 0 else draw.randbytes(50 + number % 200)

"""The Lance tables of a demo graph: their rows, and writing them the way the engine does."""

from __future__ import annotations

import os
import random
from datetime import date, timedelta
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from omnigraph_ops.demo.contract import DemoTable
from omnigraph_ops.demo.spec import VECTOR_LENGTH, DemoProperty, DemoSpec, DemoType
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.layout import encode_ulid
from omnigraph_ops.lance.text_indexer import home_of, is_installed, process_of
from omnigraph_ops.progress import SILENT

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
    return _rows_of(declared, spec, numbers, f"{spec.seed}:{declared.name}:{load}", first + spec.rows)


def branch_rows(declared: DemoType, spec: DemoSpec, branch: int) -> pa.Table:
    """The people hired on a written branch; their numbers follow all loads. Pure."""
    first = spec.loads * spec.rows + branch * spec.rows
    numbers = list(range(first, first + max(1, spec.rows // 10)))
    return _rows_of(declared, spec, numbers, f"{spec.seed}:{declared.name}:branch:{branch}", first)


def updated_rows(declared: DemoType, spec: DemoSpec) -> pa.Table:
    """New contents for `spec.updates` existing people, spread over all loads. Pure."""
    draw = random.Random(f"{spec.seed}:updates")
    numbers = sorted(draw.sample(range(spec.loads * spec.rows), spec.updates))
    return _rows_of(declared, spec, numbers, f"{spec.seed}:{declared.name}:updates", spec.loads * spec.rows)


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


def _rows_of(declared: DemoType, spec: DemoSpec, numbers: list[int], seed: str, people: int) -> pa.Table:
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


Dataset = Any
"""A `lance.LanceDataset`; the package publishes no types."""


def create(uri: str, rows: pa.Table) -> Dataset:
    """Create a dataset at version 1 with the engine's parameters. Writes."""
    # Version 1 of the engine is an Overwrite as well; stable row ids and 2.2 are what its readers expect.
    return lance.write_dataset(
        rows,
        uri,
        mode="create",
        data_storage_version="2.2",
        enable_stable_row_ids=True,
        allow_external_blob_outside_bases=True,
    )


def create_table(root: str, table: DemoTable, stamp: int) -> Dataset:
    """Create the empty table of a type. Writes."""
    return create(os.path.join(root, table.path), table.type.arrow(stamp).empty_table())


def open_table(root: str, table: DemoTable) -> Dataset:
    """The main chain of a table at its Lance HEAD. Reads."""
    return lance.dataset(os.path.join(root, table.path))


def append(dataset: Dataset, rows: pa.Table) -> Dataset:
    """Append one fragment; stays on the branch of the handle. Writes."""
    return lance.write_dataset(
        rows,
        dataset,
        mode="append",
        max_rows_per_file=max(rows.num_rows, 1),
        allow_external_blob_outside_bases=True,
    )


def build_indexes(dataset: Dataset, declared: DemoType, text_release: str) -> None:
    """Build what the engine builds for the type; a vector index waits for the first vector. Writes.

    Args:
        text_release: the pylance release that builds text indexes where it is installed; else the own one does, and
            the engine does not find every word.
    """
    home = home_of(None)
    for column, kind in declared.indexes():
        if kind == "INVERTED" and is_installed(home, text_release):
            request = {"kind": "build", "column": column, "name": f"{column}_idx"}
            place = {"uri": dataset.uri, "version": None, "storage_options": None}
            process_of(home / text_release).ask(f"build index on {column}", {**place, **request}, SILENT)
            dataset.checkout_latest()
        elif kind != "IVF_FLAT":
            dataset.create_scalar_index(column, kind, replace=True)
        elif dataset.count_rows(f"{column} IS NOT NULL"):
            dataset.create_index(column, kind, metric="L2", num_partitions=1, replace=True)


def merge(dataset: Dataset, rows: pa.Table) -> None:
    """Replace existing rows by id. Writes."""
    dataset.merge_insert("id").when_matched_update_all().use_index(False).execute(rows)


def delete_ids(dataset: Dataset, columns: tuple[str, ...], ids: tuple[str, ...]) -> bool:
    """Delete rows with one of `ids` in one of `columns`; whether there were any. Writes."""
    listed = ", ".join(f"'{value}'" for value in ids)
    predicate = " OR ".join(f"{column} IN ({listed})" for column in columns)
    if not dataset.count_rows(predicate):
        return False
    dataset.delete(predicate)
    return True


def move_past_pin(dataset: Dataset, table_key: str, kind: str) -> None:
    """Advance the Lance HEAD without a publish. Writes."""
    before = dataset.version
    if kind == "compaction":
        dataset.optimize.compact_files()
    elif kind == "delete":
        first = dataset.head(1, columns=["id"]).column("id").to_pylist()
        if first:
            dataset.delete(f"id = '{first[0]}'")
    else:
        dataset.delete("id = 'no such row'")
    if lance.dataset(dataset.uri).version == before:
        raise InvalidInput(f"{table_key} has too few rows for drift by {kind}; give the demo graph more loads")


_DIMENSION = 128
_SEED = 7
_TEXT_LETTERS = 100


def write_wide_table(uri: str, *, fragments: int, rows: int, letters: int = _TEXT_LETTERS) -> None:
    """Write so many fragments of so many rows: a key, a text and an embedding, about 0.6 kB each. Writes.

    Args:
        letters: the length of the texts, for rows that are wider than that.
    """
    os.makedirs(os.path.dirname(uri), exist_ok=True)
    draw = np.random.default_rng(_SEED)
    dataset = create(uri, _wide_rows(draw, 0, rows, letters))
    for number in range(1, fragments):
        dataset = append(dataset, _wide_rows(draw, number * rows, rows, letters))


MOMENT, MOMENTS = "at", 2_592_000
"""The column of a table of moments, and how many seconds of 1970 it spreads over: thirty days."""


def write_moments(uri: str, *, fragments: int, rows: int) -> None:
    """Write so many fragments of so many moments, in seconds. Writes."""
    os.makedirs(os.path.dirname(uri), exist_ok=True)
    draw = np.random.default_rng(_SEED)
    drawn = (pa.table({MOMENT: draw.integers(MOMENTS, size=rows, dtype=np.int64)}) for _ in range(fragments))
    dataset = create(uri, next(drawn))
    for moments in drawn:
        dataset = append(dataset, moments)


def compact_wide_table(uri: str, *, rows: int) -> None:
    """Merge neighbouring fragments up to so many rows. Writes."""
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=rows)


def _wide_rows(draw: np.random.Generator, first: int, rows: int, letters: int) -> pa.Table:
    texts = draw.integers(ord("a"), ord("z") + 1, size=(rows, letters), dtype=np.uint8)
    vectors = pa.array(draw.random(rows * _DIMENSION, dtype=np.float32))
    return pa.table(
        {
            "id": pa.array([f"n{number}" for number in range(first, first + rows)]),
            "text": pa.array([bytes(row).decode() for row in texts]),
            "embedding": pa.FixedSizeListArray.from_arrays(vectors, _DIMENSION),
        }
    )

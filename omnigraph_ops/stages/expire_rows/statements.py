"""What the engine is told to delete expired rows, per what its language can say. Pure.

A mutation compares one property with one value. Integers compare; a Date or a DateTime does not, on either
generation, so those rows are named: a load replaces them by rows of the same id with a mark, and one statement deletes
what has the mark. Rows that no load can mark are deleted by a statement per key. The releases before 0.9.0 commit to
every edge table beside a node type with each delete and publish only those that lost edges, so there such rows are
marked by an update per key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from omnigraph_ops.engine import EngineRelease
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.schema import TableSpec, TypeFacts
from omnigraph_ops.lance.rows import Keys, Rows

KEYS_PER_QUERY = 100
ROWS_PER_LOAD, BYTES_PER_LOAD = 8_000, 16 << 20
"""0.9.0 takes 8,192 rows and 32 MiB of Arrow in one. But for vectors, a row of Arrow is shorter than its line."""
_KEY_TYPES = frozenset({"String", "I32", "I64", "U32", "U64"})
_ENDS = {"src": "from", "dst": "to"}
"""The columns of an edge table, and what the language calls them."""
_INTEGERS = frozenset({"I32", "I64", "U32", "U64"})
_CLOCKS = _INTEGERS | {"Date", "DateTime"}


class Way(StrEnum):
    """How the rows of one table are named to the engine."""

    CUT = "cut"
    """One statement that compares the property."""
    MARK = "mark"
    """Loads that mark the rows, then one delete of what is marked."""
    KEYS = "keys"
    """A delete per key, many to a query."""
    MARK_KEYS = "mark-keys"
    """An update per key, then one delete of what is marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Rows that replace those of the same key."""

    lines: tuple[str, ...]
    """JSON, as the engine's `load` reads it."""

    @property
    def rows(self) -> int:
        return len(self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One mutation query with its parameters."""

    text: str
    params: dict[str, object] = field(default_factory=dict)
    rows: int = 0
    """How many it is about; 0 where only the engine can tell."""


Step: TypeAlias = Load | Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """How one type's expired rows are deleted."""

    spec: TableSpec
    facts: TypeFacts
    column: str
    """The property that is compared."""
    way: Way

    @property
    def columns(self) -> tuple[str, ...]:
        """Whose values the engine is told of each row."""
        match self.way:
            case Way.CUT:
                return ()
            case Way.MARK:
                return ("id", *(() if self.spec.is_node else _ENDS), *self.facts.key, *self.facts.judged)
            case Way.KEYS | Way.MARK_KEYS:
                return self.facts.key

    def steps(self, cut: int, rows: Rows, mark: str) -> Iterator[Step]:
        """What the engine is told, in order, about rows that have `columns`. Pure."""
        name, marker = self.facts.name, _marker(self.spec, self.facts)
        match self.way:
            case Way.CUT:
                yield _delete(name, f"{self.column} < {cut}")
            case Way.KEYS:
                yield from self._by_key(rows, f"delete {name}")
            case Way.MARK:
                yield from self._loads(rows, {**self.facts.blanks, marker: mark})
                yield _delete(name, f'{marker} = "{mark}"')
            case Way.MARK_KEYS:
                yield from self._by_key(rows, f'update {name} set {{ {marker}: "{mark}" }}')
                yield _delete(name, f'{marker} = "{mark}"')

    def _loads(self, rows: Rows, given: Mapping[str, object]) -> Iterator[Load]:
        lines, size = list[str](), 0
        for batch in rows.to_batches(max_chunksize=ROWS_PER_LOAD):
            for row in batch.to_pylist():
                lines.append(json.dumps(self._line(row, given)))
                size += len(lines[-1]) + self.facts.vector_bytes
                if len(lines) == ROWS_PER_LOAD or size >= BYTES_PER_LOAD:
                    yield Load(lines=tuple(lines))
                    lines, size = [], 0
        if lines:
            yield Load(lines=tuple(lines))

    def _line(self, row: dict[str, object], given: Mapping[str, object]) -> dict[str, object]:
        if self.spec.is_node:
            return {"type": self.facts.name, "data": {**row, **given}}
        ends = {end: row.pop(column) for column, end in _ENDS.items()}
        return {"edge": self.facts.name, **ends, "data": {**row, **given}}

    def _by_key(self, rows: Rows, statement: str) -> Iterator[Query]:
        (key,) = self.facts.key
        scalar = next(p.scalar for p in self.spec.properties if p.name == key)
        return _each(rows.column(0).to_pylist(), f"{statement} where {key}", scalar)


def edge_deletes(table_key: str, column: str, nodes: Keys) -> Iterator[Query]:
    """The queries that delete all edges of a table that have one of these nodes at an end, `src` or `dst`. Pure."""
    return _each(nodes.to_pylist(), f"delete {table_key.removeprefix('edge:')} where {_ENDS[column]}", "String")


def _each(values: Sequence[object], statement: str, scalar: str) -> Iterator[Query]:
    """A statement per value, many to a query. Pure."""
    for start in range(0, len(values), KEYS_PER_QUERY):
        params = {f"k{number}": value for number, value in enumerate(values[start : start + KEYS_PER_QUERY])}
        head = ", ".join(f"${name}: {scalar}" for name in params)
        body = "\n".join(f"  {statement} = ${name}" for name in params)
        yield Query(text=f"query expire({head}) {{\n{body}\n}}", params=params, rows=len(params))


def _delete(type_name: str, where: str) -> Query:
    return Query(text=f"query expire() {{ delete {type_name} where {where} }}")


def deletion_of(
    spec: TableSpec, facts: TypeFacts, property_name: str, *, has_edges: bool, release: EngineRelease | None
) -> Deletion:
    """How a table's rows would be deleted by a release; None stands for any. Pure.

    Raises:
        InvalidInput: the engine's language cannot name these rows; nothing was written.
    """
    types = {p.name: p.scalar for p in spec.properties if not p.is_list and not p.is_enum}
    if property_name not in types:
        clocks = sorted(name for name, scalar in types.items() if scalar in _CLOCKS)
        raise InvalidInput(
            f"{spec.table_key} has no single-valued property {property_name!r}; its dates, times and integers are "
            f"{', '.join(clocks) or 'none'}; nothing was deleted"
        )
    if not spec.is_node and property_name in _ENDS.values():
        raise InvalidInput(
            f"{spec.table_key}: in the engine's deletes of edges `{property_name}` is an endpoint, whatever property "
            "has that name; only another property can expire them; nothing was deleted"
        )
    is_integer = types[property_name] in _INTEGERS
    way = Way.CUT if is_integer else _by_name(spec, facts, types, has_edges=has_edges, release=release)
    return Deletion(spec=spec, facts=facts, column=property_name, way=way)


def _by_name(
    spec: TableSpec, facts: TypeFacts, types: Mapping[str, str], *, has_edges: bool, release: EngineRelease | None
) -> Way:
    """How rows are named to the engine that it cannot compare. Pure."""
    keys = [types.get(name) for name in facts.key]
    has_key = spec.is_node and len(keys) == 1 and keys[0] in _KEY_TYPES
    no_mark = _why_unmarkable(spec, facts)
    if no_mark is None and (release is None or release.loads_keys(keys)):
        return Way.MARK
    if has_key and not (has_edges and release is not None and release.moves_unmatched_edges):
        return Way.KEYS
    if has_key and no_mark is None:
        return Way.MARK_KEYS
    only = "edges only by a mark" if not spec.is_node else "nodes only by a mark or by a @key of one String or integer"
    if has_key and release is not None:
        only = f"nodes beside edges only by a mark, with omnigraph {release.text}"
    raise InvalidInput(
        f"{spec.table_key}: the engine's deletes compare no dates and delete such {only}; "
        f"{no_mark or 'its loads do not take the key of this type'}; an integer property can expire it; nothing was "
        "deleted"
    )


def _why_unmarkable(spec: TableSpec, facts: TypeFacts) -> str | None:
    """Why a load cannot mark the rows of a type, None when it can. Pure."""
    if facts.required_blobs:
        return f"a row whose Blob {facts.required_blobs[0]!r} is required cannot be marked"
    return None if _marker(spec, facts) else "this type has no plain String property for a mark"


def _marker(spec: TableSpec, facts: TypeFacts) -> str:
    """The property that takes the mark, empty without one; of edges none that the language takes for an end. Pure."""
    taken = () if spec.is_node else _ENDS.values()
    return next((name for name in facts.plain_strings if name not in taken), "")

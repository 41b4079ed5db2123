"""What the engine is told to delete expired rows, per what its language can say. Pure.

A mutation compares one property with one value. Integers compare; a Date or a DateTime does not, on either
generation, so those rows are told by their key: a load replaces them by rows that have nothing but the key and a mark,
and one statement deletes what has the mark. A type that such a row does not fit is deleted by a statement per row, but
not by the releases before 0.9.0: they commit to every edge table beside a node type with each delete and publish only
those that lost edges.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from typing import TypeAlias

from omnigraph_ops.engine import EngineRelease
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.schema import TableSpec, TypeFacts
from omnigraph_ops.lance.rows import Rows

KEYS_PER_QUERY = 100
ROWS_PER_LOAD, BYTES_PER_LOAD = 8_000, 8 << 20
"""0.9.0 takes 8,192 rows and 32 MiB of Arrow in one; a line of JSON is at least half as long as its row of Arrow."""
_KEY_TYPES = frozenset({"String", "I32", "I64", "U32", "U64"})
_ENDPOINTS = frozenset({"from", "to"})
_INTEGERS = frozenset({"I32", "I64", "U32", "U64"})


class Way(StrEnum):
    """How the rows of one table are named to the engine."""

    CUT = "cut"
    """One statement that compares the property."""
    MARK = "mark"
    """Loads that mark the rows, then one delete of what is marked."""
    KEYS = "keys"
    """A statement per row, many to a query."""


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

    type_name: str
    property: str
    way: Way
    columns: tuple[str, ...] = ()
    """Whose values the engine is told of each row: the key, and what a constraint judges."""
    key_type: str = ""
    marker: str = ""
    blanks: Mapping[str, object] = field(default_factory=dict)

    def steps(self, cut: int, rows: Rows, mark: str) -> Iterator[Step]:
        """What the engine is told, in order, about rows that have `columns`. Pure."""
        match self.way:
            case Way.CUT:
                yield self._delete(f"{self.property} < {cut}")
            case Way.MARK:
                yield from self._loads(rows, mark)
                yield self._delete(f'{self.marker} = "{mark}"')
            case Way.KEYS:
                for batch in rows.to_batches(max_chunksize=KEYS_PER_QUERY):
                    yield self._by_key(batch.column(0).to_pylist())

    def _delete(self, where: str) -> Query:
        return Query(text=f"query expire() {{ delete {self.type_name} where {where} }}")

    def _loads(self, rows: Rows, mark: str) -> Iterator[Load]:
        lines, size = list[str](), 0
        for batch in rows.to_batches(max_chunksize=ROWS_PER_LOAD):
            for row in batch.to_pylist():
                data = {**self.blanks, **row, self.marker: mark}
                lines.append(json.dumps({"type": self.type_name, "data": data}, default=_iso))
                size += len(lines[-1])
                if len(lines) == ROWS_PER_LOAD or size >= BYTES_PER_LOAD:
                    yield Load(lines=tuple(lines))
                    lines, size = [], 0
        if lines:
            yield Load(lines=tuple(lines))

    def _by_key(self, keys: list[str | int]) -> Query:
        names = [f"k{number}" for number in range(len(keys))]
        head = ", ".join(f"${name}: {self.key_type}" for name in names)
        body = "\n".join(f"  delete {self.type_name} where {self.columns[0]} = ${name}" for name in names)
        return Query(
            text=f"query expire({head}) {{\n{body}\n}}", params=dict(zip(names, keys, strict=True)), rows=len(keys)
        )


def deletion_of(
    spec: TableSpec, facts: TypeFacts, property_name: str, *, has_edges: bool, release: EngineRelease | None
) -> Deletion:
    """How a table's rows would be deleted by a release; None stands for any. Pure.

    Raises:
        InvalidInput: the engine's language cannot name these rows; nothing was written.
    """
    types = {p.name: p.scalar for p in spec.properties if not p.is_list and not p.is_enum}
    if property_name not in types:
        raise InvalidInput(f"{spec.table_key} has no single-valued property {property_name!r}; nothing was deleted")
    if not spec.is_node and property_name in _ENDPOINTS:
        raise InvalidInput(
            f"{spec.table_key}: in the engine's deletes of edges `{property_name}` is an endpoint, whatever property "
            "has that name; only another property can expire them; nothing was deleted"
        )
    if types[property_name] in _INTEGERS:
        return Deletion(type_name=facts.name, property=property_name, way=Way.CUT)
    if not spec.is_node:
        raise InvalidInput(
            f"{spec.table_key}: the engine's deletes compare no dates and name no single edge; only an integer "
            "property can expire edges; nothing was deleted"
        )
    key = facts.key[0] if len(facts.key) == 1 else ""
    if types.get(key) not in _KEY_TYPES:
        raise InvalidInput(
            f"{spec.table_key}: the engine's deletes compare no dates, so rows are named by their key, and this type "
            "has no @key of one String or integer; an integer property can expire it; nothing was deleted"
        )
    by_key = Deletion(type_name=facts.name, property=property_name, way=Way.KEYS, columns=(key,), key_type=types[key])
    if facts.plain_strings and not facts.required_blobs:
        marker, columns = facts.plain_strings[0], (key, *facts.judged)
        return replace(by_key, way=Way.MARK, marker=marker, columns=columns, blanks=facts.blanks)
    if release is not None and release.moves_unmatched_edges and has_edges:
        raise InvalidInput(f"{spec.table_key}: {_unmarkable(facts, release)}; nothing was deleted")
    return by_key


def _unmarkable(facts: TypeFacts, release: EngineRelease) -> str:
    """Why a release that deletes nodes beside edges only by a mark cannot mark them. Pure."""
    why = "only by a plain String property to mark them with, and this type has none"
    if facts.required_blobs:
        why = f"only by marking them, and no row can be marked whose Blob {facts.required_blobs[0]!r} is required"
    return f"omnigraph {release.text} deletes dated nodes beside edges {why}; an integer property can expire it"


def _iso(value: date | datetime) -> str:
    """A Date or DateTime as a line of JSON has it. Pure."""
    return value.isoformat()

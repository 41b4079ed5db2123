"""The engine's mutation queries that delete expired rows, per what its language can say. Pure.

A mutation compares one property with one value. Integers compare; a Date or a DateTime does not, on either
generation, so those rows are named by their key. The releases before 0.9.0 commit to every edge table beside a
node type with each delete and publish only those that lost edges, so there the rows are marked first, by their
key, and deleted by one statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph_ops.engine import EngineRelease
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.schema import TableSpec, TypeFacts

KEYS_PER_QUERY = 100
_KEY_TYPES = frozenset({"String", "I32", "I64", "U32", "U64"})
_ENDPOINTS = frozenset({"from", "to"})
_INTEGERS = frozenset({"I32", "I64", "U32", "U64"})


class Way(StrEnum):
    """How the rows of one table are named to the engine."""

    CUT = "cut"
    """One statement that compares the property."""
    KEYS = "keys"
    """A statement per row, many to a query."""
    MARK = "mark"
    """An update per row, then one delete of what was marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One mutation query with its parameters."""

    text: str
    params: dict[str, object]
    rows: int
    """How many it is about; 0 where only the engine can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """How one type's expired rows are deleted."""

    type_name: str
    property: str
    way: Way
    key: str = ""
    key_type: str = ""
    marker: str = ""

    def queries(self, cut: int, keys: Sequence[str | int], mark: str) -> Iterator[Query]:
        """The queries in their order. Pure."""
        if self.way is Way.CUT:
            where = f"{self.property} < {cut}"
            yield Query(text=f"query expire() {{ delete {self.type_name} where {where} }}", params={}, rows=0)
            return
        statement = f"delete {self.type_name}"
        if self.way is Way.MARK:
            statement = f'update {self.type_name} set {{ {self.marker}: "{mark}" }}'
        for start in range(0, len(keys), KEYS_PER_QUERY):
            yield self._by_key(statement, keys[start : start + KEYS_PER_QUERY])
        if self.way is Way.MARK:
            text = f'query expire() {{ delete {self.type_name} where {self.marker} = "{mark}" }}'
            yield Query(text=text, params={}, rows=0)

    def _by_key(self, statement: str, keys: Sequence[str | int]) -> Query:
        names = [f"k{number}" for number in range(len(keys))]
        head = ", ".join(f"${name}: {self.key_type}" for name in names)
        body = "\n".join(f"  {statement} where {self.key} = ${name}" for name in names)
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
    by_key = Deletion(type_name=facts.name, property=property_name, way=Way.KEYS, key=key, key_type=types[key])
    if release is None or not (release.moves_unmatched_edges and has_edges):
        return by_key
    return _marked(spec, facts, by_key, release)


def _marked(spec: TableSpec, facts: TypeFacts, by_key: Deletion, release: EngineRelease) -> Deletion:
    marker = next(iter(facts.plain_strings), "")
    if not marker:
        raise InvalidInput(
            f"{spec.table_key}: omnigraph {release.text} deletes dated nodes beside edges only by a plain String "
            "property to mark them with, and this type has none; an integer property can expire it; nothing was deleted"
        )
    if facts.required_blobs:
        raise InvalidInput(
            f"{spec.table_key}: omnigraph {release.text} deletes dated nodes beside edges only by marking them, and it "
            f"updates no type whose Blob {facts.required_blobs[0]!r} is required; an integer property can expire "
            "it; nothing was deleted"
        )
    return replace(by_key, way=Way.MARK, marker=marker)

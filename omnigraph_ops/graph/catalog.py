"""The accepted schema as maintenance sees it: tables, their blob columns, the indexes they ask for."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.models import IndexBuild

_BTREE_SCALARS = frozenset({"Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIdentity:
    """The immutable identity of a table lifetime (stamp 6)."""

    stable_table_id: int
    table_incarnation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One declared property, as far as maintenance cares."""

    name: str
    scalar: str
    """`String`, `Bool`, `I32` ... `Blob`, or `Vector`."""
    is_list: bool
    is_enum: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One node or edge type of the accepted catalog."""

    table_key: str
    path: str | None
    """The canonical graph-relative path, None where only the graph manifest knows it."""
    properties: tuple[Property, ...]
    indexed: tuple[str, ...]
    """Properties with a single-column key or index declaration, in declaration order."""
    identity: TableIdentity | None = None

    @property
    def is_node(self) -> bool:
        return self.table_key.startswith("node:")

    @property
    def is_edge(self) -> bool:
        return self.table_key.startswith("edge:")

    @property
    def blob_columns(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.properties if p.scalar == "Blob")

    def declared_indexes(self) -> tuple[IndexBuild, ...]:
        """Every index the engine would build for this table once it has rows, in its order. Pure."""
        if not self.is_node:
            return tuple(_btree(column) for column in ("id", "src", "dst"))
        by_name = {p.name: p for p in self.properties}
        declared = [_btree("id")]
        for column in dict.fromkeys(self.indexed):
            build = _index_for(by_name[column]) if column in by_name else None
            if build is not None:
                declared.append(build)
        return tuple(declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All tables of the accepted schema, sorted by key as strings (`edge:*` first)."""

    tables: tuple[TableSpec, ...]
    schema_ir_hash: str

    def get(self, table_key: str) -> TableSpec | None:
        """The table of that key, None when the schema has no such type. Pure."""
        return next((t for t in self.tables if t.table_key == table_key), None)


def _btree(column: str) -> IndexBuild:
    return IndexBuild(column=column, index_type="BTREE", name=f"{column}_idx")


def _index_for(prop: Property) -> IndexBuild | None:
    """The index the engine builds for a declared property; lists and blobs get none. Pure."""
    if prop.is_list or prop.scalar == "Blob":
        return None
    if prop.scalar == "Vector":
        return IndexBuild(column=prop.name, index_type="IVF_FLAT", name=f"{prop.name}_idx")
    if prop.scalar == "String" and not prop.is_enum:
        return IndexBuild(column=prop.name, index_type="INVERTED", name=f"{prop.name}_idx")
    if prop.scalar in _BTREE_SCALARS or prop.scalar == "String":
        return _btree(prop.name)
    return None

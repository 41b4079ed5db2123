"""What a demo graph shall look like: its spec, its types, and what was written."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph_ops.errors import InvalidInput

DRIFT_KINDS = ("compaction", "delete", "empty_delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSpec:
    """The history of a demo graph; equal specs give equal rows."""

    stamp: int = 6
    node_types: int = 3
    """Person, Company, Doc, then generated names; edges exist where both ends do."""
    loads: int = 6
    """Append loads; each adds one fragment to every table."""
    rows: int = 100
    """People per load; the other tables scale off it."""
    deletes: int = 0
    """Rows deleted per node table after the loads; edges that touch them go with them."""
    updates: int = 0
    """People updated by one merge after the loads."""
    vectors: bool = True
    """Whether documents have embeddings; the column is there either way."""
    lazy_branches: int = 0
    """Branches of the graph manifest only, made before the last load."""
    written_branches: int = 0
    """Branches with a forked Person table and one write, made before the last load."""
    index_after_load: int = 1
    """The load after which indexes are built, 0 for never; later fragments stay uncovered."""
    drift_tables: tuple[str, ...] = ()
    """Table keys whose Lance HEAD ends past its pin."""
    drift_kind: str = "compaction"
    """`compaction` (verified maintenance), `delete` (suspicious) or `empty_delete` (matches nothing)."""
    blobs: bool = False
    """Adds Photo with a blob column, some of it null."""
    seed: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """One table as main publishes it."""

    table_key: str
    path: str
    version: int
    rows: int
    fragments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSummary:
    """A demo graph that was written."""

    root: str
    stamp: int
    tables: tuple[TableSummary, ...]
    branches: tuple[str, ...]
    """All graph branches but main."""


def check_spec(spec: DemoSpec) -> None:
    """Refuse a spec that no history can satisfy; raises `InvalidInput`. Pure."""
    if spec.stamp not in {3, 6}:
        raise InvalidInput(f"a demo graph has stamp 3 or 6, not {spec.stamp}")
    if spec.node_types < 1 or spec.rows < 1:
        raise InvalidInput("a demo graph needs at least one node type and one row per load")
    counts = (spec.loads, spec.deletes, spec.updates, spec.lazy_branches, spec.written_branches)
    if min(counts) < 0 or not 0 <= spec.index_after_load <= max(spec.loads, 1):
        raise InvalidInput("a count of the demo graph is negative, or it lacks the load to index after")
    if spec.drift_kind not in DRIFT_KINDS:
        raise InvalidInput(f"drift is one of {', '.join(DRIFT_KINDS)}, not {spec.drift_kind!r}")
    if max(spec.deletes, spec.updates) > spec.loads * spec.rows:
        raise InvalidInput("a demo graph cannot delete or update more people than it loads")


VECTOR_LENGTH = 8
_PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}
# pyarrow's extension type would add an empty ARROW:extension:metadata, which the engine does not write.
_BLOB = {"ARROW:extension:name": "lance.blob.v2"}
_ARROW = {
    "String": pa.string(),
    "I32": pa.int32(),
    "Date": pa.date32(),
    "DateTime": pa.date64(),
    "Blob": pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())]),
    "Vector": pa.list_(pa.field("item", pa.float32()), VECTOR_LENGTH),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoProperty:
    """One declared property."""

    name: str
    scalar: str
    nullable: bool = False
    enum_values: tuple[str, ...] | None = None
    mark: str | None = None
    """`key`, `index` or none."""

    def source(self) -> str:
        """The line that declares it. Pure."""
        kind = f"Vector({VECTOR_LENGTH})" if self.scalar == "Vector" else self.scalar
        if self.enum_values is not None:
            kind = f"enum({', '.join(self.enum_values)})"
        mark = f" @{self.mark}" if self.mark else ""
        return f"    {self.name}: {kind}{'?' if self.nullable else ''}{mark}"

    def arrow(self) -> pa.Field:
        """Its column. Pure."""
        metadata = _BLOB if self.scalar == "Blob" else None
        return pa.field(self.name, _ARROW[self.scalar], nullable=self.nullable, metadata=metadata)

    def index_type(self) -> str | None:
        """The Lance index that the engine builds for it, None without one. Pure."""
        if self.mark is None or self.scalar == "Blob":
            return None
        if self.scalar == "Vector":
            return "IVF_FLAT"
        return "INVERTED" if self.scalar == "String" and self.enum_values is None else "BTREE"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoType:
    """One node or edge type."""

    name: str
    properties: tuple[DemoProperty, ...] = ()
    """In declaration order."""
    ends: tuple[str, str] | None = None
    """The node types an edge joins; None for a node type."""

    @property
    def kind(self) -> str:
        return "node" if self.ends is None else "edge"

    @property
    def table_key(self) -> str:
        return f"{self.kind}:{self.name}"

    @property
    def stored(self) -> tuple[DemoProperty, ...]:
        """The properties in the order of columns and of the schema IR: by name."""
        return tuple(sorted(self.properties, key=lambda p: p.name))

    def source(self) -> str:
        """Its declaration. Pure."""
        ends = "" if self.ends is None else f": {self.ends[0]} -> {self.ends[1]}"
        head = f"{self.kind} {self.name}{ends}"
        if not self.properties:
            return head
        return "\n".join([f"{head} {{", *(p.source() for p in self.properties), "}"])

    def arrow(self, stamp: int) -> pa.Schema:
        """The schema of its table; stamp 6 marks `id` as the primary key. Pure."""
        metadata = _PRIMARY_KEY if stamp == 6 else None
        ends = () if self.ends is None else ("src", "dst")
        return pa.schema(
            [
                pa.field("id", pa.string(), nullable=False, metadata=metadata),
                *(pa.field(name, pa.string(), nullable=False) for name in ends),
                *(p.arrow() for p in self.stored),
            ]
        )

    def indexes(self) -> tuple[tuple[str, str], ...]:
        """(column, index type) as the engine would build them, in its order. Pure."""
        if self.ends is not None:
            return tuple((column, "BTREE") for column in ("id", "src", "dst"))
        declared = sorted(self.properties, key=lambda p: (p.mark == "key", p.name))
        typed = ((p.name, p.index_type()) for p in declared)
        return (("id", "BTREE"), *((name, kind) for name, kind in typed if kind is not None))


_KEYED_NAME = DemoProperty(name="name", scalar="String", mark="key")
_PERSON = DemoType(
    name="Person",
    properties=(
        _KEYED_NAME,
        DemoProperty(name="age", scalar="I32", nullable=True),
        DemoProperty(name="bio", scalar="String", nullable=True, mark="index"),
        DemoProperty(name="joined", scalar="DateTime", nullable=True),
        DemoProperty(name="tier", scalar="String", nullable=True, enum_values=("free", "pro", "team"), mark="index"),
    ),
)
_COMPANY = DemoType(name="Company", properties=(_KEYED_NAME,))
_DOC = DemoType(
    name="Doc",
    properties=(
        DemoProperty(name="slug", scalar="String", mark="key"),
        DemoProperty(name="title", scalar="String", mark="index"),
        DemoProperty(name="body", scalar="String"),
        DemoProperty(name="embedding", scalar="Vector", nullable=True, mark="index"),
    ),
)
_PHOTO = DemoType(
    name="Photo",
    properties=(
        DemoProperty(name="slug", scalar="String", mark="key"),
        DemoProperty(name="image", scalar="Blob", nullable=True),
    ),
)
_EDGES = (
    DemoType(
        name="Knows",
        properties=(DemoProperty(name="since", scalar="Date", nullable=True),),
        ends=("Person", "Person"),
    ),
    DemoType(name="WorksAt", ends=("Person", "Company")),
    DemoType(name="Wrote", ends=("Person", "Doc")),
)


def demo_types(spec: DemoSpec) -> tuple[DemoType, ...]:
    """The types of a spec in declaration order. Pure."""
    weight = DemoProperty(name="weight", scalar="I32", nullable=True)
    generated = tuple(
        DemoType(name=f"Topic{number:02d}", properties=(_KEYED_NAME, weight))
        for number in range(4, spec.node_types + 1)
    )
    nodes = (_PERSON, _COMPANY, _DOC)[: spec.node_types] + generated
    names = {node.name for node in nodes}
    edges = tuple(edge for edge in _EDGES if edge.ends is not None and set(edge.ends) <= names)
    return nodes + edges + ((_PHOTO,) if spec.blobs else ())

"""What a demo graph shall look like, and what was written."""

from __future__ import annotations

from dataclasses import dataclass

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

    @property
    def table_keys(self) -> tuple[str, ...]:
        return tuple(t.table_key for t in self.tables)

    @property
    def rows(self) -> tuple[tuple[str, int], ...]:
        return tuple((t.table_key, t.rows) for t in self.tables)

    @property
    def fragments(self) -> tuple[tuple[str, int], ...]:
        return tuple((t.table_key, t.fragments) for t in self.tables)


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

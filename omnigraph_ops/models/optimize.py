"""Optimize: plans, statistics, reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SkipReason(StrEnum):
    """Why optimize left a table alone."""

    DRIFT = "drift_needs_repair"
    BLOBS = "blob_columns_unsupported_by_lance"
    NOT_EXCLUSIVE = "not_exclusive"


class Decision(StrEnum):
    """What the optimize plan wants for a table."""

    OPTIMIZE = "optimize"
    NO_OP = "no_op"
    SKIPPED = "skipped"
    FAILED = "failed"
    """The table could not be looked at; nothing is done to it and the run ends red."""


class Executor(StrEnum):
    """Where a rewrite runs."""

    IN_PROCESS = "in_process"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingIndex:
    """A declared index that cannot be built yet."""

    column: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFold:
    """An existing index with uncovered fragments or several segments."""

    name: str
    columns: tuple[str, ...]
    segments: int
    uncovered_fragments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBuild:
    """A declared index that does not exist yet."""

    column: str
    index_type: str
    """`BTREE`, `INVERTED` or `IVF_FLAT`."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """What optimize will do with one table, decided at `read_version` (its pin)."""

    table_key: str
    decision: Decision
    read_version: int
    lance_head_version: int
    skipped: SkipReason | None = None
    executor: Executor = Executor.IN_PROCESS
    rows: int = 0
    fragments: int = 0
    fragments_after: int = 0
    """An estimate; the commit reports what happened."""
    data_bytes: int = 0
    rewrite_bytes: int = 0
    folds: tuple[IndexFold, ...] = ()
    builds: tuple[IndexBuild, ...] = ()
    pending_indexes: tuple[PendingIndex, ...] = ()
    compaction_tasks: int = 0
    strip_auto_cleanup: bool = False
    reason: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizePlan:
    """Decisions for every table of the accepted catalog, in key order."""

    uri: str
    stamp: int
    graph_version: int
    tables: tuple[TablePlan, ...]

    def productive(self, executor: Executor | None = None) -> tuple[TablePlan, ...]:
        """The tables with work, optionally only those of one executor. Pure."""
        return tuple(
            t for t in self.tables if t.decision is Decision.OPTIMIZE and (executor is None or t.executor is executor)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitWindow:
    """How long a unit kept its table armed: from writing the sidecar to the publish, in seconds."""

    unit: str
    """`fold`, `rewrite` or `fold+rewrite`."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStats:
    """Outcome of optimize for one table; the first eight fields are the engine's."""

    table_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: SkipReason | None = None
    manifest_version: int | None = None
    lance_head_version: int | None = None
    pending_indexes: tuple[PendingIndex, ...] = ()
    error: str | None = None
    executor: Executor = Executor.IN_PROCESS
    rows: int | None = None
    bytes_rewritten: int = 0
    indexes_folded: tuple[str, ...] = ()
    indexes_built: tuple[str, ...] = ()
    windows: tuple[UnitWindow, ...] = ()
    published_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """All tables of one optimize run."""

    uri: str
    tables: tuple[TableStats, ...]

    @property
    def failed(self) -> tuple[TableStats, ...]:
        return tuple(t for t in self.tables if t.error is not None)

"""Optimize: plans, statistics, reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph_ops.models.history import Measured, UnitWindow, Work, amplification
from omnigraph_ops.models.outcomes import Outcome, StagePlan, TableOutcome, TablePlanned, TableRewrite, TablesReport

PATIENCE = 3
"""Deferrals in a row after which a table comes first."""


class SkipReason(StrEnum):
    """Why optimize left a table alone."""

    DRIFT = "drift_needs_repair"
    BLOBS = "blob_columns_unsupported_by_lance"
    INHERITED_INDEXES = "indexes_of_another_dataset"
    """It is a shallow clone that reads indexes of its original; Lance loses those when it moves rows of the clone."""
    NOT_EXCLUSIVE = "not_exclusive"
    DEFERRED_BUDGET = "deferred_budget"
    """It has work that did not fit into the budget of this run; it stays planned."""
    BELOW_THRESHOLDS = "below_thresholds"
    """It has work, but `--auto` takes only tables that are past a threshold."""
    AUTO_OFF = "auto_off"
    """The configuration keeps automatic optimisation away from it."""
    INTERRUPTED = "interrupted"
    """The run was asked to stop before the table was done; where something of it was committed, the rest is left."""
    UNREADABLE = "readers_would_fail"
    """Merged, texts of a property would take more memory than readers have for them; its fragments stay apart."""
    FROZEN = "frozen"
    """Somebody keeps a cut of it, for a backup perhaps; until that ends nothing of it is written."""
    GONE = "gone"
    """It was dropped or renamed since the plan was made."""


SKIP_TEXTS: Mapping[SkipReason, str] = {
    SkipReason.BLOBS: "blob columns — Lance compaction unsupported",
    SkipReason.INHERITED_INDEXES: "indexes of its original — build them anew in this clone first",
    SkipReason.DRIFT: "manifest/head drift — see omnigraph-ops check",
    SkipReason.NOT_EXCLUSIVE: "others may publish — needs OMNIGRAPH_OPS_EXCLUSIVE or --exclusive",
    SkipReason.DEFERRED_BUDGET: "no room in this run's budget — planned again next time",
    SkipReason.BELOW_THRESHOLDS: "below the thresholds of --auto",
    SkipReason.AUTO_OFF: "automatic optimisation is off",
    SkipReason.INTERRUPTED: "the run was stopped first — planned again next time",
    SkipReason.UNREADABLE: "merged, a property would overflow readers — the log names it and says why",
    SkipReason.FROZEN: "frozen — omnigraph-ops holds says by whom",
    SkipReason.GONE: "dropped or renamed since the plan — the next run plans what there is",
}


class OptimizeDecision(StrEnum):
    """What the optimize plan wants for a table."""

    OPTIMIZE = "optimize"
    NO_OP = "no_op"
    SKIPPED = "skipped"
    DEFERRED = "deferred"
    """It has work that waits for another run: no budget, or below the thresholds."""
    FAILED = "failed"
    """The table could not be looked at; nothing is done to it and the run ends red."""


class BinaryCopy(StrEnum):
    """Whether a rewrite copies encoded pages as they are instead of decoding and encoding their rows."""

    AUTO = "auto"
    """Where the pages are large: small ones would stay small, and be slower to scan."""
    ALWAYS = "always"
    NEVER = "never"


class RewritePolicy(StrEnum):
    """Which fragments a rewrite wants."""

    CONVERGE = "converge"
    """One fragment up to the target size, as the engine does it: every night rewrites what is below the target."""
    TIERED = "tiered"
    """Fragments of one size class are merged once there are enough of them: O(log n) rewrites per row."""


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
    """An existing index that is written anew: for uncovered fragments, several segments, or entries that must go."""

    name: str
    columns: tuple[str, ...]
    segments: int
    uncovered_fragments: int
    release: str | None = None
    """The release of pylance that writes it; None for the own one."""
    rebuild: bool = False
    """Whether it is built anew rather than folded; to drop entries, with the parameters that it has."""
    why: str = ""
    """Why it is written although it covers every row."""
    retrain: bool = False
    """Whether a vector index gets the number of partitions that its rows want."""
    purge: bool = False
    """Whether entries of deleted rows have to go: queries with a limit meet them, or would after the rewrite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBuild:
    """A declared index that does not exist yet."""

    column: str
    index_type: str
    """`BTREE`, `INVERTED` or `IVF_FLAT`."""
    name: str
    release: str | None = None
    """The release of pylance that writes it; None for the own one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """What optimize will do with one table, decided at `read_version` (its pin)."""

    table_key: str
    decision: OptimizeDecision
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
    index_bytes: int = 0
    """What index work is expected to write: folding writes an index anew, grown by the rows that it takes in."""
    benefit: float = 0.0
    """The health points that optimizing wins back, 0 to 80."""
    waited: int = 0
    """How many runs in a row had no budget for it."""
    folds: tuple[IndexFold, ...] = ()
    builds: tuple[IndexBuild, ...] = ()
    pending_indexes: tuple[PendingIndex, ...] = ()
    compaction_tasks: int = 0
    leaves_fragments: bool = False
    """Whether fragments stay as they are, for the sake of an index that would lose hits, or of merges."""
    strip_auto_cleanup: bool = False
    reason: str = ""
    error: str | None = None

    @property
    def cost_bytes(self) -> int:
        """What optimizing the table is expected to write. Pure."""
        return self.rewrite_bytes + self.index_bytes

    @property
    def is_seen(self) -> bool:
        """Whether somebody looked into the table: the figures of others are not known, rather than 0. Pure."""
        return self.decision not in {OptimizeDecision.SKIPPED, OptimizeDecision.FAILED}

    @property
    def before(self) -> Measured:
        """How the table stood; only its version where nobody looked into it. Pure."""
        if not self.is_seen:
            return Measured(version=self.read_version)
        return Measured(version=self.read_version, rows=self.rows, fragments=self.fragments, data_bytes=self.data_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTable:
    """A table that a named branch of the graph keeps on a Lance branch of its own; optimize leaves it."""

    branch: str
    table_key: str
    """Empty where the branch cannot be read."""
    version: int = 0
    rows: int = 0
    fragments: int = 0
    """Those that the branch inherited are among them."""
    own_files: int = 0
    own_bytes: int = 0
    """Below the folder of the Lance branch, all versions."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizePlan(StagePlan):
    """Decisions for every table of the accepted catalog, in key order."""

    stage = "optimize"
    uri: str
    stamp: int
    graph_version: int
    tables: tuple[TablePlan, ...]
    not_after_us: int | None = None
    """The deadline of the run: no table starts after it."""
    left: tuple[BranchTable, ...] = ()
    """What named branches keep for themselves, which nothing optimizes; only the verb `plan` looks for it."""

    def by_table(self) -> Iterator[TablePlanned]:
        for table in self.tables:
            yield TablePlanned(
                table_key=table.table_key,
                before=table.before if table.error is None else Measured(),
                reason=table.skipped.value if table.skipped else "",
                error=table.error,
                due=table.decision is OptimizeDecision.OPTIMIZE,
            )

    def graph_before(self) -> Measured:
        """All tables together; only the version where nobody looked into one of them. Pure."""
        if not all(t.is_seen for t in self.tables):
            return Measured(version=self.graph_version)
        return Measured(
            version=self.graph_version,
            rows=sum(t.rows for t in self.tables),
            fragments=sum(t.fragments for t in self.tables),
            data_bytes=sum(t.data_bytes for t in self.tables),
        )

    @property
    def deferred(self) -> tuple[TablePlan, ...]:
        """The tables with work that waits for another run. Pure."""
        return tuple(t for t in self.tables if t.decision is OptimizeDecision.DEFERRED)

    def productive(self, executor: Executor | None = None) -> tuple[TablePlan, ...]:
        """The tables with work, optionally only those of one executor. Pure."""
        return tuple(
            t
            for t in self.tables
            if t.decision is OptimizeDecision.OPTIMIZE and (executor is None or t.executor is executor)
        )

    def in_turn(self, executor: Executor | None = None) -> tuple[TablePlan, ...]:
        """`productive` in the order of a run: who waited too long, then by benefit per byte, then by key. Pure."""
        return tuple(sorted(self.productive(executor), key=_turn))


def _turn(table: TablePlan) -> tuple[bool, float, str]:
    return table.waited < PATIENCE, -table.benefit / max(table.cost_bytes, 1), table.table_key


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
    """Data and index bytes that were written."""
    bytes_planned: int = 0
    """What that was expected to be."""
    rewrite_deferred: bool = False
    """The budget was spent after its indexes: its fragments wait for another run."""
    index_bytes_rewritten: int = 0
    bytes_ingested: int | None = None
    """Data that others added since the last run; None when that cannot be told."""
    write_amplification: float | None = None
    """Bytes rewritten per byte ingested; None when nothing was ingested, or nobody can tell."""
    indexes_folded: tuple[str, ...] = ()
    indexes_built: tuple[str, ...] = ()
    windows: tuple[UnitWindow, ...] = ()
    published_version: int | None = None
    preempted: int = 0
    """How often another writer came in between, and the table was planned again."""

    @property
    def work(self) -> Work:
        """What was done to it. Pure."""
        return Work(
            fragments_removed=self.fragments_removed,
            fragments_added=self.fragments_added,
            bytes_rewritten=self.bytes_rewritten,
            bytes_ingested=self.bytes_ingested,
            write_amplification=self.write_amplification,
            preempted=self.preempted,
        )

    def outcome(self) -> TableOutcome:
        """In the terms of the history. Pure."""
        return TableOutcome(
            table_key=self.table_key,
            work=self.work,
            changed=self.committed,
            error=self.error or None,
            reason=self.skipped.value if self.skipped else "",
            interrupted=self.committed and self.skipped is SkipReason.INTERRUPTED,
            rewrite=TableRewrite(
                executor=self.executor.value if self.committed else None,
                windows=self.windows,
                published_version=self.published_version,
                rows=self.rows,
            ),
        )

    def then(self, later: TableStats) -> TableStats:
        """It and a later one of the table. Pure."""
        if not self.committed:
            return later
        if not later.committed:
            return replace(self, error=later.error)
        both = Work.of((self.work, later.work))
        return replace(
            later,
            fragments_removed=both.fragments_removed,
            fragments_added=both.fragments_added,
            bytes_rewritten=both.bytes_rewritten,
            bytes_planned=self.bytes_planned + later.bytes_planned,
            index_bytes_rewritten=self.index_bytes_rewritten + later.index_bytes_rewritten,
            bytes_ingested=both.bytes_ingested,
            write_amplification=amplification(both.bytes_rewritten, both.bytes_ingested),
            indexes_folded=tuple(dict.fromkeys((*self.indexes_folded, *later.indexes_folded))),
            indexes_built=tuple(dict.fromkeys((*self.indexes_built, *later.indexes_built))),
            windows=(*self.windows, *later.windows),
            preempted=self.preempted + later.preempted,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport(TablesReport[TableStats]):
    """All tables of one optimize run."""

    stage = "optimize"
    uri: str
    tables: tuple[TableStats, ...]
    bytes_rewritten: int = 0
    bytes_planned: int = 0
    """What the tables that were written were expected to write."""
    bytes_ingested: int | None = None
    """Over the tables that could tell; None when none could."""
    write_amplification: float | None = None
    """Over the tables that could tell what was ingested."""

    @classmethod
    def of(cls, uri: str, tables: Iterable[TableStats]) -> OptimizeReport:
        """The report with the sums over its tables. Pure."""
        rows = tuple(tables)
        work = Work.of(row.work for row in rows)
        return cls(
            uri=uri,
            tables=rows,
            bytes_rewritten=work.bytes_rewritten,
            bytes_planned=sum(row.bytes_planned for row in rows),
            bytes_ingested=work.bytes_ingested,
            write_amplification=work.write_amplification,
        )

    def outcome(self, plan: object = None) -> Outcome:
        """No approval, so nothing for the audit log. Pure."""
        return Outcome(
            stage=self.stage,
            detail="",
            changed=any(stats.committed for stats in self.tables),
            tables=tuple(stats.outcome() for stats in self.tables),
        )

    def with_tables(self, tables: Iterable[TableStats]) -> OptimizeReport:
        return OptimizeReport.of(self.uri, tables)

    def with_failures(self, failed: Mapping[str | None, str]) -> OptimizeReport:
        return self.with_tables(replace(row, error=row.error or failed.get(row.table_key)) for row in self.tables)

    @property
    def deferred(self) -> tuple[TableStats, ...]:
        """The tables that found no budget. Pure."""
        return tuple(t for t in self.tables if t.skipped is SkipReason.DEFERRED_BUDGET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """How long each rewrite of a submit took, in the order of its arguments."""

    of_each: tuple[float, ...]

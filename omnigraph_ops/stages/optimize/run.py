"""Run optimize: plan from a fresh look, execute in parallel, commit one table at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    wait_exponential,
)

from omnigraph_ops.config.terms import UNBOUNDED, BudgetTerms
from omnigraph_ops.coordination.fence import drop_stale_fence
from omnigraph_ops.coordination.freezes import active_freezes, sweep_ended, why_frozen
from omnigraph_ops.coordination.guards import look_again, looks, refuse_lasting
from omnigraph_ops.coordination.litter import sweep_beside
from omnigraph_ops.coordination.rewrites import abandon
from omnigraph_ops.errors import (
    CorruptGraph,
    DriftFound,
    GraphFrozen,
    OpsError,
    RecoveryNeeded,
    RecoveryPending,
    StalePlan,
    TransientError,
    UnknownTable,
)
from omnigraph_ops.graph.graph import Graph, select_entries
from omnigraph_ops.graph.layout import chain_folder
from omnigraph_ops.graph.sidecars import engine_root
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import LOST_COMMITS, CommitConflict, LanceFailure
from omnigraph_ops.lance.reader_limits import most_task_bytes
from omnigraph_ops.lance.versions import NO_LANCE_FILE, first_damaged, needed_files
from omnigraph_ops.models.optimize import (
    Executor,
    OptimizeDecision,
    OptimizePlan,
    OptimizeReport,
    SkipReason,
    TablePlan,
    TableStats,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, About, Meter, Progress, Stopped
from omnigraph_ops.stages.optimize.budget import accounted, run_within, too_late, under_budget, untouched
from omnigraph_ops.stages.optimize.index_work import IndexWriter
from omnigraph_ops.stages.optimize.observe import observe_table, policy_of
from omnigraph_ops.stages.optimize.plan import OptimizePolicy, plan_table
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor, TableRun, TaskExecutor
from omnigraph_ops.stages.optimize.units import Effort, Room, optimize_internal, optimized, skipped_internal

_ATTEMPTS = 5
_BACKOFF_SECONDS = 0.25
_PREEMPTED = (CommitConflict, StalePlan, DriftFound, RecoveryPending)


def plan_optimize(
    graph: Graph,
    *,
    tables: Sequence[str] = (),
    spark_threshold_bytes: int | None = None,
    budget: BudgetTerms = UNBOUNDED,
) -> OptimizePlan:
    """The plan for every maintained table (or those named), in key order, within a budget. Reads."""
    state = graph.state()
    policy = policy_of(graph, spark_threshold_bytes)
    entries = select_entries(graph, state, tables)
    freezes = active_freezes(graph.storage)

    def one(entry: TableEntry) -> TablePlan:
        frozen = why_frozen(graph, freezes, entry)
        if frozen is not None:
            return replace(_left_out(entry, OptimizeDecision.SKIPPED, frozen), skipped=SkipReason.FROZEN)
        try:
            plan = plan_table(observe_table(graph, entry, policy), policy)
            if plan.decision is OptimizeDecision.OPTIMIZE and graph.format.publishes:
                engine_root(graph, entry)  # raises before the work where only the commit would raise otherwise
        except OpsError as error:
            # It is reported and holds up no other.
            return replace(_left_out(entry, OptimizeDecision.FAILED, "cannot be looked at"), error=str(error))
        return plan

    def planned(found: Sequence[TableEntry]) -> list[TablePlan]:
        return in_parallel(one, found, workers=graph.settings.concurrency)

    plan = OptimizePlan(
        uri=graph.uri,
        stamp=graph.stamp,
        graph_version=state.manifest_version,
        tables=tuple(look_again(graph, planned(entries), _is_drifted, planned)),
    )
    return under_budget(graph, plan, budget)


def _plan_of_run(graph: Graph, tables: Sequence[str], budget: BudgetTerms) -> tuple[Graph, OptimizePlan]:
    """The plan, and the graph with its schema: the run may just have waited for a schema apply. Reads."""
    try:
        return graph, plan_optimize(graph, tables=tables, budget=budget)
    except TransientError:
        refuse_lasting(graph)
        graph = graph.with_current_schema()
        return graph, plan_optimize(graph, tables=tables, budget=budget)


def _is_drifted(found: TablePlan) -> bool:
    return found.skipped is SkipReason.DRIFT


def optimize_all(
    graph: Graph,
    *,
    tables: Sequence[str] = (),
    executor: TaskExecutor | None = None,
    budget: BudgetTerms = UNBOUNDED,
    progress: Progress = SILENT,
    heavy: Callable[[str], TableStats] | None = None,
) -> OptimizeReport:
    """Optimize every maintained table (or those named), then the internal tables. Writes.

    A table that fails carries its error in its row and does not stop the others. A table that has no room in
    the budget, or whose turn comes after its deadline, is left for the next run; one that starts is finished. A run
    that is asked to stop finishes the units it is in and leaves the other tables for the next run.

    Raises:
        RecoveryPending: something is pending; nothing was written.
        UnknownTable: a named table is not live; nothing was written.
    """
    sweep_ended(graph)
    if drop_stale_fence(graph):
        progress("lifted the fence of a run that was killed")
    refuse_lasting(graph)
    sweep_beside(graph)
    graph, plan = _plan_of_run(graph, tables, budget)
    IndexWriter.of(graph).begin(plan.productive())
    costs = {table.table_key: table.cost_bytes for table in plan.productive()}
    meter = Meter(progress, "optimizing", sum(costs.values()), "bytes")
    plans = {table.table_key: table for table in plan.tables}
    runs_on = executor or InProcessExecutor(graph.storage, graph.run.pause)

    def one(key: str, room: Room) -> TableStats:
        unit = Unit(name=key, stage="optimize", table_key=key, version=plans[key].read_version)
        elsewhere = heavy if plans[key].executor is Executor.SPARK else None
        drifted = _is_drifted(plans[key])
        work = _Work(table_key=key, room=room, plan=plans[key], drifted=drifted, elsewhere=elsewhere)
        stats = _isolated(graph, unit, work, runs_on, About(progress, key))
        meter.add(costs.get(key, 0))
        return stats

    stats = run_within(graph, plan, one, budget)
    internal = optimize_internal_last(graph, plan) if not tables else ()
    return OptimizeReport.of(graph.uri, (*stats, *internal))


def optimize_internal_last(graph: Graph, plan: OptimizePlan) -> tuple[TableStats, ...]:
    """Compact the internal tables after those of a plan, if its deadline allows; a fault becomes a row. Writes."""
    if too_late(plan.not_after_us):
        return skipped_internal(graph, SkipReason.DEFERRED_BUDGET)
    try:
        graph.run.check()
        return optimize_internal(graph)
    except Stopped:
        return ()
    except OpsError as error:
        # What the tables did must reach the report whatever happens here.
        return (TableStats(table_key="__manifest", error=str(error)),)


def optimize_table(
    graph: Graph,
    table_key: str,
    *,
    executor: TaskExecutor | None = None,
    progress: Progress = SILENT,
) -> TableStats:
    """Plan one table afresh and bring it to one covered fragment per target size. Writes.

    Raises:
        OpsError: what happened, and that the table is either untouched or finished by `recover`.
    """
    executor = executor or InProcessExecutor(graph.storage, graph.run.pause)
    unit = unit_of(graph, table_key)
    work = _Work(table_key=table_key)
    graph.run.begins(unit)
    try:
        stats = _optimize(graph, executor, work, progress)
    except OpsError:
        graph.run.ended(unit, OptimizeReport.of(graph.uri, (_done(graph, unit, work, executor),)))
        raise
    graph.run.ended(unit, OptimizeReport.of(graph.uri, (stats,)))
    return stats


def unit_of(graph: Graph, table_key: str) -> Unit:
    """The unit that optimizes one table from its published version on. Reads."""
    entry = graph.published(table_key)
    return Unit(name=table_key, stage="optimize", table_key=table_key, version=entry.version if entry else None)


@dataclass(slots=True, kw_only=True)
class _Work:
    """What was done to one table so far, in all attempts; mutable because it is told however they end."""

    table_key: str
    room: Room | None = None
    """Whether the budget has room for the rewrite, asked with the bytes of its indexes; None: it has."""
    plan: TablePlan | None = None
    """Of the run; an attempt on another version of the table looks for itself."""
    drifted: bool = False
    """Whether the plan of the run found drift in every look: no attempt looks again."""
    effort: Effort = field(default_factory=Effort)
    planned: TableEntry | None = None
    """The table as the newest attempt found it."""
    planned_bytes: int = 0
    preempted: int = 0
    elsewhere: Callable[[str], TableStats] | None = None
    """What optimizes the table in another process; None: this one does."""

    def stats(self, graph: Graph, executor: TaskExecutor) -> TableStats:
        """The row of the table as this run published it, or as it is now. Reads; notes the run for the next one."""
        after = self.effort.published or graph.published(self.table_key)
        stats = TableStats(
            table_key=self.table_key,
            fragments_removed=self.effort.fragments_removed,
            fragments_added=self.effort.fragments_added,
            committed=bool(self.effort.windows),
            executor=executor.kind,
            indexes_folded=tuple(self.effort.folded),
            indexes_built=tuple(self.effort.built),
            windows=tuple(self.effort.windows),
            bytes_planned=self.planned_bytes if self.effort.windows else 0,
            rewrite_deferred=self.effort.rewrite_deferred,
            published_version=after.version if after else None,
            preempted=self.preempted,
        )
        return stats if self.planned is None else accounted(graph, self.planned, after, self.effort, stats)


def _isolated(graph: Graph, unit: Unit, work: _Work, executor: TaskExecutor, progress: Progress) -> TableStats:
    """The row of one table of a run, whatever ends its work: what was published is in it. Writes."""
    try:
        graph.run.begins(unit)
    except Stopped:
        return TableStats(table_key=unit.table_key, skipped=SkipReason.INTERRUPTED)
    except OpsError as error:
        return TableStats(table_key=unit.table_key, error=str(error))
    try:
        stats = _optimize(graph, executor, work, progress)
    except Stopped:
        stats = replace(_done(graph, unit, work, executor), skipped=SkipReason.INTERRUPTED)
    except GraphFrozen as error:  # before its work began
        progress(str(error))
        stats = TableStats(table_key=unit.table_key, skipped=SkipReason.FROZEN)
    except UnknownTable as error:  # the plan of the run had it
        progress(str(error))
        stats = replace(_done(graph, unit, work, executor), skipped=SkipReason.GONE)
    except OpsError as error:
        stats = replace(_done(graph, unit, work, executor), error=str(error))
    graph.run.ended(unit, OptimizeReport.of(graph.uri, (stats,)))
    return stats


def _done(graph: Graph, unit: Unit, work: _Work, executor: TaskExecutor) -> TableStats:
    """What was committed to a table whose work ended early. Reads."""
    # Another run may have optimized the table meanwhile. The marks of what another process commits are not known.
    marks = work.effort.marks if work.elsewhere is None else None
    try:
        return work.stats(graph, executor) if work.effort.windows else optimized(graph, unit, marks)
    except OpsError:
        return TableStats(
            table_key=unit.table_key, committed=bool(work.effort.windows), windows=tuple(work.effort.windows)
        )


def _optimize(graph: Graph, executor: TaskExecutor, work: _Work, progress: Progress) -> TableStats:
    refuse_lasting(graph, beside_siblings=True, table_key=work.table_key)
    if work.elsewhere is not None:
        return work.elsewhere(work.table_key)

    def preempted(attempt: RetryCallState) -> None:
        work.preempted = attempt.attempt_number
        if attempt.outcome is not None:
            progress(f"preempted, planning again: {attempt.outcome.exception()}")

    # Another writer was there between our look and our turn: look again.
    looking = Retrying(
        retry=retry_if_exception_type(_PREEMPTED) & retry_if_not_exception_type(RecoveryNeeded),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_exponential(multiplier=_BACKOFF_SECONDS),
        sleep=graph.run.pause,
        before_sleep=preempted,
        reraise=True,
    )
    try:
        return looking(_attempt_as_accepted, graph, executor, work, progress)
    except GraphFrozen as error:
        # A plan that is made now says the same. A backup that begins beside a run is no failure of the run.
        progress(str(error))
        return replace(work.stats(graph, executor), skipped=SkipReason.FROZEN)


def _attempt_as_accepted(graph: Graph, executor: TaskExecutor, work: _Work, progress: Progress) -> TableStats:
    """As `_attempt_table`, by the schema that is accepted now where another writer was there before. Writes.

    Raises:
        StalePlan: it failed, and the schema was changed meanwhile: a property may have another name.
        CorruptGraph: it failed, and a file of its published version is lost or damaged.
    """
    with contextlib.suppress(OpsError):  # in the middle of a schema apply
        graph = graph.with_current_schema() if work.preempted else graph
    try:
        return _attempt_table(graph, executor, work, progress)
    except (LanceFailure, TransientError) as error:
        if not _has_new_schema(graph):
            if not isinstance(error, (TransientError, *LOST_COMMITS)):
                _refuse_lost(graph, work.table_key, error)
            raise
        changed = f"the schema of {graph.uri} was changed while {work.table_key} was optimized"
        raise StalePlan(f"{changed}: {error}; no row is lost; run again") from error


def _refuse_lost(graph: Graph, table_key: str, error: LanceFailure) -> None:
    """Raise `CorruptGraph` where a file of the published version is lost or damaged: no repetition helps. Reads."""
    found = ""
    with contextlib.suppress(OpsError):  # the error that made somebody ask says more
        if (entry := graph.published(table_key)) is not None:
            chain = chain_folder(entry.path, entry.branch)
            pinned = graph.open_pinned(entry)
            published = f"version {entry.version}, which is published,"
            needed = {f"{chain}/{f.path}": f.size for f in needed_files(pinned) if f.base is None}
            if lost := graph.first_lost(needed):
                every = "`omnigraph-ops health --files` names all that is gone"
                found = f"{published} lacks {lost}; no other table is affected; {every}; bring the file back"
            elif NO_LANCE_FILE in str(error) and (damaged := first_damaged(pinned)):
                found = f"{published} has {damaged} under {chain}, which is damaged; no other table is affected"
                found += "; replace it by the file of a backup"
    if found:
        raise CorruptGraph(f"{found}, or restore the graph") from error


def _has_new_schema(graph: Graph) -> bool:
    """Whether another schema is accepted than the one that the graph was opened with. Reads."""
    try:
        return graph.with_current_schema().catalog != graph.catalog
    except OpsError:
        return False  # the error that made somebody ask says more


def _attempt_table(graph: Graph, executor: TaskExecutor, work: _Work, progress: Progress) -> TableStats:
    policy = policy_of(graph)
    entry, plan = _planned(graph, work, policy)
    if plan.decision is OptimizeDecision.OPTIMIZE:
        work.planned, work.planned_bytes, pinned = entry, plan.cost_bytes, graph.open_pinned(entry)
        policy = policy.within(most_task_bytes(pinned))
        run = TableRun(graph, plan, policy, executor, pinned, effort=work.effort, progress=progress, room=work.room)
        run.go(entry)
    else:
        abandon(graph, entry.path, progress)
        if not work.effort.windows:
            return replace(untouched(plan), preempted=work.preempted)
        work.planned = entry
    return replace(
        work.stats(graph, executor),
        skipped=SkipReason.UNREADABLE if work.effort.swollen else plan.skipped,
        manifest_version=plan.read_version if plan.skipped else None,
        lance_head_version=plan.lance_head_version if plan.skipped else None,
        pending_indexes=plan.pending_indexes,
        rows=plan.rows or None,
    )


def _planned(graph: Graph, work: _Work, policy: OptimizePolicy) -> tuple[TableEntry, TablePlan]:
    """The table as it is published, and its plan: that of the run once, as long as it fits, or a fresh one. Reads."""
    plan, work.plan = work.plan, None
    if plan is not None and plan.decision is OptimizeDecision.OPTIMIZE:
        entry = graph.published(work.table_key)
        if entry is not None and entry.version == plan.read_version:
            return entry, plan
    for _ in looks(graph):
        (found,) = select_entries(graph, graph.state_of(work.table_key), (work.table_key,))
        fresh = plan_table(observe_table(graph, found, policy), policy)
        if work.drifted or not _is_drifted(fresh):
            break
    return found, fresh


def _left_out(entry: TableEntry, decision: OptimizeDecision, reason: str) -> TablePlan:
    """The plan of a table that nobody looks into. Pure."""
    version = entry.version
    return TablePlan(
        table_key=entry.table_key, decision=decision, read_version=version, lance_head_version=version, reason=reason
    )

"""Run optimize: plan from a fresh look, execute in parallel, commit one table at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from omnigraph_ops.edges.lance_errors import CommitConflict
from omnigraph_ops.errors import DriftFound, OpsError, RecoveryPending, StalePlan
from omnigraph_ops.freeze.refuse import active_freezes, why_frozen
from omnigraph_ops.freeze.release import sweep_ended
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.guards import refuse_pending
from omnigraph_ops.models import (
    Decision,
    OptimizePlan,
    OptimizeReport,
    SkipReason,
    TablePlan,
    TableStats,
    UnitWindow,
)
from omnigraph_ops.optimize.accounting import accounted
from omnigraph_ops.optimize.budget import Budget, late_internal, run_within, too_late, under_budget, untouched
from omnigraph_ops.optimize.executors import InProcessExecutor, TaskExecutor
from omnigraph_ops.optimize.index_writer import IndexWriter
from omnigraph_ops.optimize.internal import optimize_internal
from omnigraph_ops.optimize.observe import observe_table, policy_of, select_entries
from omnigraph_ops.optimize.plan import plan_table
from omnigraph_ops.optimize.table_run import TableRun
from omnigraph_ops.optimize.units import Effort, Progress, Room
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.rewrites.settle import abandon, sweep_rewrites

_ATTEMPTS = 5
_BACKOFF_SECONDS = 0.25
_PREEMPTED = (CommitConflict, StalePlan, DriftFound, RecoveryPending)


def plan_optimize(
    graph: Graph,
    *,
    tables: Sequence[str] = (),
    spark_threshold_bytes: int | None = None,
    budget: Budget | None = None,
) -> OptimizePlan:
    """The plan for every maintained table (or those named), in key order, within a budget. Reads."""
    state = graph.state()
    policy = policy_of(graph, spark_threshold_bytes)
    entries = select_entries(graph, state, tables)
    freezes = active_freezes(graph.storage)

    def one(entry: TableEntry) -> TablePlan:
        frozen = why_frozen(graph, freezes, entry.table_key)
        if frozen is not None:
            return _frozen(entry, frozen)
        try:
            return plan_table(observe_table(graph, entry, policy), policy)
        except OpsError as error:
            return _unplannable(entry, error)

    plans = in_parallel(one, entries, workers=graph.settings.concurrency)
    plan = OptimizePlan(
        uri=graph.uri,
        stamp=graph.stamp,
        graph_version=state.manifest_version,
        tables=tuple(plans),
    )
    return plan if budget is None else under_budget(graph, plan, budget)


def optimize_all(
    graph: Graph,
    *,
    tables: Sequence[str] = (),
    executor: TaskExecutor | None = None,
    budget: Budget | None = None,
    on_progress: Callable[[str, str], None] | None = None,
) -> OptimizeReport:
    """Optimize every maintained table (or those named), then the internal tables. Writes.

    A table that fails carries its error in its row and does not stop the others. A table that has no room in
    the budget, or whose turn comes after its deadline, is left for the next run; one that starts is finished.

    Raises:
        RecoveryPending: something is pending; nothing was written.
        UnknownTable: a named table is not live; nothing was written.
    """
    sweep_ended(graph)
    refuse_pending(graph)
    sweep_rewrites(graph)
    plan = plan_optimize(graph, tables=tables, budget=budget)
    IndexWriter.of(graph).begin(plan.productive())
    report = on_progress or (lambda _key, _text: None)

    def one(key: str, room: Room) -> TableStats:
        try:
            return optimize_table(graph, key, executor=executor, on_progress=partial(report, key), room=room)
        except OpsError as error:
            return TableStats(table_key=key, error=str(error))

    stats = run_within(graph, plan, one, budget or Budget())
    internal = optimize_internal_last(graph, plan) if not tables else ()
    return OptimizeReport.of(graph.uri, (*stats, *internal))


def optimize_internal_last(graph: Graph, plan: OptimizePlan) -> tuple[TableStats, ...]:
    """Compact the internal tables after those of a plan, if its deadline allows; a fault becomes a row. Writes."""
    if too_late(plan.not_after_us):
        return late_internal(graph)
    try:
        return optimize_internal(graph)
    except OpsError as error:
        # What the tables did must reach the report whatever happens here.
        return (TableStats(table_key="__manifest", error=str(error)),)


def optimize_table(
    graph: Graph,
    table_key: str,
    *,
    executor: TaskExecutor | None = None,
    on_progress: Progress | None = None,
    room: Room | None = None,
) -> TableStats:
    """Plan one table afresh and bring it to one covered fragment per target size. Writes.

    Args:
        room: whether the budget has room for the rewrite, asked with the bytes of its indexes; None: it has.

    Raises:
        OpsError: what happened, and that the table is either untouched or finished by `recover`.
    """
    refuse_pending(graph, beside_siblings=True, table_key=table_key)
    executor = executor or InProcessExecutor(graph.storage)
    effort = Effort()
    windows: list[UnitWindow] = []
    for attempt in range(_ATTEMPTS):
        try:
            stats = _attempt_table(graph, table_key, executor, effort, windows, on_progress, room)
            return replace(stats, preempted=attempt)
        except _PREEMPTED as error:
            # Another writer was there between our look and our turn: look again.
            if attempt == _ATTEMPTS - 1:
                raise
            if on_progress is not None:
                on_progress(f"preempted, planning again: {error}")
            time.sleep(_BACKOFF_SECONDS * 2**attempt)
    raise AssertionError("unreachable")


def _attempt_table(  # noqa: PLR0917 - the state of one table's run, passed once
    graph: Graph,
    table_key: str,
    executor: TaskExecutor,
    effort: Effort,
    windows: list[UnitWindow],
    on_progress: Progress | None,
    room: Room | None,
) -> TableStats:
    policy = policy_of(graph)
    (entry,) = select_entries(graph, graph.state_of(table_key), (table_key,))
    plan = plan_table(observe_table(graph, entry, policy), policy)
    progress = on_progress or (lambda _text: None)
    if plan.decision is Decision.OPTIMIZE:
        run = TableRun(graph, plan, policy, executor=executor, effort=effort, progress=progress, room=room)
        run.go(entry, windows)
    else:
        abandon(graph, entry.path, progress)
        if not windows:
            return untouched(plan)
    after = graph.published(table_key)
    stats = TableStats(
        table_key=table_key,
        fragments_removed=effort.fragments_removed,
        fragments_added=effort.fragments_added,
        committed=bool(windows),
        skipped=plan.skipped,
        manifest_version=plan.read_version if plan.skipped else None,
        lance_head_version=plan.lance_head_version if plan.skipped else None,
        pending_indexes=plan.pending_indexes,
        executor=executor.kind,
        rows=plan.rows or None,
        bytes_planned=plan.cost_bytes if windows else 0,
        rewrite_deferred=effort.rewrite_deferred,
        indexes_folded=tuple(effort.folded),
        indexes_built=tuple(effort.built),
        windows=tuple(windows),
        published_version=after.version if after else None,
    )
    return accounted(graph, entry, after, effort, stats)


def _frozen(entry: TableEntry, why: str) -> TablePlan:
    """The plan of a table that somebody keeps as it is: nobody looks into it. Pure."""
    return TablePlan(
        table_key=entry.table_key,
        decision=Decision.SKIPPED,
        skipped=SkipReason.FROZEN,
        read_version=entry.version,
        lance_head_version=entry.version,
        reason=why,
    )


def _unplannable(entry: TableEntry, error: OpsError) -> TablePlan:
    """The plan of a table that cannot be looked at: it is reported and holds up no other. Pure."""
    return TablePlan(
        table_key=entry.table_key,
        decision=Decision.FAILED,
        read_version=entry.version,
        lance_head_version=entry.version,
        reason="cannot be looked at",
        error=f"{entry.table_key}: {error}",
    )

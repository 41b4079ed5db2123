"""Run optimize: plan from a fresh look, execute in parallel, commit one table at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from omnigraph_ops.edges.lance_errors import CommitConflict
from omnigraph_ops.edges.lance_gateway import Dataset
from omnigraph_ops.edges.lance_tables import RewriteTask, commit_results, plan_tasks, surviving_results
from omnigraph_ops.errors import DriftFound, OpsError, PublishConflict, RecoveryPending, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.holds import HeldVersion, plan_hold
from omnigraph_ops.models import Decision, OptimizePlan, OptimizeReport, TablePlan, TableStats, UnitWindow
from omnigraph_ops.optimize.executors import InProcessExecutor, TaskExecutor
from omnigraph_ops.optimize.internal import optimize_internal
from omnigraph_ops.optimize.observe import observe_table, policy_of, select_entries
from omnigraph_ops.optimize.plan import plan_table
from omnigraph_ops.optimize.units import Effort, Progress, compact_here, fold
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.window import Effects, refuse_pending, run_unit

_REWRITE_ROUNDS = 5
_ATTEMPTS = 5
_BACKOFF_SECONDS = 0.25
# A bound for a run on another machine that died: on this one its hold ends with the process.
_LONGEST_REWRITE_SECONDS = 86_400.0
_PREEMPTED = (CommitConflict, StalePlan, DriftFound, RecoveryPending)


def plan_optimize(
    graph: Graph, *, tables: Sequence[str] = (), spark_threshold_bytes: int | None = None
) -> OptimizePlan:
    """The plan for every maintained table (or those named), in key order. Reads."""
    state = graph.state()
    policy = policy_of(graph, spark_threshold_bytes)
    entries = select_entries(graph, state, tables)

    def one(entry: TableEntry) -> TablePlan:
        try:
            return plan_table(observe_table(graph, entry, policy), policy)
        except OpsError as error:
            return _unplannable(entry, error)

    plans = in_parallel(one, entries, workers=graph.settings.concurrency)
    return OptimizePlan(
        uri=graph.uri,
        stamp=graph.stamp,
        graph_version=state.manifest_version,
        tables=tuple(plans),
    )


def optimize_all(
    graph: Graph,
    *,
    tables: Sequence[str] = (),
    executor: TaskExecutor | None = None,
    on_progress: Callable[[str, str], None] | None = None,
) -> OptimizeReport:
    """Optimize every maintained table (or those named), then the internal tables. Writes.

    A table that fails carries its error in its row and does not stop the others.

    Raises:
        RecoveryPending: something is pending; nothing was written.
        UnknownTable: a named table is not live; nothing was written.
    """
    refuse_pending(graph)
    keys = [e.table_key for e in select_entries(graph, graph.state(), tables)]
    report = on_progress or (lambda _key, _text: None)

    def one(key: str) -> TableStats:
        try:
            return optimize_table(graph, key, executor=executor, on_progress=partial(report, key))
        except OpsError as error:
            return TableStats(table_key=key, error=str(error))

    stats = in_parallel(one, keys, workers=graph.settings.concurrency)
    internal = _internal(graph) if not tables else ()
    return OptimizeReport(uri=graph.uri, tables=(*stats, *internal))


def _internal(graph: Graph) -> tuple[TableStats, ...]:
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
) -> TableStats:
    """Plan one table afresh and bring it to one covered fragment per target size. Writes.

    Raises:
        OpsError: what happened, and that the table is either untouched or finished by `recover`.
    """
    refuse_pending(graph, beside_siblings=True)
    effort = Effort()
    windows: list[UnitWindow] = []
    for attempt in range(_ATTEMPTS):
        try:
            return _attempt_table(graph, table_key, executor or InProcessExecutor(), effort, windows, on_progress)
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
) -> TableStats:
    policy = policy_of(graph)
    (entry,) = select_entries(graph, graph.state(), (table_key,))
    plan = plan_table(observe_table(graph, entry, policy), policy)
    if plan.decision is not Decision.OPTIMIZE and not windows:
        return _untouched(plan)
    if plan.decision is Decision.OPTIMIZE:
        run = _TableRun(graph, plan, executor, effort, on_progress or (lambda _text: None))
        run.go(entry, windows)
    after = graph.state().get(table_key)
    return TableStats(
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
        bytes_rewritten=plan.rewrite_bytes if effort.fragments_removed else 0,
        indexes_folded=tuple(effort.folded),
        indexes_built=tuple(effort.built),
        windows=tuple(windows),
        published_version=after.version if after else None,
    )


class _TableRun:
    """One table's way through its units."""

    def __init__(
        self, graph: Graph, plan: TablePlan, executor: TaskExecutor, effort: Effort, progress: Progress
    ) -> None:
        self.graph, self.plan, self.executor = graph, plan, executor
        self.effort, self.progress = effort, progress
        self.target_rows = graph.settings.target_rows_per_fragment

    def go(self, entry: TableEntry, windows: list[UnitWindow]) -> None:
        """All units of the table; every window that committed is added to `windows`. Writes."""
        local = isinstance(self.executor, InProcessExecutor)
        if local and self.plan.data_bytes < self.graph.settings.small_table_bytes:
            self._in_one_window(entry, windows)
        else:
            self._in_two_windows(entry, windows)

    def _in_one_window(self, entry: TableEntry, windows: list[UnitWindow]) -> None:
        """Fold and rewrite in one armed window, as the engine does. Writes."""

        def effects(dataset: Dataset) -> None:
            fold(self.graph.lance, dataset, self.plan, self.effort, self.progress)
            compact_here(dataset, self.target_rows, self.effort, self.progress)

        self._unit(entry, "fold+rewrite", effects, windows)

    def _in_two_windows(self, entry: TableEntry, windows: list[UnitWindow]) -> None:
        """Unit F with its window as long as the index work, then unit R with a short one. Writes."""
        if self.plan.folds or self.plan.builds or self.plan.strip_auto_cleanup:
            entry = self._unit(entry, "fold", self._fold, windows)
        for _ in range(_REWRITE_ROUNDS):
            entry, done = self._rewrite_round(entry, windows)
            if done:
                return
        raise PublishConflict(
            f"the rewrite of {self.plan.table_key} was preempted {_REWRITE_ROUNDS} times by other writers; "
            "what was published stays good; run again when it is quieter"
        )

    def _unit(self, entry: TableEntry, unit: str, effects: Effects, windows: list[UnitWindow]) -> TableEntry:
        result = run_unit(self.graph, entry, unit=unit, effects=effects)
        windows += [result.window] if result.committed else []
        return result.entry

    def _fold(self, dataset: Dataset) -> None:
        fold(self.graph.lance, dataset, self.plan, self.effort, self.progress)

    def _rewrite_round(self, entry: TableEntry, windows: list[UnitWindow]) -> tuple[TableEntry, bool]:
        """Plan and execute without a lock, then commit what is still current. Writes."""
        pinned = self.graph.open_pinned(entry)
        tasks = plan_tasks(pinned, self.target_rows)
        if not tasks:
            return entry, True
        # Without the manifest of the version that the tasks read, neither they nor their commit go on.
        held = HeldVersion(table_path=entry.path, version=entry.version)
        reason = f"rewrite of {entry.table_key}"
        with plan_hold(self.graph.storage, held, reason=reason, ttl_seconds=_LONGEST_REWRITE_SECONDS):
            return self._rewrite(entry, pinned, tasks, windows)

    def _rewrite(
        self, entry: TableEntry, pinned: Dataset, tasks: Sequence[RewriteTask], windows: list[UnitWindow]
    ) -> tuple[TableEntry, bool]:
        results: list[str] = []
        for result in self.executor.execute(pinned, tasks):
            results.append(result)
            self.progress(f"rewrote {len(results)} of {len(tasks)} fragment groups")
        (current,) = select_entries(self.graph, self.graph.state(), (entry.table_key,))
        survivors = surviving_results(self.graph.open_pinned(current), results)
        if not survivors:
            return current, False

        def commit(dataset: Dataset) -> None:
            self.effort.add(commit_results(dataset, survivors))

        return self._unit(current, "rewrite", commit, windows), len(survivors) == len(results)


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


def _untouched(plan: TablePlan) -> TableStats:
    drift = plan.skipped is not None and plan.lance_head_version != plan.read_version
    return TableStats(
        table_key=plan.table_key,
        skipped=plan.skipped,
        manifest_version=plan.read_version if drift else None,
        lance_head_version=plan.lance_head_version if drift else None,
        pending_indexes=plan.pending_indexes,
        rows=plan.rows or None,
    )

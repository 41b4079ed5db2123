"""One table's way through its units: fold, then rewrite in rounds until nothing is left to plan."""

from __future__ import annotations

from omnigraph_ops.edges.lance_errors import LanceFailure
from omnigraph_ops.edges.lance_gateway import Dataset
from omnigraph_ops.edges.lance_tables import plan_tasks
from omnigraph_ops.errors import OpsError, PublishConflict
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.holds import HeldVersion, plan_hold
from omnigraph_ops.lease import LeaseKeeper
from omnigraph_ops.models import TablePlan, UnitWindow
from omnigraph_ops.optimize.deferred import commit_rewrites
from omnigraph_ops.optimize.executors import InProcessExecutor, TaskExecutor
from omnigraph_ops.optimize.observe import select_entries
from omnigraph_ops.optimize.plan import OptimizePolicy
from omnigraph_ops.optimize.units import Effort, Progress, compact_here, fold
from omnigraph_ops.rewrites.adopt import Round, adopt, begin
from omnigraph_ops.rewrites.claim import rewrite_lease
from omnigraph_ops.rewrites.commit import Batch, batches, ready
from omnigraph_ops.rewrites.journal import open_journals
from omnigraph_ops.rewrites.settle import abandon, end
from omnigraph_ops.throttle import ceilings_of
from omnigraph_ops.window import Effects, Guard, run_unit

_REWRITE_ROUNDS = 5
# A bound for a run on another machine that died: on this one its hold ends with the process.
_LONGEST_REWRITE_SECONDS = 86_400.0


class TableRun:
    """One table's way through its units."""

    def __init__(
        self,
        graph: Graph,
        plan: TablePlan,
        policy: OptimizePolicy,
        *,
        executor: TaskExecutor,
        effort: Effort,
        progress: Progress,
    ) -> None:
        self.graph, self.plan, self.executor = graph, plan, executor
        self.effort, self.progress = effort, progress
        self.target_rows, self.exclude, self.cut = policy.target_rows, policy.exclude, policy.cut
        self.stuck: set[str] = set()
        """Journals that could not be ended in this run."""

    def go(self, entry: TableEntry, windows: list[UnitWindow]) -> None:
        """All units of the table; every window that committed is added to `windows`. Writes."""
        settings = self.graph.settings
        # Nothing waits for its admission while a table is armed.
        at_once = isinstance(self.executor, InProcessExecutor) and not ceilings_of(settings).bound
        if at_once and self.plan.data_bytes < settings.small_table_bytes:
            # Doing all of it is cheaper than going on with a part.
            abandon(self.graph, entry.path, self.progress)
            self._in_one_window(entry, windows)
        else:
            with rewrite_lease(self.graph, entry.path) as keeper:
                self._in_two_windows(entry, windows, keeper)

    def _in_one_window(self, entry: TableEntry, windows: list[UnitWindow]) -> None:
        """Fold and rewrite in one armed window, as the engine does. Writes."""

        def effects(dataset: Dataset, guard: Guard) -> None:
            self._fold(dataset, guard)
            tasks = plan_tasks(dataset, self.target_rows, self.exclude)
            self.effort.add(compact_here(dataset, tasks, guard, self.progress, defer_index_remap=self._defer))

        self._unit(entry, "fold+rewrite", effects, windows)

    def _in_two_windows(self, entry: TableEntry, windows: list[UnitWindow], keeper: LeaseKeeper) -> None:
        """Unit F with its window as long as the index work, then unit R with a short one. Writes."""
        if self.plan.folds or self.plan.builds or self.plan.strip_auto_cleanup:
            entry = self._unit(entry, "fold", self._fold, windows)
        for _ in range(_REWRITE_ROUNDS):
            entry, done = self._rewrite_round(entry, windows, keeper)
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

    def _fold(self, dataset: Dataset, guard: Guard) -> None:
        fold(self.graph.lance, dataset, self.plan, guard, self.effort, self.progress)

    @property
    def _defer(self) -> bool:
        return self.graph.settings.defer_index_remap

    def _rewrite_round(
        self, entry: TableEntry, windows: list[UnitWindow], keeper: LeaseKeeper
    ) -> tuple[TableEntry, bool]:
        """Execute without the committer lease, commit what is still current, remove the rest. Writes."""
        turn = self._next_round(entry)
        if turn is None:
            return entry, True
        failures = self._execute(entry, turn)
        for names in batches(turn.finished, self.graph.settings.commit_batch_tasks):
            (entry,) = select_entries(self.graph, self.graph.state_of(entry.table_key), (entry.table_key,))
            batch = ready(self.graph, entry, turn.rewrite_id, names)
            if batch.results:
                entry = self._commit(entry, batch, windows, keeper)
                turn.kept.update(batch.names)
        if not end(self.graph, entry.path, turn.rewrite_id, keeper, kept=turn.kept, progress=self.progress):
            self.stuck.add(turn.rewrite_id)
        if failures:
            raise LanceFailure(
                f"{len(failures)} of {turn.groups} fragment groups of {entry.table_key} could not be rewritten, "
                f"the others are published; the first: {failures[0]}"
            )
        # An adopted journal knows nothing of what was written since it was planned.
        return entry, not turn.adopted and len(turn.kept) == turn.groups

    def _next_round(self, entry: TableEntry) -> Round | None:
        """A journal that a dead run left, else a fresh plan, else None: nothing is left to rewrite. Writes."""
        pinned = self.graph.open_pinned(entry)
        for rewrite_id in open_journals(self.graph.storage, entry.path):
            if rewrite_id not in self.stuck:
                try:
                    return adopt(self.graph, entry, pinned, rewrite_id, self.progress)
                except OpsError as error:
                    self.progress(f"rewrite {rewrite_id} cannot be resumed, its files stay: {error}")
                    self.stuck.add(rewrite_id)
        tasks = plan_tasks(pinned, self.target_rows, self.exclude, self.cut)
        return begin(self.graph, entry, tasks) if tasks else None

    def _execute(self, entry: TableEntry, turn: Round) -> list[str]:
        """Execute what is left of the round; what failed, in words. Writes data files and the journal."""
        failures: list[str] = []
        if not turn.orders:
            return failures
        # Without the manifest of the version that the tasks read they cannot go on.
        held = HeldVersion(table_path=entry.path, version=entry.version)
        reason = f"rewrite of {entry.table_key}"
        with plan_hold(self.graph.storage, held, reason=reason, ttl_seconds=_LONGEST_REWRITE_SECONDS):
            for outcome in self.executor.execute(self.graph.open_pinned(entry), turn.orders):
                if outcome.name is None:
                    failures.append(outcome.error or "no reason given")
                    continue
                turn.finished.append(outcome.name)
                self.progress(f"rewrote {len(turn.finished)} of {turn.groups} fragment groups")
        return failures

    def _commit(self, entry: TableEntry, batch: Batch, windows: list[UnitWindow], keeper: LeaseKeeper) -> TableEntry:
        """Unit R: commit these results at the version they were compared with. Writes."""

        def commit(dataset: Dataset, guard: Guard) -> None:
            # A run that lost the table may find the files of these results removed at any moment.
            keeper.assert_held()
            guard()
            self.effort.add(commit_rewrites(dataset, batch.results, defer_index_remap=self._defer))

        return self._unit(entry, "rewrite", commit, windows)

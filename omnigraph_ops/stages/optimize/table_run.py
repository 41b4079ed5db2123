"""One table's way through its units, and who does them: fold, then rewrite in rounds until nothing is left to plan."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from omnigraph_ops.coordination.holds import HeldVersion, Hold, plan_hold
from omnigraph_ops.coordination.landing import land
from omnigraph_ops.coordination.lease import LeaseKeeper, Pause
from omnigraph_ops.coordination.pace import ceilings_of
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome, open_journals, perform, rewrite_lease
from omnigraph_ops.coordination.rewrites import Batch, Round, abandon, adopt, batches, begin, end, ready
from omnigraph_ops.coordination.window import discard, refuse_missing
from omnigraph_ops.errors import OpsError, PublishConflict
from omnigraph_ops.graph.graph import Graph, select_entries
from omnigraph_ops.graph.publish import drafts_of
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import Change, ConfigRemoval, IndexChange, RewriteChange
from omnigraph_ops.lance.gateway import CommitConflict, Dataset, LanceFailure, auto_cleanup_keys
from omnigraph_ops.lance.index_entries import deleted_since, limited_kinds
from omnigraph_ops.lance.rewrites import current, metrics_of, rebased
from omnigraph_ops.lance.tables import (
    Exclude,
    FragmentFacts,
    IndexFacts,
    RewriteTask,
    execute_task,
    fragment_facts,
)
from omnigraph_ops.models.optimize import Executor, TablePlan
from omnigraph_ops.progress import Progress, Stopped
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.optimize.index_work import IndexWriter, fold, prepare_indexes
from omnigraph_ops.stages.optimize.observe import tasks_under
from omnigraph_ops.stages.optimize.plan import OptimizePolicy
from omnigraph_ops.stages.optimize.units import (
    Effects,
    Effort,
    Guard,
    Room,
    commit_rewrites,
    emptied,
    fold_emptied,
    noted,
    readable,
    run_plain_unit,
    written_indexes,
)
from omnigraph_ops.storage.store import Storage

_REWRITE_ROUNDS = 5
# A bound for a run on another machine that died: on this one its hold ends with the process.
_LONGEST_REWRITE_SECONDS = 86_400.0


class TaskExecutor(Protocol):
    """Executes compaction tasks of one dataset version, and index work on a clone of it; makes no version itself."""

    kind: Executor

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        """Yield one outcome per order, in any order. Writes data files and the journal of the rewrite."""

    def index(self, graph: Graph, clone: Dataset, plan: TablePlan, effort: Effort, progress: Progress) -> None:
        """Fold and build the indexes of a plan. Writes index files in the clone, and commits to it."""


class InProcessExecutor:
    """One task after the other; Lance itself uses all cores within a task."""

    kind = Executor.IN_PROCESS

    def __init__(self, storage: Storage | None = None, pause: Pause | None = None) -> None:
        self._storage, self._pause = storage, pause
        """The graph's store as it was opened, None: as this process reaches it; and how its run waits."""

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        for order in orders:
            try:
                yield perform(order, dataset, storage=self._storage, pause=self._pause)
            except OpsError as error:
                # The other groups are none the worse for it, and are committed.
                yield TaskOutcome(error=str(error))

    def index(self, graph: Graph, clone: Dataset, plan: TablePlan, effort: Effort, progress: Progress) -> None:
        fold(IndexWriter.of(graph), clone, plan, lambda: None, effort, progress)


@dataclass(slots=True)
class TableRun:
    """One table's way through its units."""

    graph: Graph
    plan: TablePlan
    policy: OptimizePolicy
    executor: TaskExecutor
    pinned: Dataset
    """The table at the version that the plan is about."""
    effort: Effort
    progress: Progress
    room: Room | None = None
    deleted: dict[int, int] | None = None
    """Deleted rows by fragment as they were planned with; None where no writer can come between."""
    stuck: set[str] = field(default_factory=set)
    """Journals that could not be ended in this run."""
    failures: list[OpsError] = field(default_factory=list)
    """Of indexes: a rewrite does not wait for them."""

    def go(self, entry: TableEntry) -> None:
        """All units of the table. Writes."""
        try:
            self._all_units(entry)
        except Stopped:
            if not self.failures:  # nobody else tells of them
                raise
        if self.failures:
            raise self.failures[0]

    def _all_units(self, entry: TableEntry) -> None:
        # Nothing waits for its admission where no journal says what was done.
        at_once = isinstance(self.executor, InProcessExecutor) and not ceilings_of(self.graph.settings).bound
        if at_once and self.plan.data_bytes < self.graph.settings.small_table_bytes:
            # Doing all of it is cheaper than going on with a part.
            abandon(self.graph, entry.path, self.progress)
            if self._plain:
                self._plain_at_once(entry)
            else:
                with self._hold(entry) as hold:
                    self._at_once(entry, hold)
        else:
            self._remember()
            with rewrite_lease(self.graph, entry.path) as keeper:
                with self._hold(entry) as hold:
                    entry = self._fold(entry, hold)
                if self._has_room(entry):
                    entry = self._in_rounds(entry, keeper)
                self._fold_emptied(entry)

    def _remember(self) -> None:
        """Note which rows are deleted at the version that was planned with. Reads."""
        if self.pinned.has_stable_row_ids:
            self.deleted = {f.fragment_id: f.deleted_rows for f in fragment_facts(self.pinned)}

    def _exclude(self, fragments: Sequence[FragmentFacts], indexes: Sequence[IndexFacts]) -> frozenset[int]:
        """Which fragments this run leaves alone, by id. Pure."""
        if self.plan.leaves_fragments:
            return frozenset(f.fragment_id for f in fragments)
        left = self.policy.left_alone(fragments, indexes) if self.policy.exclude is not None else frozenset()
        kinds = limited_kinds(texts=self.graph.format.limits_text_search)
        # Nobody took the entries of rows that were deleted since out of the indexes.
        return left | (deleted_since(self.deleted, fragments, indexes, kinds) if self.deleted is not None else set())

    @property
    def exclude(self) -> Exclude | None:
        """`_exclude` for the edge; None when nothing ever is left, which saves a look at every fragment. Pure."""
        bound = self.plan.leaves_fragments or self.deleted is not None or self.policy.exclude is not None
        return self._exclude if bound else None

    def _tasks(self, dataset: Dataset) -> tuple[RewriteTask, ...]:
        """What is to be rewritten at this version. Reads."""
        return tasks_under(dataset, self.policy, self.exclude)

    def _has_room(self, entry: TableEntry) -> bool:
        """Whether the rewrite may follow the indexes, which are measured as they were published. Reads."""
        if self.room is None or not self.plan.rewrite_bytes:
            return True
        self.effort.rewrite_deferred = not self.room(written_indexes(self.graph.open_pinned(entry), self.effort))
        if self.effort.rewrite_deferred:
            self.progress("the budget is spent, the rewrite waits for another run")
        return not self.effort.rewrite_deferred

    @property
    def _plain(self) -> bool:
        return not self.graph.format.publishes

    def _hold(self, entry: TableEntry) -> contextlib.AbstractContextManager[Hold]:
        """Hold the version that is read, until the last commit: it also tells that the new files are not litter."""
        held = HeldVersion(table_path=entry.path, version=entry.version)
        reason = f"rewrite of {entry.table_key}"
        return plan_hold(self.graph.storage, held, reason=reason, ttl_seconds=_LONGEST_REWRITE_SECONDS)

    def _at_once(self, entry: TableEntry, hold: Hold) -> None:
        """Both units of a small table in one window. Writes."""
        done, rewrite = Effort(), None
        changes, error = self._index_changes(entry, done, hold)
        try:
            if not self.graph.blobs_kept_for(entry.table_key) and (error is None or not self._purges):
                rewrite = self._rewrite_after(entry, changes)
        except CommitConflict:
            discard(self.graph, entry, changes)
            raise
        except OpsError as failure:
            error = failure  # the indexes are done and wait for nothing
        changes += [rewrite] if rewrite is not None else []
        if changes:
            unit = "+".join(name for name, there in (("fold", changes != [rewrite]), ("rewrite", rewrite)) if there)
            self._land(entry, changes, unit, done)
            self.effort.add(metrics_of(rewrite.results if rewrite is not None else ()))
        if error is not None:
            raise error

    def _index_changes(self, entry: TableEntry, done: Effort, hold: Hold) -> tuple[list[Change], OpsError | None]:
        """The prepared changes of unit F, and what ended its work early. Writes index files; makes no version."""
        changes: list[Change] = []
        keys = auto_cleanup_keys(self.pinned) if self.plan.strip_auto_cleanup else ()
        if keys:
            # With those keys any commit of Lance may collect versions that the graph manifest still pins.
            changes.append(ConfigRemoval(keys=keys))
        if not self.plan.folds and not self.plan.builds:
            return changes, None
        work = self.executor.index
        change, error = prepare_indexes(
            self.graph, entry, self.pinned, hold, lambda clone: work(self.graph, clone, self.plan, done, self.progress)
        )
        changes += [change] if change is not None else []
        return changes, error

    def _rewrite_after(self, entry: TableEntry, changes: Sequence[Change]) -> RewriteChange | None:
        """Unit R as it is to be done once these changes are committed. Writes data files."""
        with drafts_of(self.graph, entry, self.pinned, changes, mark="") as drafts:
            planned = drafts[-1].dataset if drafts else self.pinned
            tasks = self._tasks(planned)
        if not tasks:
            return None
        self.progress(f"rewriting {count(sum(len(t.fragment_ids) for t in tasks), 'fragment')}")
        now, results = current(self.pinned), list[str]()
        try:
            for task in tasks:
                results.append(execute_task(self.pinned, rebased(task.payload, now)))
        except OpsError:
            discard(self.graph, entry, [RewriteChange(results=tuple(results))])
            raise
        kept = readable(self.graph, entry, self.pinned, results, effort=self.effort, progress=self.progress)
        return RewriteChange(results=kept) if kept else None

    def _fold(self, entry: TableEntry, hold: Hold) -> TableEntry:
        """Unit F by itself; the table as published afterwards. Writes."""
        done = Effort()
        if self._plain:
            entry = self._plain_fold(entry, done)
            self.effort.add_indexes(done)
        else:
            changes, error = self._index_changes(entry, done, hold)
            self.failures += [error] if error is not None else []
            entry = self._land(entry, changes, "fold", done) if changes else entry
        if self.failures and self._purges:
            raise self.failures[0]
        return entry

    def _plain_fold(self, entry: TableEntry, done: Effort) -> TableEntry:
        def effects(dataset: Dataset, guard: Guard) -> None:
            with noted(self.failures):
                fold(IndexWriter.of(self.graph), dataset, self.plan, guard, done, self.progress)

        return self._plain_unit(entry, "fold", effects) if self.plan.folds or self.plan.builds else entry

    def _fold_emptied(self, entry: TableEntry) -> None:
        """Fold what Lance leaves without any fragment in a rewrite, once: it makes other results unfit. Writes."""
        due = self._plain and self.effort.fragments_removed and not self.failures
        if due and emptied(self.graph.open_pinned(entry)):
            self._plain_unit(entry, "fold", partial(fold_emptied, failures=self.failures))

    @property
    def _purges(self) -> bool:
        """Whether entries have to go before a rewrite: without its deletion files they would be found. Pure."""
        return any(fold.purge for fold in self.plan.folds)

    def _land(self, entry: TableEntry, changes: Sequence[Change], unit: str, done: Effort) -> TableEntry:
        """Land changes that no journal names, with the indexes of an effort; the table as published then. Writes."""
        result = land(self.graph, entry, changes, unit=unit, marks=self.effort.marks)
        after = self.effort.landed(result)
        if any(isinstance(change, IndexChange) for change in changes[: result.landed]):
            self.effort.add_indexes(done)
        if result.landed < len(changes):
            raise CommitConflict(f"another writer committed to {entry.table_key} between two commits; no row is lost")
        return after

    def _plain_at_once(self, entry: TableEntry) -> None:
        """Both units of a small plain dataset. Writes."""
        self._remember()
        with self._hold(entry) as hold:
            entry = self._fold(entry, hold)
        pinned = self.graph.open_pinned(entry)
        if tasks := self._tasks(pinned):
            self.progress(f"rewriting {count(sum(len(t.fragment_ids) for t in tasks), 'fragment')}")
            with self._hold(entry):
                results = [execute_task(pinned, task.payload) for task in tasks]
                if kept := readable(self.graph, entry, pinned, results, effort=self.effort, progress=self.progress):
                    entry = self._plain_commit(entry, kept)
        self._fold_emptied(entry)

    def _in_rounds(self, entry: TableEntry, keeper: LeaseKeeper) -> TableEntry:
        """Unit R in rounds whose results are journalled, until nothing is left; the table as published then. Writes."""
        for _ in range(_REWRITE_ROUNDS):
            entry, done = self._rewrite_round(entry, keeper)
            if done:
                return entry
        raise PublishConflict(
            f"the rewrite of {self.plan.table_key} was preempted {_REWRITE_ROUNDS} times by other writers; "
            "what was published stays good; run again when it is quieter"
        )

    def _plain_unit(self, entry: TableEntry, unit: str, effects: Effects) -> TableEntry:
        return self.effort.landed(run_plain_unit(self.graph, entry, unit=unit, effects=effects))

    def _plain_commit(self, entry: TableEntry, results: Sequence[str]) -> TableEntry:
        def effects(dataset: Dataset, guard: Guard) -> None:
            change = RewriteChange(results=tuple(results))
            refuse_missing(self.graph, entry, change)
            # The version was opened by its number, which a table that was made anew has too.
            change.refuse_stale(dataset)
            self.effort.add(commit_rewrites(self.graph, entry, dataset, results, guard=guard, failures=self.failures))

        return self._plain_unit(entry, "rewrite", effects)

    def _rewrite_round(self, entry: TableEntry, keeper: LeaseKeeper) -> tuple[TableEntry, bool]:
        """Execute without the committer lease, commit what is still current, remove the rest. Writes."""
        turn = None if self.graph.blobs_kept_for(entry.table_key) else self._next_round(entry)
        if turn is None:
            return entry, True
        unfit: CommitConflict | None = None
        # Without the manifest of the version that the tasks read they cannot go on.
        with self._hold(entry):
            failures = self._execute(entry, turn)
            try:
                entry = self._commit_batches(entry, turn, keeper)
            except CommitConflict as error:
                if not self._plain:
                    raise
                # Where row ids are not stable, an index that came since makes results unfit for good.
                unfit = error
        if not end(self.graph, entry.path, turn.rewrite_id, keeper, kept=turn.kept, progress=self.progress):
            self.stuck.add(turn.rewrite_id)
        if unfit is not None:
            raise unfit
        if failures:
            raise LanceFailure(
                f"{len(failures):,} of {count(turn.groups, 'fragment group')} of {entry.table_key} could not be "
                f"rewritten, the others are published; the first: {failures[0]}"
            )
        # An adopted journal knows nothing of what was written since it was planned.
        return entry, not turn.adopted and len(turn.kept) + turn.left == turn.groups

    def _commit_batches(self, entry: TableEntry, turn: Round, keeper: LeaseKeeper) -> TableEntry:
        """Commit what is finished and still current; the table as published afterwards. Writes."""
        for names in batches(turn.finished, self.graph.settings.commit_batch_tasks):
            (entry,) = select_entries(self.graph, self.graph.state_of(entry.table_key), (entry.table_key,))
            batch = ready(self.graph, entry, turn.rewrite_id, names)
            turn.left += self.effort.leave(batch.swollen, self.progress)
            if batch.results:
                entry = self._commit(entry, batch, keeper)
                turn.kept.update(batch.names)
        return entry

    def _next_round(self, entry: TableEntry) -> Round | None:
        """A journal that a dead run left, else a fresh plan, else None: nothing is left to rewrite. Writes."""
        pinned = self.graph.open_pinned(entry)
        for rewrite_id in open_journals(self.graph.storage, entry.path):
            if rewrite_id not in self.stuck:
                self.graph.run.check()
                try:
                    return adopt(self.graph, entry, pinned, rewrite_id, self.progress)
                except OpsError as error:
                    self.progress(f"rewrite {rewrite_id} cannot be resumed, its files stay: {error}")
                    self.stuck.add(rewrite_id)
        if not (tasks := self._tasks(pinned)):
            return None
        self.graph.run.check()
        return begin(self.graph, entry, tasks)

    def _execute(self, entry: TableEntry, turn: Round) -> list[str]:
        """Execute what is left of the round; what failed, in words. Writes data files and the journal."""
        failures: list[str] = []
        if not turn.orders:
            return failures
        # What is rewritten is committed when the run stops, the rest is planned again by the next run.
        with contextlib.suppress(Stopped):
            for outcome in self.executor.execute(self.graph.open_pinned(entry), turn.orders):
                if outcome.name is None:
                    failures.append(outcome.error or "no reason given")
                    continue
                turn.finished.append(outcome.name)
                self.progress(f"rewrote {len(turn.finished):,} of {count(turn.groups, 'fragment group')}")
                self.graph.run.check()
        return failures

    def _commit(self, entry: TableEntry, batch: Batch, keeper: LeaseKeeper) -> TableEntry:
        """Commit these results at the version they were compared with. Writes."""
        # A run that lost the table may find the files of these results removed at any moment.
        keeper.assert_held()
        if self._plain:
            return self._plain_commit(entry, batch.results)
        change, marks = RewriteChange(results=batch.results), self.effort.marks
        result = land(self.graph, entry, [change], unit="rewrite", marks=marks, journalled=True)
        self.effort.add(metrics_of(batch.results))
        return self.effort.landed(result)

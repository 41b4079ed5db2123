"""Delete expired rows of a graph, through the engine and on a branch of their own.

It deletes there, we count, it merges. The branch is the snapshot that is judged: nobody else writes there, so what was
counted is what goes. The merge is the compare-and-swap: a row that somebody updated since, or a node that got a new
edge, is a conflict, and the attempt starts over from what is true then. Readers see one publish, with all of a table or
nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tenacity import (
    RetryCallState,
    RetryError,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_incrementing,
    wait_random,
)

from omnigraph_ops.coordination.guards import refuse_pending
from omnigraph_ops.engine import (
    EngineCli,
    EngineConflict,
    EngineFailure,
    EngineRecovery,
    EngineRowConflict,
    EngineTimeout,
)
from omnigraph_ops.errors import GraphFrozen, OpsError, PublishConflict, RecoveryPending, StalePlan
from omnigraph_ops.graph.graph import Graph, spec_of
from omnigraph_ops.graph.schema import read_type_facts
from omnigraph_ops.graph.sidecars import engine_root
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.rows import Keys, Rows, among, besides, ends_besides, ids_left
from omnigraph_ops.models.rows import EdgeRows, RowRetentionPlan, TableRowPlan, TableRowStats
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.expire_rows.branches import ExpiryBranches
from omnigraph_ops.stages.expire_rows.plan import (
    Aged,
    EdgeEnds,
    branch_lifetime,
    dataset_in,
    edges_at,
    edges_of,
    entry_in,
    rows_in,
    state_of,
    unwritable,
)
from omnigraph_ops.stages.expire_rows.statements import Deletion, deletion_of, edge_deletes
from omnigraph_ops.stages.recovery.recover import recover

ATTEMPTS = 5
_PAUSE_SECONDS = 0.5
_POLL_SECONDS = 0.2
_DANGLING = (
    "edges of deleted nodes are left ({edges}): another engine process put them back or added them during the merge; "
    "load the nodes again, or delete the edges with the engine, by `from` and `to`, while nobody else writes"
)


def again_after(*errors: type[Exception], graph: Graph, pause: float) -> Retrying:
    """A bounded number of attempts, with longer and longer pauses; a run that is asked to stop ends them. Pure."""
    return Retrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_incrementing(pause, pause) + wait_random(0, pause),
        sleep=graph.run.pause,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What expires on a fresh branch, before anything was deleted there."""

    entry: TableEntry
    rows: dict[str, int]
    """Of every table."""
    ids: Keys
    named: Rows
    """What the engine is told of each of them."""
    edges: dict[str, Keys]

    def rows_after(self, table_key: str) -> dict[str, int]:
        """How many rows every table has when precisely these are gone. Pure."""
        gone = {table_key: len(self.ids), **{key: len(edges) for key, edges in self.edges.items()}}
        return {key: rows - gone.get(key, 0) for key, rows in self.rows.items()}

    def takes(self) -> tuple[int, tuple[EdgeRows, ...]]:
        """How many rows and edges a merge takes. Pure."""
        return len(self.ids), _counts({key: len(edges) for key, edges in self.edges.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringTable:
    """One table of a plan, with everything an attempt needs."""

    graph: Graph
    plan: RowRetentionPlan
    table: TableRowPlan
    deletion: Deletion
    ends: tuple[EdgeEnds, ...]
    branches: ExpiryBranches
    merging: Callable[[int, tuple[EdgeRows, ...]], None]
    """Called right before a merge, with how many rows and edges it takes."""

    def expire(self) -> TableRowStats:
        """Attempt until nothing is below the cut, a bounded number of times. Destroys rows.

        Raises:
            StalePlan: more rows are below the cut than the plan allows.
            GraphFrozen: somebody froze the graph, or a table of it; nothing of this attempt was merged.
            PublishConflict: other writers were faster each time; what earlier attempts did not merge stays.
            RecoveryPending: something pending did not go away in time.
            EngineFailure: the engine refused; nothing of this attempt was merged.
        """
        again = again_after(EngineConflict, EngineRecovery, EngineTimeout, graph=self.graph, pause=_PAUSE_SECONDS)
        again.after = self._say_why
        try:
            stats = again(self._attempt)
        except RetryError as error:
            stats = TableRowStats(table_key=self.table.table_key)
            if not self._nothing_left():
                raise PublishConflict(
                    f"{self.table.table_key}: {ATTEMPTS} attempts failed, the last one because "
                    f"{error.last_attempt.exception()}; no row of them was deleted; apply the plan again"
                ) from None
        finally:
            with contextlib.suppress(OpsError):
                self._refuse_unwritable()
        aged, attempts = self._aged(self.plan.branch), again.statistics["attempt_number"]
        return replace(stats, attempts=attempts, rows_left=aged.rows(), manifest_version=aged.entry.version)

    def _say_why(self, attempt: RetryCallState) -> None:
        problem = attempt.outcome.exception() if attempt.outcome is not None else None
        self.branches.progress(f"{self.table.table_key}: attempt {attempt.attempt_number} of {ATTEMPTS}: {problem}")

    def _nothing_left(self) -> bool:
        self._wait_until_ready()
        return self._approved(self.plan.branch).refuse_over_bounds(self.plan, self.table) == 0

    def _approved(self, branch: str | None) -> Aged:
        """The table as that branch publishes it; `StalePlan` where table or branch is not the planned one. Reads."""
        aged = self._aged(branch)
        aged.refuse_another(self.graph, self.table)
        if branch_lifetime(self.graph, self.plan.branch) != self.plan.branch_lifetime:
            raise StalePlan(
                f"branch {self.plan.branch!r} was deleted and made anew since it was looked at; nothing was deleted; "
                "plan again"
            )
        return aged

    def _aged(self, branch: str | None) -> Aged:
        """The table as that branch publishes it now. Reads."""
        return Aged.of(self.graph, state_of(self.graph, branch), self.table)

    def _attempt(self) -> TableRowStats:
        """Branch, delete, prove, merge; the branch goes in every outcome. Destroys rows."""
        if self._nothing_left():
            return TableRowStats(table_key=self.table.table_key)
        self._refuse_unwritable()
        with self.branches.branch(self.plan.branch) as name:
            base = self._base(name)
            self.branches.progress(f"{self.table.table_key}: {count(len(base.ids), 'row')} to delete on branch {name}")
            self.branches.tell(name, self.deletion.steps(self.table.cut, base.named, name), len(base.ids))
            if (wrong := self._wrong_on(name, base)) is not None:
                raise EngineFailure(wrong)
            doubt = self._merged(name, base)
        if doubt is not None:
            with contextlib.suppress(GraphFrozen):
                self._wait_until_ready()
        return self._counted(base, doubt)

    def _merged(self, name: str, base: _Base) -> EngineFailure | None:
        """Merge until no other writer is faster; why it is in doubt whether it landed, or None. Destroys rows.

        What others publish meanwhile leaves the branch as it is: only where they changed its rows is it of no use. A
        merge that wants something recovered may have left a sidecar of its own, which an engine settles that opens the
        graph, as it does to delete the branch.
        """
        for _ in range(ATTEMPTS):
            doubt = self._merge(name, base)
            if not isinstance(doubt, EngineConflict) or isinstance(doubt, EngineRowConflict):
                break
            self.branches.progress(f"{self.table.table_key}: merges again: {doubt}")
            try:
                self._wait_until_ready()
            except GraphFrozen:
                break
            if len(among(self._aged(self.plan.branch).ids(), base.ids)) < len(base.ids):
                break  # it landed, or somebody renewed a row
            self._refuse_unwritable()
            if (wrong := self._wrong_on(name, base)) is not None:
                raise EngineConflict(f"{wrong}; another process undid what was deleted there")
        return doubt

    def _merge(self, name: str, base: _Base) -> EngineFailure | None:
        """Merge, with what it takes written down before; why it is in doubt whether it landed, or None. Destroys."""
        with self.branches.turn() as keeper:
            self._approved(self.plan.branch)
            keeper.assert_held()
            self.merging(*base.takes())
            try:
                self.branches.merge(name, self.plan.branch)
            except (EngineConflict, EngineRecovery, EngineTimeout) as error:
                # Another engine that opened the graph may have taken the merge for dead and finished it.
                if isinstance(error, EngineConflict):
                    self.merging(0, ())
                return error
        return None

    def _refuse_unwritable(self) -> None:
        """Raise `EngineConflict` where the engine would refuse a merge, `EngineFailure` where it would do harm. Writes.

        What others lost to a merge of ours is recovered first: until then the engine refuses every write to that table.
        """
        look = partial(unwritable, self.graph, table_keys=(self.table.table_key, *(e.table_key for e in self.ends)))
        problem = look(state_of(self.graph, self.plan.branch))
        if problem is not None and self.plan.branch is not None:
            raise EngineFailure(f"{problem}; nothing was deleted")
        if problem is not None:
            recover(self.graph)
            problem = look(state_of(self.graph, None))
        if problem is not None:
            raise EngineConflict(problem)

    def _base(self, name: str) -> _Base:
        """What is below the cut on the fresh branch; bounds count here, too. Reads."""
        aged = self._approved(name)
        aged.refuse_over_bounds(self.plan, self.table)
        found = aged.columns(*dict.fromkeys(("id", *self.deletion.columns)))
        ids = found.column("id").combine_chunks()
        return _Base(
            entry=aged.entry,
            rows=rows_in(self.graph, aged.state),
            ids=ids,
            named=found.select(self.deletion.columns),
            edges=edges_at(self.graph, aged.state, self.ends, ids),
        )

    def _wrong_on(self, name: str, base: _Base) -> str | None:
        """What the branch lacks or has besides what was to go, None where it is right. Reads."""
        aged = self._aged(name)
        left = aged.rows()
        dangling = sum(len(e) for e in edges_at(self.graph, aged.state, self.ends, base.ids).values())
        found, wanted = rows_in(self.graph, aged.state), base.rows_after(self.table.table_key)
        wrong = [
            f"{key} {found.get(key, 0):,} instead of {wanted[key]:,}" for key in wanted if found.get(key) != wanted[key]
        ]
        if not (wrong or left or dangling):
            return None
        return (
            f"{self.table.table_key}: the engine deleted something else on its branch (rows left: "
            f"{', '.join(wrong) or 'as many as should be'}), {left:,} expired rows and {dangling:,} of their edges "
            "are left there; nothing was merged"
        )

    def _counted(self, base: _Base, doubt: EngineFailure | None) -> TableRowStats:
        """What a reader of the target does not see any more. Destroys the edges that a merge should have taken.

        Before 0.9.0 another engine process that opens the graph during a merge may undo a part of it.

        Raises:
            EngineConflict, or `doubt`: expired rows are still there.
        """
        aged = self._aged(self.plan.branch)
        if len(among(aged.ids(), base.ids)):
            self.merging(0, ())
            raise doubt or EngineConflict(f"the merge of {self.table.table_key} is not in effect")
        gone = besides(base.ids, ids_left(aged.dataset, base.ids))
        renewed, dangling = aged.lost_renewals(self.graph, base.entry, gone), self._dangling(gone)
        if dangling and renewed is None:  # who loads renewed rows again wants their edges
            self._finish_merge(base, gone)
            dangling = self._dangling(gone)
        state = state_of(self.graph, self.plan.branch)
        left = {key: len(ids_left(dataset_in(self.graph, state, key), ids)) for key, ids in base.edges.items()}
        return TableRowStats(
            table_key=self.table.table_key,
            rows_removed=len(gone),
            edges=_counts({key: len(ids) - left[key] for key, ids in base.edges.items()}),
            error="; ".join(filter(None, (renewed, dangling))) or None,
        )

    def _dangling(self, gone: Keys) -> str | None:
        """Which edges are left at nodes that are gone, None where there are none. Reads."""
        aged = self._aged(self.plan.branch)
        nodes = besides(gone, ids_left(aged.dataset, gone))
        left = edges_at(self.graph, aged.state, self.ends, nodes)
        edges = ", ".join(f"{len(ids):,} of {key}" for key, ids in left.items() if len(ids))
        return _DANGLING.format(edges=edges) if edges else None

    def _finish_merge(self, base: _Base, gone: Keys) -> None:
        """Delete what the merge was to take of the edges of nodes that are gone, as far as it can be done. Destroys."""
        again = again_after(EngineConflict, EngineRecovery, EngineTimeout, graph=self.graph, pause=_PAUSE_SECONDS)
        with contextlib.suppress(RetryError, OpsError):
            again(self._delete_put_back, base, gone)

    def _finishable(self, aged: Aged, base: _Base, gone: Keys) -> Keys:
        """Those of the nodes that nobody made anew, and that have no edge but what the merge was to take. Reads."""
        nodes = besides(gone, ids_left(aged.dataset, gone))
        for end in self.ends:
            edges = dataset_in(self.graph, aged.state, end.table_key)
            nodes = besides(nodes, ends_besides(edges, end.columns, nodes, base.edges[end.table_key]))
        return nodes

    def _delete_put_back(self, base: _Base, gone: Keys) -> None:
        """As an attempt, of the edges that another process put back. Destroys edges.

        Raises:
            EngineFailure: the engine refused, or deleted something else; nothing was merged.
        """
        target, aged = self.plan.branch, self._aged(self.plan.branch)
        left = edges_at(self.graph, aged.state, self.ends, self._finishable(aged, base, gone))
        if not any(map(len, left.values())):
            return
        self._wait_until_ready()
        self._refuse_unwritable()
        with self.branches.branch(target) as name:
            aged = self._aged(name)
            nodes = self._finishable(aged, base, gone)
            wanted, left = rows_in(self.graph, aged.state), edges_at(self.graph, aged.state, self.ends, nodes)
            wanted |= {key: wanted[key] - len(ids) for key, ids in left.items()}
            for key, column in ((end.table_key, column) for end in self.ends for column in end.columns):
                # Read anew for each column: 0.7.2 commits a delete that matches nothing, and does not publish it.
                at = ids_left(dataset_in(self.graph, state_of(self.graph, name), key), nodes, column).unique()
                self.branches.tell(name, edge_deletes(key, column, at), len(at))
            if rows_in(self.graph, state_of(self.graph, name)) != wanted:
                raise EngineFailure("the engine deleted other edges than those that were left; nothing was merged")
            with self.branches.turn():
                self.merging(*base.takes())
                self.branches.merge(name, target)

    def _wait_until_ready(self) -> None:
        """Let writers at work disarm, and finish what may be finished, for as long as a committer waits. Writes."""
        seconds, said = self.graph.settings.lease_wait_seconds, ""
        deadline = time.monotonic() + seconds
        while True:
            self.branches.refuse_frozen()
            try:
                return refuse_pending(self.graph)
            except RecoveryPending as pending:
                if time.monotonic() >= deadline:
                    raise
                why = str(pending)
            if why != said:
                self.branches.progress(f"{self.table.table_key}: waits for {seconds:g} s at most: {why}")
                said = why
            recover(self.graph)
            self.graph.run.pause(_POLL_SECONDS)


def _counts(edges: Mapping[str, int]) -> tuple[EdgeRows, ...]:
    return tuple(EdgeRows(table_key=key, rows=rows) for key, rows in sorted(edges.items()))


def expiring_table(
    graph: Graph,
    engine: EngineCli,
    plan: RowRetentionPlan,
    table: TableRowPlan,
    *,
    progress: Progress,
    merging: Callable[[int, tuple[EdgeRows, ...]], None],
) -> ExpiringTable:
    """A table of a plan, ready to be carried out by this engine; `InvalidInput` when its language cannot. Reads."""
    entry = entry_in(graph, state_of(graph, plan.branch), table.table_key)
    facts = read_type_facts(graph.storage)
    ends = edges_of(facts, table.table_key)
    deletion = deletion_of(
        spec_of(graph, entry),
        facts[table.table_key],
        table.policy.property,
        has_edges=bool(ends),
        release=engine.release,
    )
    branches = ExpiryBranches(
        graph=graph, engine=engine, root=engine_root(graph, entry), table_key=table.table_key, progress=progress
    )
    return ExpiringTable(
        graph=graph,
        plan=plan,
        table=table,
        deletion=deletion,
        ends=ends,
        branches=branches,
        merging=merging,
    )

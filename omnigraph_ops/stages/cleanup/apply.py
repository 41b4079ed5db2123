"""Apply a cleanup plan: what it listed, less whatever became protected since, and nothing else."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.environment import refuse_wrong_clock
from omnigraph_ops.coordination.fence import INTERNAL_COMPACTION
from omnigraph_ops.coordination.freezes import refuse_frozen, sweep_ended
from omnigraph_ops.coordination.graph_view import look
from omnigraph_ops.coordination.guards import looks, refuse_lasting, refuse_pending
from omnigraph_ops.coordination.holds import announced
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.coordination.sealed import verify
from omnigraph_ops.coordination.shared_turn import shared_turn
from omnigraph_ops.errors import (
    RIGHTS,
    CorruptGraph,
    GraphFrozen,
    OpsError,
    StalePlan,
    StorageError,
    TableGone,
    UnknownTable,
)
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import INTERNAL_DATASETS
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import BranchRef, CommitConflict, Dataset
from omnigraph_ops.lance.versions import explain_removal, remove_versions
from omnigraph_ops.models.cleanup import (
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    OrphanedFork,
    PlannedFile,
    TableCleanupPlan,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes.run_journal import moved
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, Meter, Progress, Stopped
from omnigraph_ops.quantities import count, human_bytes
from omnigraph_ops.stages.cleanup.internal import TOO_LATE, InternalTables, Tables, internal_entry
from omnigraph_ops.stages.cleanup.plan import fork_files, is_orphaned, why_kept
from omnigraph_ops.stages.cleanup.policy import LiveTables, lost_forks, removable

_LOG = logging.getLogger(__name__)
_SHOWN = 5


def cleanup_all(graph: Graph, plan: CleanupPlan, *, progress: Progress = SILENT) -> CleanupReport:
    """Reclaim orphaned forks, then old versions of every table; faults stay in their table's row. Destroys.

    A run that is asked to stop reports the tables that it did by then.

    Raises:
        StalePlan: the plan was altered, expired or is another graph's; nothing was deleted.
        RecoveryPending: something is pending; nothing was deleted.
        ClockWrong: this host and the store disagree about the time; nothing was deleted.
    """
    _verify(graph, plan)
    sweep_ended(graph)
    refuse_lasting(graph)
    forks = _remove_forks(graph, plan)
    stats = dict[str, CleanupStats]()
    meter = Meter(progress, "removing", sum(t.estimated_bytes for t in plan.tables), "bytes")

    def one(table: TableCleanupPlan) -> None:
        try:
            graph.run.check()
            done = _isolated(graph, plan, table)
        except Stopped:
            return
        stats[table.table_key] = done
        removed = f"{count(done.old_versions_removed, 'version')}, {human_bytes(done.bytes_removed)} removed"
        progress(f"{table.table_key}: {done.error or done.kept or removed}")
        meter.add(table.estimated_bytes if done.old_versions_removed else 0)

    in_parallel(one, [t for t in plan.tables if not _is_internal(t)], workers=side_by_side(graph.settings))
    if any(done.old_versions_removed for done in stats.values()):
        # Each writes down what it is about to remove. On a full disk the others have made room for that.
        again = [t for t in plan.tables if t.table_key in stats and stats[t.table_key].found_no_space]
        in_parallel(one, again, workers=1)
    in_parallel(one, [t for t in plan.tables if _is_internal(t)], workers=1)
    ordered = [stats[table.table_key] for table in plan.tables if table.table_key in stats]
    return CleanupReport.of(graph.uri, plan.policy, ordered, forks)


def cleanup_table(graph: Graph, plan: CleanupPlan, table_key: str) -> CleanupStats:
    """Remove the planned versions of one table that are still unprotected. Destroys.

    Raises:
        StalePlan: the plan was altered, expired or is another graph's, the table is not what it was, or
            more files would go than were approved; nothing was deleted.
        RecoveryPending: something is pending; nothing was deleted.
        ClockWrong: this host and the store disagree about the time; nothing was deleted.
    """
    _verify(graph, plan)
    table = next((t for t in plan.tables if t.table_key == table_key), None)
    if table is None:
        raise UnknownTable(f"the cleanup plan has no table {table_key!r}; nothing was deleted")
    stats, failure = _cleanup_table(graph, plan, table)
    if failure is not None:
        raise failure
    return stats


def remove_orphaned_forks(graph: Graph, plan: CleanupPlan) -> tuple[OrphanedFork, ...]:
    """Delete the planned forks that are still orphans, children first. Destroys.

    Returns those removed, and with their `error` those that could not be: a fault stays with its fork.
    """
    _verify(graph, plan)
    return _remove_forks(graph, plan)


def _verify(graph: Graph, plan: CleanupPlan) -> None:
    verify(plan, uri=graph.uri, consequence="nothing was deleted")
    # Whatever the policy: holds and freezes end by the clock.
    refuse_wrong_clock(graph.storage, "nothing was deleted")


def _remove_forks(graph: Graph, plan: CleanupPlan) -> tuple[OrphanedFork, ...]:
    outcomes: list[OrphanedFork] = []
    with contextlib.suppress(Stopped):
        for fork in plan.orphaned_forks:
            graph.run.check()
            try:
                refuse_lasting(graph, table_key=fork.table_key)
            except GraphFrozen as error:  # it stays, as one that is no orphan any more
                _LOG.warning("fork %s of %s is kept: %s", fork.branch, fork.table_key, error)
                continue
            try:
                removed = _remove_fork(graph, plan, fork)
            except OpsError as error:
                outcomes.append(replace(fork, error=str(error)))
                continue
            outcomes += [fork] if removed else []
    return tuple(outcomes)


def _remove_fork(graph: Graph, plan: CleanupPlan, fork: OrphanedFork) -> bool:
    removed = False
    try:
        with (
            committer_turn(graph, f"remove fork {fork.branch} of {fork.table_key}") as keeper,
            announced(graph.storage, fork.table_path, branch=fork.branch, versions=None),
        ):
            removed = _removed(graph, plan, fork, keeper)
    except OpsError as error:
        if not removed:
            raise
        _LOG.warning("what was announced of %s stays until a later run sweeps it: %s", fork.table_key, error)
    return removed


def _removed(graph: Graph, plan: CleanupPlan, fork: OrphanedFork, keeper: LeaseKeeper) -> bool:
    """Judge a fork again and remove it, unless it is no orphan any more or is kept; whether it went. Destroys."""
    judged = _judged(graph, fork)
    if judged is None:
        return False
    dataset, mine, others = judged
    _refuse_more(fork.table_key, fork_files(dataset, fork, others), fork.files)
    unit = Unit(
        name=f"fork {fork.branch} of {fork.table_key}",
        stage="cleanup",
        digest=plan.digest,
        table_key=fork.table_key,
        table_path=fork.table_path,
        branch=fork.branch,
        files=fork.files,
    )
    graph.run.begins(unit)
    try:
        keeper.assert_held()
        # The engine knows no lease, and Lance deletes by name: somebody may have made a branch of that name anew.
        refuse_pending(graph)
        again = _judged(graph, fork)
        same = again is not None and again[1].identifier == mine.identifier
        removed = same and graph.lance.delete_branch(dataset, fork.branch)
    except OpsError as error:
        graph.run.ended(unit, CleanupReport.of(graph.uri, plan.policy, forks=(replace(fork, error=str(error)),)))
        raise
    graph.run.ended(unit, CleanupReport.of(graph.uri, plan.policy, forks=(fork,)) if removed else None)
    return removed


def _judged(graph: Graph, fork: OrphanedFork) -> tuple[Dataset, BranchRef, tuple[BranchRef, ...]] | None:
    """Decide again whether a fork is an orphan: its dataset, it, the others; None when it is not, or is kept. Reads."""
    view = look(graph)
    dataset = graph.open_at(fork.table_path)
    refs = {ref.name: ref for ref in graph.lance.branches(dataset)}
    mine = refs.pop(fork.branch, None)
    others = tuple(refs.values())
    if mine is None or not is_orphaned(graph, fork, view) or why_kept(graph, dataset, fork, view, others) is not None:
        return None
    return dataset, mine, others


def side_by_side(settings: Settings) -> int:
    """How many tables are cleaned at once: on a store a table mostly waits for replies. Pure."""
    # Fewer where few deletes a second are allowed: each table has at least one of them.
    return min(settings.concurrency, settings.max_deletes_per_second or settings.concurrency)


def _isolated(graph: Graph, plan: CleanupPlan, table: TableCleanupPlan) -> CleanupStats:
    try:
        stats, failure = _cleanup_table(graph, plan, table)
    except OpsError as error:
        return CleanupStats(table_key=table.table_key, error=table.refused or str(error))
    return stats if failure is None else replace(stats, error=str(failure))


def _cleanup_table(graph: Graph, plan: CleanupPlan, table: TableCleanupPlan) -> tuple[CleanupStats, OpsError | None]:
    """What was removed of a table, and what ended that half-way; raises before anything is removed. Destroys."""
    if table.refused is not None:
        raise StalePlan(f"{table.table_key} was refused: {table.refused}; nothing was deleted")
    done: tuple[CleanupStats, OpsError | None] | None = None
    try:
        with (
            _turn(graph, table) as keeper,
            announced(graph.storage, table.table_path, branch=None, versions=table.versions),
        ):
            done = _remove(graph, plan, table, keeper)
    except (GraphFrozen, TableGone) as error:  # as in a plan made now: what begins beside a night is no failure of it
        return CleanupStats(table_key=table.table_key, kept=str(error)), None
    except OpsError as error:
        if done is None:
            raise
        # The announcement could not be taken back; what was removed is.
        return done[0], done[1] or error
    return done


def _is_internal(table: TableCleanupPlan) -> bool:
    return table.table_path in INTERNAL_DATASETS


def _turn(graph: Graph, table: TableCleanupPlan) -> AbstractContextManager[LeaseKeeper]:
    """The turn in which a table is cleaned; an internal one has it for itself. Writes the lease."""
    if _is_internal(table):
        # A fence is not lifted in the middle of work of that name, so judging there looks at the limit of the fence.
        return committer_turn(graph, INTERNAL_COMPACTION)
    return shared_turn(graph, f"cleanup {table.table_key}", most=side_by_side(graph.settings))


def _remove(
    graph: Graph, plan: CleanupPlan, table: TableCleanupPlan, keeper: LeaseKeeper
) -> tuple[CleanupStats, OpsError | None]:
    refuse_lasting(graph, table_key=table.table_key)
    entry, tables = _removable_now(graph, table)
    head = graph.open_head(entry)
    if head.version < table.lance_head_version:
        raise StalePlan(
            f"{table.table_key} is at version {head.version}, the plan saw {table.lance_head_version}: it was replaced "
            "or restored; nothing was deleted; plan again"
        )
    protection = tables.protect(entry, head, table.versions)
    existing = stored_versions(graph.storage, entry.path)
    wanted = [v for v in table.versions if v in existing]
    doomed, _ = removable(wanted, protection, between_pins=table.between_pins)
    left = CleanupStats(
        table_key=table.table_key,
        skipped_since_protected=tuple(sorted(set(wanted) - set(doomed))),
        already_gone=len(table.versions) - len(wanted),
    )
    if not doomed:
        return left, None
    files = explain_removal(head, entry.path, doomed)
    _refuse_more(table.table_key, files, table.files)
    if tables.is_internal and not graph.is_alone():
        raise StalePlan(f"{table.table_key}: {TOO_LATE}")
    unit = Unit(
        name=f"cleanup of {table.table_key}",
        stage="cleanup",
        digest=plan.digest,
        table_key=table.table_key,
        table_path=entry.path,
        version=entry.version,
        versions=doomed,
        files=files,
    )
    stays, lost_before = existing & protection.numbers(), lost_forks(graph, tables.view, entry)
    graph.run.begins(unit)
    prove = partial(tables.prove, entry, stays, lost_before)
    removed, failure = _remove_versions(graph, unit, head, keeper, prove)
    done = replace(removed, skipped_since_protected=left.skipped_since_protected, already_gone=left.already_gone)
    told = done if failure is None else replace(done, error=str(failure))
    graph.run.ended(unit, CleanupReport.of(graph.uri, plan.policy, (told,)))
    return done, failure


def _removable_now(graph: Graph, table: TableCleanupPlan) -> tuple[TableEntry, Tables]:
    """A fresh look at a table whose versions may be collected right now. Raises `StalePlan`, `GraphFrozen`. Reads."""
    refused: str | None = None
    for _ in looks(graph):
        view = look(graph, table.table_key)
        entry = view.main.get(table.table_key) or internal_entry(graph, table)
        if entry is None or entry.path != table.table_path:
            raise TableGone(f"{table.table_key} was dropped, renamed or replaced since the plan; nothing was deleted")
        tables: Tables
        if entry.path in INTERNAL_DATASETS:
            tables = InternalTables(graph=graph, view=view, only_behind_fence=True)
        else:
            tables = LiveTables(graph=graph, view=view, clones=graph.clones((entry.path,)))
        refused = tables.refusal(entry)
        if refused is None:
            return entry, tables
        if tables.is_internal or graph.open_head(entry).version == entry.version:
            break  # no writer between its commit and its publish is the reason
    refuse_frozen(graph, table.table_key)
    raise StalePlan(f"{table.table_key}: {refused}; nothing was deleted")


def _remove_versions(
    graph: Graph, unit: Unit, head: Dataset, keeper: LeaseKeeper, prove: Callable[[], None]
) -> tuple[CleanupStats, OpsError | None]:
    """Remove the versions of a unit; after a failure the graph tells which of them are gone. Destroys.

    Args:
        head: what was judged; somebody without a lease may have made the table anew since, with the same numbers.
    """
    limit = graph.settings.max_deletes_per_second // side_by_side(graph.settings) or None
    nothing = CleanupStats(table_key=unit.table_key)
    try:
        keeper.assert_held()
        graph.lance.refuse_another(head)
    except CommitConflict:
        why = f"{unit.table_key} was replaced since it was looked at; nothing was deleted; plan again"
        return nothing, StalePlan(why)
    except OpsError as error:
        return nothing, error
    try:
        removed = remove_versions(head, unit.versions, deletes_per_second=limit)
        prove()
        _prove_gone(graph, unit, removed.bytes_removed)
    except OpsError as error:
        try:
            return cleaned(graph, unit), error
        except OpsError:
            return nothing, error
    freed, gone = removed.bytes_removed, removed.old_versions
    return replace(nothing, bytes_removed=freed, old_versions_removed=gone, versions=unit.versions), None


def _prove_gone(graph: Graph, unit: Unit, freed: int) -> None:
    """Fail when what was to go is still there: Lance passes over a delete that the store refuses. Reads."""
    left = stored_versions(graph.storage, unit.table_path) & set(unit.versions)
    if left:
        stays = f"{len(left):,} of {count(len(unit.versions), 'version')} still there, although no delete failed"
        raise StorageError(f"{stays}; no row is lost; {RIGHTS}")
    files = len(unit.files) - moved(graph, unit)[0] if freed < sum(file.size for file in unit.files) else 0
    if files:  # a repetition would find no version, and tell nothing of them
        raise OpsError(
            f"{files:,} of {count(len(unit.files), 'file')} of the removed versions still there, although no delete "
            "failed; no row is lost; give this account the rights of docs/reference/rights.md, then run "
            "`omnigraph-ops orphans`, which finds them"
        )


def _refuse_more(table_key: str, files: Iterable[PlannedFile], approved: Iterable[PlannedFile]) -> None:
    """Refuse when anything would go that the plan does not list, with the difference. Pure."""
    known = {(f.path, f.size) for f in approved}
    extra = [f for f in files if (f.path, f.size) not in known]
    if extra:
        shown = ", ".join(f"{f.path} ({f.size} bytes)" for f in extra[:_SHOWN])
        more = f" and {len(extra) - _SHOWN} more" if len(extra) > _SHOWN else ""
        raise StalePlan(
            f"{table_key}: {count(len(extra), 'file')} would go that were not in the approved plan: {shown}{more}; "
            "nothing was deleted; plan again"
        )


def cleaned(graph: Graph, unit: Unit) -> CleanupStats:
    """Which of the versions are gone, and how much of their files. Raises `CorruptGraph`. Reads."""
    there = stored_versions(graph.storage, unit.table_path)
    if not there:
        raise CorruptGraph(f"{unit.table_path} has no version any more")
    if unit.version is not None and max(there) < unit.version:
        return CleanupStats(table_key=unit.table_key)  # another table: it was made anew, or put back from a copy
    gone = tuple(v for v in unit.versions if v not in there)
    return CleanupStats(
        table_key=unit.table_key,
        bytes_removed=moved(graph, unit)[1],
        old_versions_removed=len(gone),
        versions=gone,
    )

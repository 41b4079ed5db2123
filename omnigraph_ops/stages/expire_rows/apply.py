"""Apply a plan of row retention: what is below its cuts and inside its bounds, and nothing else.

The deletion files of plain Lance may be written by tasks of the Spark job `expire`; they are committed here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tenacity import RetryError

from omnigraph_ops.coordination.environment import refuse_wrong_clock
from omnigraph_ops.coordination.freezes import refuse_any_freeze
from omnigraph_ops.coordination.lease import LeaseKeeper, LeasePlace, committer_turn, patient_lease
from omnigraph_ops.coordination.sealed import verify
from omnigraph_ops.coordination.state import EXPIRE_ROWS_LEASE_PATH, RESULTS_DIR, Records
from omnigraph_ops.engine import EngineCli, engine_cli, require_stamp
from omnigraph_ops.errors import InvalidInput, OpsError, PublishConflict, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import UnreadableTransaction, stored_versions, version_record
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import LOST_COMMITS, CommitConflict, Dataset, IncompatibleCommit, live_rows
from omnigraph_ops.lance.rows import Clock, FragmentDelete, clock_of, commit_deletes, count_below, delete_below
from omnigraph_ops.lance.versions import needed_files
from omnigraph_ops.models.rows import EdgeRows, RowRetentionPlan, RowRetentionReport, TableRowPlan, TableRowStats
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import SILENT, Progress, Stopped
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.expire_rows.branches import sweep_branches
from omnigraph_ops.stages.expire_rows.delete import ATTEMPTS, again_after, expiring_table
from omnigraph_ops.stages.expire_rows.plan import Aged
from omnigraph_ops.stages.recovery.empty_references import reference_note
from omnigraph_ops.stages.stage import Submit
from omnigraph_ops.storage.inventory import first_missing, remove_files

_PLAIN_PAUSE_SECONDS = 0.2

Turn = Callable[[], contextlib.AbstractContextManager[object]]
"""The committer lease for a block, in which the table is still what was counted and nobody froze it; else it raises."""


Delete = Callable[[Dataset, Clock, int, Turn], int]
"""Deletes the rows of an open version below a cut in one commit, made in a turn, and returns how many. Destroys rows.

It raises `CommitConflict` or `IncompatibleCommit` where another writer changed some of the rows, or replaced all; then
nothing was deleted.
"""


def delete_here(dataset: Dataset, clock: Clock, cut: int, turn: Turn) -> int:
    """In this process. As `Delete`."""
    with turn():
        return delete_below(dataset, clock, cut)


def expire_plain(graph: Graph, plan: RowRetentionPlan, table: TableRowPlan, delete: Delete) -> TableRowStats:
    """Delete the rows below the cut in one commit, counted anew before each attempt. Destroys rows.

    The delete sees exactly the version that was counted: rows that others append meanwhile stay, and one that
    another writer changed makes the commit a conflict.

    Raises:
        StalePlan: more rows are below the cut than the plan allows.
        PublishConflict: other writers were faster each time; nothing was deleted.
    """
    again = again_after(*LOST_COMMITS, graph=graph, pause=_PLAIN_PAUSE_SECONDS)
    try:
        removed = again(_delete_expired, graph, plan, table, delete)
    except RetryError:
        raise PublishConflict(
            f"{table.table_key}: other writers were faster {ATTEMPTS} times; nothing was deleted; apply the plan again"
        ) from None
    attempts = again.statistics["attempt_number"]
    try:
        return _stats(graph, table, removed, attempts)
    except OpsError as error:
        why = f"deleted {count(removed, 'row')}, but the table could not be read afterwards: {error}"
        return TableRowStats(table_key=table.table_key, rows_removed=removed, attempts=attempts, error=why)


def _delete_expired(graph: Graph, plan: RowRetentionPlan, table: TableRowPlan, delete: Delete) -> int:
    """Delete what is counted now. Destroys rows.

    Rows are counted, and tasks look for them, without the lease: that may take long. The commit is for the version
    that was counted, so the bounds need no second look under the lease.
    """
    aged = Aged.of(graph, graph.state_of(table.table_key), table)
    aged.refuse_another(graph, table)

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        with committer_turn(graph, f"expire rows of {table.table_key}") as keeper:
            refuse_any_freeze(graph)
            graph.lance.refuse_another(aged.dataset)
            keeper.assert_held()
            yield

    return delete(aged.dataset, aged.clock, table.cut, turn) if aged.refuse_over_bounds(plan, table) else 0


def _stats(graph: Graph, table: TableRowPlan, removed: int, attempts: int) -> TableRowStats:
    """What a reader sees now. Reads."""
    aged = Aged.of(graph, graph.state_of(table.table_key), table)
    return TableRowStats(
        table_key=table.table_key,
        rows_removed=removed,
        rows_left=aged.rows(),
        attempts=attempts,
        manifest_version=int(aged.dataset.version),
    )


_STOPPED = "the run was asked to stop; no row was deleted"
_PLACE = LeasePlace(path=EXPIRE_ROWS_LEASE_PATH, name="the row retention lease")


def engine_of(graph: Graph) -> EngineCli | None:
    """The engine that deletes on this graph, which the settings name; None on plain Lance. Runs it once.

    Raises:
        InvalidInput: no engine is named, or it is none.
        UnsupportedStamp: it writes another generation.
    """
    if not graph.format.publishes:
        return None
    path = graph.settings.engine
    if not path:
        raise InvalidInput(
            f"{graph.uri} is a graph: its rows are deleted by the engine, so that the edges of deleted nodes go too; "
            "nothing was deleted; name the binary of the release that writes it in OMNIGRAPH_OPS_ENGINE, in the shell "
            "also with --engine"
        )
    engine = engine_cli(
        path, timeout_seconds=graph.settings.engine_timeout_seconds, storage_options=graph.lance.storage_options
    )
    require_stamp(engine, graph.stamp, graph.uri)
    return engine


def expire_rows(
    graph: Graph,
    plan: RowRetentionPlan,
    *,
    engine: EngineCli | None,
    delete: Delete = delete_here,
    progress: Progress = SILENT,
) -> RowRetentionReport:
    """Delete what the plan allows, table by table; faults stay in their table's row. Destroys rows.

    A run that is asked to stop reports the tables that it did by then.

    Args:
        engine: deletes on a graph.
        delete: deletes on plain Lance.

    Raises:
        StalePlan: the plan was altered, expired or is another graph's; nothing was deleted.
        InvalidInput: this engine cannot write to that branch; nothing was deleted.
        ClockWrong: this host and the store disagree about the time; nothing was deleted.
        GraphFrozen: the graph, or a table of it, is frozen; nothing was deleted.
        LeaseHeld: another run of row retention is at work, known to be here, or elsewhere for as long as a dead holder
            takes to be told.
    """
    verify(plan, uri=graph.uri, consequence="nothing was deleted")
    refuse_wrong_clock(graph.storage, "nothing was deleted")
    refuse_any_freeze(graph)
    if engine is not None and plan.branch is not None and not engine.release.nests_branches:
        raise InvalidInput(
            f"omnigraph {engine.release.text} cannot write on a branch of a branch, which deleting on {plan.branch!r} "
            "needs; nothing was deleted; rows of main can expire"
        )

    def expire(table: TableRowPlan, work: _UnitOfRows) -> TableRowStats:
        if engine is None:
            return expire_plain(graph, plan, table, delete)
        return expiring_table(graph, engine, plan, table, progress=progress, merging=work.merging).expire()

    ttl = graph.settings.lease_ttl_seconds
    lease = patient_lease(graph.storage, _PLACE, purpose="expire rows", ttl_seconds=ttl, pause=graph.run.pause)
    with lease as keeper:
        if engine is not None:
            sweep_branches(graph, engine, progress)
        stats: list[TableRowStats] = []
        with contextlib.suppress(Stopped):
            for table in plan.tables:
                graph.run.check()
                stats.append(_isolated(graph, plan, table, expire, keeper))
                progress.at("deleting rows", sum(t.rows_removed for t in stats), plan.total_rows, "rows")
    return RowRetentionReport(uri=graph.uri, branch=plan.branch, digest=plan.digest, tables=tuple(stats))


@dataclass(slots=True)
class _UnitOfRows:
    """The unit of one table, with precisely what a merge takes from before it begins."""

    graph: Graph
    unit: Unit
    keeper: LeaseKeeper

    def merging(self, rows: int, edges: tuple[EdgeRows, ...]) -> None:
        """Write down what a merge is about to take; until then the unit took nothing. Writes.

        Raises:
            LeaseHeld: another run took the lease over, and removes the branches of this one.
        """
        assert self.unit.rows is not None
        if rows:
            self.keeper.assert_held()
        known = replace(self.unit, rows=replace(self.unit.rows, expired=rows, edges=edges))
        self.graph.run.restates(self.unit, known)
        self.unit = known


def _isolated(
    graph: Graph,
    plan: RowRetentionPlan,
    table: TableRowPlan,
    expire: Callable[[TableRowPlan, _UnitOfRows], TableRowStats],
    keeper: LeaseKeeper,
) -> TableRowStats:
    if table.refused is not None:
        return TableRowStats(table_key=table.table_key, refused=table.refused, rows_left=table.expired)
    if table.expired == 0:
        return TableRowStats(table_key=table.table_key, manifest_version=table.manifest_version)
    rows = replace(table, sample=())
    unit = Unit(
        name=f"row expiry of {table.table_key}",
        stage="expire-rows",
        digest=plan.digest,
        table_key=table.table_key,
        branch=plan.branch or "",
        # Of a graph no row goes before a merge, which says precisely what it takes.
        rows=replace(rows, expired=0, edges=()) if graph.format.publishes else rows,
    )
    work = _UnitOfRows(graph=graph, unit=unit, keeper=keeper)
    try:
        graph.run.begins(unit)
    except OpsError as error:
        return TableRowStats(table_key=table.table_key, rows_left=table.expired, error=str(error))
    try:
        keeper.assert_held()
        stats = expire(table, work)
    except Stopped:
        done = _done(work, table)
        stats = done if done.rows_removed else replace(done, refused=_STOPPED)
    except OpsError as error:
        stats = replace(_done(work, table), error=f"{error}{reference_note(graph, error)}")
    report = RowRetentionReport(uri=graph.uri, branch=plan.branch, digest=plan.digest, tables=(stats,))
    graph.run.ended(work.unit, report)
    return stats


def _done(work: _UnitOfRows, table: TableRowPlan) -> TableRowStats:
    """What a table lost whose work ended early: it may have merged before it waited to drop its branch. Reads."""
    with contextlib.suppress(OpsError):
        done = expired(work.graph, work.unit)
        if done is not None:
            return done
    return TableRowStats(table_key=table.table_key, rows_left=table.expired)


NOTES = Records(FragmentDelete)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDone:
    """What one task of the job deleted."""

    attempt: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletesDone:
    """What the job `expire` returns."""

    tasks: tuple[TaskDone, ...]


def note_path(folder: str, attempt: str, fragment_id: int) -> str:
    """Where a task notes what it did to a fragment, relative to the graph. Pure."""
    return f"{folder}/{attempt}.{fragment_id}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedDelete:
    """Deletes on Spark, from so many rows of a table on. As `Delete`.

    A task notes every deletion file that it wrote in the graph and returns its own name. So only what accepted tasks
    noted is committed, and the files of a lost task, or of one that ran twice, are removed by their names.
    """

    submit: Submit
    graph: Graph
    from_rows: int = 0

    def __call__(self, dataset: Dataset, clock: Clock, cut: int, turn: Turn) -> int:
        """Submit, commit what the tasks wrote, and remove what counts for nothing. Destroys rows."""
        if live_rows(dataset) < self.from_rows:
            return delete_here(dataset, clock, cut, turn)
        folder, predicate, kept = f"{RESULTS_DIR}/{new_ulid()}", clock.below(cut), set[str | None]()
        which = ("--graph", self.graph.uri, "--dataset", str(dataset.uri), "--version", str(int(dataset.version)))
        words = (*which, "--predicate", predicate, "--notes", folder)
        try:
            done = self.submit("expire", words, DeletesDone, self.graph.run.check)
            deletes = self._accepted(folder, done)
            with turn():
                self._refuse_missing(str(dataset.uri), deletes)
                # From here on it may have landed, whatever is raised.
                kept = {delete.file for delete in deletes}
                commit_deletes(dataset, deletes, predicate)
        except (CommitConflict, IncompatibleCommit):
            # A store that answers a repeated request says so of a commit that landed.
            kept = self._referred(dataset, kept)
            if not kept:
                raise
        finally:
            with contextlib.suppress(OpsError):
                self._sweep(str(dataset.uri), folder, kept)
        return sum(delete.rows for delete in deletes)

    def _accepted(self, folder: str, done: DeletesDone) -> list[FragmentDelete]:
        """What the accepted tasks noted; `StorageError` where a note is missing. Reads."""
        accepted = {task.attempt for task in done.tasks}
        notes = NOTES.all(self.graph.storage, folder)
        deletes = [note for path, note in notes if path.removeprefix(f"{folder}/").partition(".")[0] in accepted]
        if sum(delete.rows for delete in deletes) != sum(task.rows for task in done.tasks):
            raise StorageError(f"{folder} does not have all that the tasks noted there; nothing was deleted")
        return deletes

    def _refuse_missing(self, uri: str, deletes: Sequence[FragmentDelete]) -> None:
        """Raise `StorageError` unless all that the tasks wrote is there: a commit does not look at it. Reads.

        In the turn to commit: whoever removes files that no version has takes it, too.
        """
        missing = first_missing(self.graph.storage, dict.fromkeys(self._paths(uri, deletes), 0))
        if missing is not None:
            raise StorageError(f"{missing}, which a task wrote, is not there; nothing was deleted; run again")

    def _referred(self, dataset: Dataset, files: set[str | None]) -> set[str | None]:
        """Those of our deletion files that a later version refers to; `OpsError` where nobody can tell. Reads."""
        table = self._table(str(dataset.uri))
        later = [v for v in stored_versions(self.graph.storage, table) if v > int(dataset.version)]
        return {f.path for v in later for f in needed_files(self.graph.open_at(table, version=v)) if f.path in files}

    def _sweep(self, uri: str, folder: str, kept: Container[str | None]) -> None:
        """Remove the notes, and the deletion files that are in no version. Destroys files."""
        storage = self.graph.storage
        noted = [note for _, note in NOTES.all(storage, folder)]
        remove_files(storage, self._paths(uri, [note for note in noted if note.file not in kept]))
        storage.delete_tree(folder)

    def _paths(self, uri: str, deletes: Iterable[FragmentDelete]) -> list[str]:
        """Their deletion files, relative to the graph. Pure."""
        return [f"{self._table(uri)}/{delete.file}" for delete in deletes if delete.file is not None]

    def _table(self, uri: str) -> str:
        """The path of the table, relative to the graph. Pure."""
        return uri.removeprefix(f"{self.graph.uri}/")


def expired(graph: Graph, unit: Unit) -> TableRowStats | None:
    """How many rows below the cut are not there any more, and their edges, which go in the same merge. Reads."""
    plan, branch = unit.rows, unit.branch or None
    entry = graph.state(branch).get(unit.table_key)
    if plan is None or entry is None:
        return None
    now = graph.open_pinned(entry)
    clock = clock_of(now, plan.policy.property, plan.policy.unit)
    left = count_below(now, clock, plan.cut)
    may = graph.format.publishes or _has_commit_of(graph, entry, plan.manifest_version, clock.below(plan.cut))
    removed = max(plan.expired - left, 0) if may else 0
    return TableRowStats(
        table_key=unit.table_key,
        rows_removed=removed,
        edges=plan.edges if removed else (),
        rows_left=left,
        manifest_version=entry.version,
    )


def _has_commit_of(graph: Graph, entry: TableEntry, after: int, predicate: str) -> bool:
    """Whether a delete with that predicate was committed: others delete too, or make the whole table anew. Reads."""
    for version in range(after + 1, entry.version + 1):
        with contextlib.suppress(UnreadableTransaction):
            if version_record(graph.storage, entry.path, version).predicate == predicate:
                return True
    return False

"""Make a backup: keep a cut, copy its files, look whether all of the cut is still there, and only then finish.

A backup without its record is unfinished. The next one of the same graph to the same place goes on with it: with the
same cut while that is still kept, else with a new one, and in both cases without copying anew what is there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from omnigraph_ops import __version__
from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.errors import CorruptGraph, InvalidInput, LeaseHeld, OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.opening import backup_around
from omnigraph_ops.models.backup import (
    BackedFile,
    BackupLeft,
    BackupRecord,
    BackupReport,
    BackupStart,
    RecordedRoot,
    Tally,
)
from omnigraph_ops.models.freeze import CutFile, Freeze
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes.backups import (
    JOURNAL,
    ORDERS,
    backup_of,
    damaged_files,
    graph_around,
    is_inside,
    left_of,
    place_of,
    present_files,
    read_record,
    stored_at,
    write_record,
    write_start,
)
from omnigraph_ops.progress import SILENT, Meter, Progress, Stopped
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.backup.claim import Claim, claimed, end_of_finished, given_freeze, kept_freeze
from omnigraph_ops.stages.backup.transfer import (
    IMMUTABLE,
    CopyJournal,
    CopyPace,
    CopyPlan,
    Earlier,
    Transfer,
    Transferred,
    plan_copy,
    read_journal,
)
from omnigraph_ops.stages.backup.verify import rows_of_cut
from omnigraph_ops.stages.freeze.files import cut_files
from omnigraph_ops.stages.freeze.observe import verify_cut
from omnigraph_ops.stages.freeze.roots import place_of_root, recorded_roots
from omnigraph_ops.stages.freeze.take import refuse_lost, said_of
from omnigraph_ops.storage.store import Storage

_DEFAULTS = BackupOptions()
R = TypeVar("R")
Copier = Callable[[Transfer, CopyPlan, Callable[[], None]], Transferred]
"""Does all of a plan, as `Transfer.run` does; calls the third argument meanwhile, which raises when it has to stop."""


def copied_here(transfer: Transfer, plan: CopyPlan, _check: Callable[[], None]) -> Transferred:
    """In this process. As `Copier`."""
    return transfer.run(plan)


def backup_graph(
    graph: Graph,
    target: str,
    options: BackupOptions = _DEFAULTS,
    *,
    copier: Copier = copied_here,
    progress: Progress = SILENT,
) -> BackupReport:
    """Back up a graph below `target`, reached as the graph is. Writes there, and while it copies a freeze in the graph.

    Args:
        copier: where the files are copied; by default on the threads of this process.

    Raises:
        InvalidInput: the freeze or the earlier backup cannot be used, or the target is inside the graph.
        Stopped: the run was asked to stop; the next backup to this place goes on.
        CorruptGraph: something of the cut is gone: named; nothing was copied, or the backup stays unfinished.
        LeaseHeld, RecoveryPending: the graph cannot be frozen now; nothing was copied.
    """
    destination = place_outside(graph, target)
    if options.freeze_id is not None:
        refuse_lost(graph, given_freeze(graph, options.freeze_id), "nothing was copied")
    earlier = _earlier(graph, options)
    with claimed(destination, graph.target) as claim:
        where = destination.uri(claim.backup_id)
        unit = Unit(name=f"the backup {where}", stage="backup", backup=where)
        graph.run.begins(unit)
        try:
            end_of_finished(graph, destination, options.freeze_id, progress)
            with kept_freeze(graph, claim, options.freeze_id, progress) as freeze:
                report = _Attempt(
                    graph=graph,
                    destination=destination,
                    claim=claim,
                    freeze=freeze,
                    options=options,
                    copier=copier,
                    earlier=earlier,
                    progress=progress,
                    began=time.time(),
                ).run()
        except (Stopped, OpsError):
            # All threads have ended: what is there now stays.
            with contextlib.suppress(OpsError):
                graph.run.ended(unit, left_of(destination, claim.backup_id))
            raise
        left = BackupLeft(backup=where, backup_id=claim.backup_id, finished=True, total=report.total)
        graph.run.ended(unit, left)
        return report


def place_outside(graph: Graph, target: str) -> Storage:
    """The destination; `InvalidInput` inside of any graph, whose orphans the backups would be, or a backup. Reads."""
    destination = place_of(target, graph.storage.access)
    if (backup := backup_around(destination)) is not None:
        raise InvalidInput(f"{destination.root} is inside the backup {backup}; back up to another place")
    # A dataset that was addressed by itself may have its backups beside it.
    around = graph.target if is_inside(destination, graph.target) else graph_around(destination, itself=True)
    if around is not None:
        raise InvalidInput(f"{destination.root} is inside the graph {around}; back up to another place")
    return destination


def _earlier(graph: Graph, options: BackupOptions) -> Earlier | None:
    if options.incremental_from is None:
        return None
    storage, backup_id = backup_of(options.incremental_from, graph.storage.access)
    record = read_record(storage, backup_id)
    return Earlier(storage=storage, record=record, present=present_files(storage, backup_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One process's work on one backup."""

    graph: Graph
    destination: Storage
    claim: Claim
    freeze: Freeze
    options: BackupOptions
    copier: Copier
    earlier: Earlier | None
    progress: Progress
    began: float

    @property
    def _id(self) -> str:
        return self.claim.backup_id

    def run(self) -> BackupReport:
        """Copy, prove, finish. Writes."""
        before = self.claim.before
        started_at = before.started_at if before is not None else self.began
        write_start(self.destination, self._start(started_at))
        files = self._of_cut(lambda: cut_files(self.graph, self.freeze, self.progress))
        done = self._of_cut(lambda: self._copy(files))
        record = self._of_cut(lambda: self._record(done, started_at))
        self._prove(record)
        self.destination.sync_names(stored_at(self._id, f.file) for f in record.files)
        self.claim.keeper.assert_held()
        write_record(self.destination, record)
        self._drop_journal()
        return self._report(done)

    def _drop_journal(self) -> None:
        """Tidy up: a backup is finished without that, where nobody may delete, too. Destroys the journal."""
        folder = f"{self._id}/{JOURNAL}"
        try:
            self.destination.delete_tree(folder)
        except StorageError as error:
            self.progress(f"the backup is finished; {self.destination.uri(folder)} is of no use and stays: {error}")

    def _start(self, started_at: float) -> BackupStart:
        return BackupStart(
            backup_id=self._id,
            uri=self.graph.target,
            started_at=started_at,
            freeze_id=self.freeze.freeze_id,
            own_freeze=self.options.freeze_id is None,
            tool_version=__version__,
        )

    def _of_cut(self, work: Callable[[], R]) -> R:
        """Work on the cut; when it fails because of what went, the error says so by name. Effects of `work`."""
        try:
            return work()
        except LeaseHeld:
            raise  # whoever took over may have ended the freeze, or finished the backup
        except (OpsError, FileNotFoundError) as error:
            self._refuse_gone()
            if isinstance(error, FileNotFoundError):
                raise CorruptGraph(f"{error.filename or error} of the cut is gone; {self._unfinished()}") from None
            raise

    def _refuse_gone(self) -> None:
        problems = verify_cut(self.graph, self.freeze)
        if problems:
            raise CorruptGraph(f"something went during the backup: {said_of(problems)}; {self._unfinished()}")

    def _unfinished(self) -> str:
        return f"the backup {self.destination.uri(self._id)} stays unfinished; back up again"

    def _copy(self, files: tuple[CutFile, ...]) -> Transferred:
        resumed = self.claim.before is not None
        if resumed:
            # Workers of a killed submitter that are still at work stop without it.
            self.destination.delete_tree(f"{self._id}/{ORDERS}")
        plan = plan_copy(
            files,
            freeze_id=self.freeze.freeze_id,
            present=present_files(self.destination, self._id) if resumed else {},
            journal=read_journal(self.destination, self._id) if resumed else (),
            earlier=self.earlier,
            damaged=self._damaged(files),
            need_checksums=self.options.checksum,
        )
        done = self.copier(self._transfer(plan), plan, self._check)
        if done.refused:
            self.progress(
                f"{count(done.refused, 'file')} could not be taken from the earlier backup, so copied from the graph: "
                f"{done.refusal}"
            )
        if self.earlier is not None and self._came_from(done) is None:
            record = self.earlier.record
            self.progress(
                f"no file was taken from {self.earlier.storage.uri(record.backup_id)}, which is a backup of "
                f"{record.uri}, not of {self.graph.target}; all files were copied"
            )
        return done

    def _came_from(self, done: Transferred) -> str | None:
        """The id of the earlier backup, if it is of a graph at this place or files came from it. Pure.

        A graph that was moved or restored has the files of its backups under another address.
        """
        if self.earlier is None:
            return None
        record = self.earlier.record
        is_of_another = record.uri != self.graph.target and not done.linked and not done.kept
        return None if is_of_another else record.backup_id

    def _check(self) -> None:
        """Raise where the run shall stop, or another one may have taken the backup over while this one slept. Reads."""
        self.graph.run.check()
        self.claim.keeper.assert_lately()

    def _damaged(self, files: tuple[CutFile, ...]) -> frozenset[str]:
        """Files of the cut that a verify found damaged where this backup takes or has taken files. Reads."""
        places = [self.destination] if self.claim.before is not None else []
        places += [self.earlier.storage] if self.earlier is not None else []
        names, damaged = [f.file for f in files if f.kind in IMMUTABLE], set[str]()
        for place in {p.root: p for p in places}.values():
            found = damaged_files(place, names)
            damaged |= found
            if found:
                self.progress(
                    f"copying {count(len(found), 'file')} from the graph because a backup below {place.root} failed "
                    f"verification; `omnigraph-ops backups {place.root}` names it"
                )
        return frozenset(damaged)

    def _transfer(self, plan: CopyPlan) -> Transfer:
        work = Tally.of(plan.work)
        if plan.keep:
            kept = Tally.of(plan.keep)
            self.progress(f"going on with {self._id}: {count(kept.files, 'file')} there already")
        return Transfer(
            source=self.graph.storage,
            destination=self.destination,
            backup_id=self._id,
            earlier=(self.earlier.storage, self.earlier.record.backup_id) if self.earlier is not None else None,
            need_checksums=self.options.checksum,
            workers=self.graph.settings.concurrency,
            pace=CopyPace(self.options.max_bytes_per_second, self._check),
            meter=Meter(self.progress, "copying", work.bytes, "bytes"),
            journal=CopyJournal(self.destination, self._id, self.freeze.freeze_id),
        )

    def _record(self, done: Transferred, started_at: float) -> BackupRecord:
        cut = self.freeze.cut
        return BackupRecord(
            backup_id=self._id,
            uri=self.graph.target,
            stamp=cut.stamp,
            freeze_id=self.freeze.freeze_id,
            started_at=started_at,
            cut_at=self.freeze.created_at,
            finished_at=time.time(),
            tool_version=__version__,
            incremental_from=self._came_from(done),
            one_instant=cut.one_instant,
            branches=cut.branches,
            files=tuple(
                BackedFile(file=f.file, size=f.size, kind=f.kind, records_root=f.records_root, checksum=f.checksum)
                for f in done.files
            ),
            roots=self._roots(done.files),
            rows=rows_of_cut(self.graph, cut),
        )

    def _roots(self, files: tuple[CutFile, ...]) -> tuple[RecordedRoot, ...]:
        """Every root that a file records, and its place: only here the graph can tell. Reads."""
        found = {root for f in files if f.records_root for root in recorded_roots(self.graph.storage.read(f.source))}
        return tuple(RecordedRoot(recorded=r, place=place_of_root(self.graph, r)) for r in sorted(found))

    def _prove(self, record: BackupRecord) -> None:
        """All of the cut is still there, and all of it is in the backup. Reads."""
        self._refuse_gone()
        present = present_files(self.destination, self._id)
        for file in record.files:
            if present.get(file.file) != file.size:
                raise CorruptGraph(f"{file.file} is not in the backup as it was copied; {self._unfinished()}")

    def _report(self, done: Transferred) -> BackupReport:
        return BackupReport(
            uri=self.graph.target,
            backup=self.destination.uri(self._id),
            backup_id=self._id,
            freeze_id=self.freeze.freeze_id,
            incremental_from=self._came_from(done),
            resumed=self.claim.before is not None,
            total=Tally.of(done.files),
            copied=Tally.of(done.copied),
            linked=Tally.of(done.linked),
            kept=Tally.of(done.kept),
            seconds=round(time.time() - self.began, 3),
        )

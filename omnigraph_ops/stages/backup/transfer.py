"""Carry out a copy plan: several files at once, noted in the journal as they arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from omnigraph_ops.errors import StorageError
from omnigraph_ops.models.backup import JournalledFile
from omnigraph_ops.models.freeze import CutFile
from omnigraph_ops.outcomes.backup_places import stored_at
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import Meter
from omnigraph_ops.stages.backup.journal import CopyJournal
from omnigraph_ops.stages.backup.pace import CopyPace
from omnigraph_ops.stages.backup.plan import CopyPlan
from omnigraph_ops.stages.freeze.checksums import checksum_of
from omnigraph_ops.storage.copying import Expected, copy_file, copy_within, link_file
from omnigraph_ops.storage.inventory import remove_files
from omnigraph_ops.storage.store import Storage

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """What became of a plan; every file with the checksum that is known of it."""

    copied: tuple[CutFile, ...]
    linked: tuple[CutFile, ...]
    kept: tuple[CutFile, ...]

    @property
    def files(self) -> tuple[CutFile, ...]:
        """All of them, by where they belong. Pure."""
        return tuple(sorted((*self.copied, *self.linked, *self.kept), key=lambda f: f.file))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One attempt at one backup."""

    source: Storage
    destination: Storage
    backup_id: str
    earlier: tuple[Storage, str] | None
    """Where the earlier backup is: destination and id."""
    need_checksums: bool
    workers: int
    pace: CopyPace
    meter: Meter
    journal: CopyJournal

    def run(self, plan: CopyPlan) -> Transferred:
        """Do all of the plan. Writes; destroys what an earlier attempt left and the plan does not want.

        Raises:
            CorruptGraph: a file of the cut has another size now.
            FileNotFoundError: a file of the cut is gone.
            StorageError: a store failed.
        """
        self._remove(plan)
        try:
            linked = self._each(self._link, plan.link)
            unlinked = {f.file for f, took in zip(plan.link, linked, strict=True) if not took}
            again = tuple(replace(f, checksum=None) for f in plan.link if f.file in unlinked)
            copied = self._each(self._copy, (*plan.copy, *again))
            kept = [*plan.keep, *self._each(self._prove, plan.unproven)]
        finally:
            self.journal.close()
        taken = tuple(f for f in plan.link if f.file not in unlinked)
        return Transferred(copied=tuple(copied), linked=taken, kept=tuple(kept))

    def _each(self, work: Callable[[CutFile], R], files: tuple[CutFile, ...]) -> list[R]:
        return in_parallel(work, files, workers=self.workers, on_error=self.pace.stop)

    def _remove(self, plan: CopyPlan) -> None:
        paths = [stored_at(self.backup_id, file) for file in plan.remove]
        for fault in remove_files(self.destination, paths)[:1]:
            raise StorageError(f"cannot remove {fault.path} of an attempt that did not end: {fault.reason}")

    def _target(self, file: CutFile) -> tuple[Storage, str]:
        return self.destination, stored_at(self.backup_id, file.file)

    def _copy(self, file: CutFile) -> CutFile:
        source, target = (self.source, file.source), self._target(file)
        checksum = None
        if self.need_checksums or not copy_within(source, target, file.size, pacing=self.pace):
            expected = Expected(size=file.size)
            checksum = copy_file(source, target, expected, pacing=self.pace, on_bytes=self.meter.add)
        else:
            self.meter.add(file.size)
        return self._done(replace(file, checksum=checksum))

    def _link(self, file: CutFile) -> bool:
        """Whether the earlier backup's file could be taken. Writes."""
        if self.earlier is None:
            return False
        storage, backup_id = self.earlier
        source, target = (storage, stored_at(backup_id, file.file)), self._target(file)
        try:
            if not (link_file(source, target) or copy_within(source, target, file.size, pacing=self.pace)):
                return False
        except FileNotFoundError:
            return False  # somebody deletes the earlier backup
        self.meter.add(file.size)
        self._done(file)
        return True

    def _prove(self, file: CutFile) -> CutFile:
        """Only a checksum of the original says what the copy that is there has to be. Reads the original."""
        checksum = checksum_of(self.source, file.source, self.pace)
        self.meter.add(file.size)
        return self._done(replace(file, checksum=checksum))

    def _done(self, file: CutFile) -> CutFile:
        self.journal.note(JournalledFile(file=file.file, size=file.size, checksum=file.checksum))
        return file

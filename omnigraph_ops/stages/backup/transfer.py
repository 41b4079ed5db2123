"""Copy the files of a cut: which, how fast, and noted in a journal as they arrive.

Which files of a cut are copied, taken from an earlier backup, or there already. Data, deletion, index and transaction
files carry a random name and are never written twice: the same path and size is the same file. A manifest's name is a
number, which a branch that was deleted and made again uses anew, and a blob in a registered base has the name that its
owner gave it. These, references and the root's files are always read from this very cut, and so is a file that the last
verify of a backup named.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from omnigraph_ops.coordination.state import Records
from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.models.backup import BackedFile, BackupRecord, JournalledFile, JournalledFiles
from omnigraph_ops.models.freeze import CutFile, CutFileKind
from omnigraph_ops.outcomes.backups import JOURNAL, stored_at
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import Meter
from omnigraph_ops.stages.freeze.files import checksum_of
from omnigraph_ops.storage.copying import Expected, copy_file, copy_within, link_file
from omnigraph_ops.storage.inventory import remove_files
from omnigraph_ops.storage.store import Storage

_CHUNK = 4 * 1024 * 1024
_SMALLEST_CHUNK = 64 * 1024
_PIECES_PER_SECOND = 4
_POLL_SECONDS = 0.2


class CopyPace:
    """A ceiling on bytes per second over everything that asks it; None is no ceiling."""

    def __init__(self, bytes_per_second: int | None, check: Callable[[], None] | None = None) -> None:
        self.rate, self._check = bytes_per_second, check
        self._next = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @property
    def chunk(self) -> int:
        """How many bytes to ask for at once. Pure."""
        if self.rate is None:
            return _CHUNK
        return min(max(self.rate // _PIECES_PER_SECOND, _SMALLEST_CHUNK), _CHUNK)

    def wait_for(self, size: int) -> None:
        """Wait until so many bytes may go. Sleeps.

        Raises:
            OpsError: the copy was stopped. Whatever `check` raises ends the waiting, too.
        """
        left = self._delay(size)
        while True:
            step = left
            if self._check is not None:
                self._check()
                step = min(left, _POLL_SECONDS)
            if self._stopped.wait(step):
                raise OpsError("the copy was stopped")
            left -= step
            if left <= 0:
                return

    def stop(self) -> None:
        """Let every thread that asks, or waits, end: nobody waits for the rest of a large file. Pure."""
        self._stopped.set()

    def _delay(self, size: int) -> float:
        if self.rate is None:
            return 0
        with self._lock:
            start = max(time.monotonic(), self._next)
            self._next = start + size / self.rate
        return max(start - time.monotonic(), 0)


IMMUTABLE = frozenset({CutFileKind.DATA, CutFileKind.DELETION, CutFileKind.INDEX, CutFileKind.TRANSACTION})


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A finished backup whose files may be taken."""

    storage: Storage
    """Where it is."""
    record: BackupRecord
    present: Mapping[str, int]
    """Sizes of the files that it still has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What to do with every file of a cut."""

    copy: tuple[CutFile, ...] = ()
    link: tuple[CutFile, ...] = ()
    """With the checksum that the earlier backup recorded."""
    keep: tuple[CutFile, ...] = ()
    """With the checksum that the journal recorded."""
    unproven: tuple[CutFile, ...] = ()
    """There, of the right size, and not in the journal: their checksum is that of the original."""
    remove: tuple[str, ...] = ()
    """What an attempt for another cut, or a killed write, left behind, and damaged files that an attempt took."""

    @property
    def work(self) -> tuple[CutFile, ...]:
        """What there is to do: everything but to keep and to remove. Pure."""
        return (*self.copy, *self.link, *self.unproven)


def plan_copy(
    files: Sequence[CutFile],
    *,
    freeze_id: str,
    present: Mapping[str, int],
    journal: Iterable[JournalledFiles] = (),
    earlier: Earlier | None = None,
    damaged: Collection[str] = frozenset(),
    need_checksums: bool = False,
) -> CopyPlan:
    """Decide for every file of the cut.

    Args:
        present: sizes of what the unfinished backup has already, by file.
        damaged: files that are neither taken nor kept, because a verify named them in some backup.
        need_checksums: a file without a checksum counts as absent.
    """
    known = _journalled(journal, freeze_id)
    taken = _takeable(earlier, damaged)
    copy, link, keep, unproven = list[CutFile](), list[CutFile](), list[CutFile](), list[CutFile]()
    for file in files:
        immutable = file.kind in IMMUTABLE
        noted = known.get((file.file, immutable))
        old = taken.get(file.file) if immutable else None
        here = present.get(file.file) == file.size and file.file not in damaged
        if here and noted is not None and noted.size == file.size and not (need_checksums and noted.checksum is None):
            keep.append(replace(file, checksum=noted.checksum))
        elif here and immutable:
            unproven.append(file)
        elif old is not None and old.size == file.size and not (need_checksums and old.checksum is None):
            link.append(replace(file, checksum=old.checksum))
        else:
            copy.append(file)
    staying = {f.file for f in files}.difference(damaged)
    remove = tuple(sorted(set(present) - staying))
    return CopyPlan(copy=tuple(copy), link=tuple(link), keep=tuple(keep), unproven=tuple(unproven), remove=remove)


def _journalled(journal: Iterable[JournalledFiles], freeze_id: str) -> dict[tuple[str, bool], JournalledFile]:
    """What counts, by file and whether it may be of another cut. Pure."""
    return {
        (noted.file, immutable): noted
        for batch in journal
        for noted in batch.files
        for immutable in ((True, False) if batch.freeze_id == freeze_id else (True,))
    }


def _takeable(earlier: Earlier | None, damaged: Collection[str]) -> dict[str, BackedFile]:
    if earlier is None:
        return {}
    return {f.file: f for f in earlier.record.files if earlier.present.get(f.file) == f.size and f.file not in damaged}


def remove_all(storage: Storage, paths: Sequence[str], of: str) -> None:
    """Remove files of `of`; `StorageError` names the first that cannot be removed. Destroys."""
    for fault in remove_files(storage, paths)[:1]:
        raise StorageError(f"cannot remove {fault.path} of {of}: {fault.reason}")


_BATCH_FILES = 200
_BATCH_SECONDS = 5.0
_BATCHES = Records(JournalledFiles)


class CopyJournal:
    """Collects files as they are copied and writes them down every so often."""

    def __init__(self, destination: Storage, backup_id: str, freeze_id: str) -> None:
        self._destination, self._folder, self.freeze_id = destination, f"{backup_id}/{JOURNAL}", freeze_id
        self._batch: list[JournalledFile] = []
        self._written_at = time.monotonic()
        self._lock = threading.Lock()

    def note(self, file: JournalledFile) -> None:
        """A file is there under its final name. Writes now and then."""
        with self._lock:
            self._batch.append(file)
            due = len(self._batch) >= _BATCH_FILES or time.monotonic() - self._written_at >= _BATCH_SECONDS
            if due:
                self._flush()

    def close(self) -> None:
        """Write down the rest. Writes."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            batch = JournalledFiles(freeze_id=self.freeze_id, files=tuple(self._batch))
            _BATCHES.write(self._destination, f"{self._folder}/{new_ulid()}.json", batch)
        self._batch, self._written_at = [], time.monotonic()


def read_journal(destination: Storage, backup_id: str) -> tuple[JournalledFiles, ...]:
    """Everything noted so far, oldest first; a damaged part says nothing. Reads."""
    return tuple(batch for _, batch in _BATCHES.all(destination, f"{backup_id}/{JOURNAL}"))


R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """What became of a plan; every file with the checksum that is known of it."""

    copied: tuple[CutFile, ...]
    linked: tuple[CutFile, ...]
    kept: tuple[CutFile, ...]
    refused: int = 0
    """Files that the earlier backup has and did not give; they were copied from the graph."""
    refusal: str | None = None
    """Why, for the first of them."""

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
        remove_all(self.destination, [stored_at(self.backup_id, f) for f in plan.remove], "an attempt that did not end")
        try:
            linked = self._each(self._link, plan.link)
            unlinked = {f.file for f, why_not in zip(plan.link, linked, strict=True) if why_not is not None}
            again = tuple(replace(f, checksum=None) for f in plan.link if f.file in unlinked)
            copied = self._each(self._copy, (*plan.copy, *again))
            kept = [*plan.keep, *self._each(self._prove, plan.unproven)]
        finally:
            self.journal.close()
        taken = tuple(f for f in plan.link if f.file not in unlinked)
        refusals = [why_not for why_not in linked if why_not]
        return Transferred(
            copied=tuple(copied),
            linked=taken,
            kept=tuple(kept),
            refused=len(refusals),
            refusal=next(iter(refusals), None),
        )

    def _each(self, work: Callable[[CutFile], R], files: tuple[CutFile, ...]) -> list[R]:
        return in_parallel(work, files, workers=self.workers, on_error=self.pace.stop)

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

    def _link(self, file: CutFile) -> str | None:
        """Why the earlier backup's file could not be taken, empty between two stores; None when it was. Writes."""
        if self.earlier is None:
            return ""
        storage, backup_id = self.earlier
        source, target = (storage, stored_at(backup_id, file.file)), self._target(file)
        try:
            if not (link_file(source, target) or copy_within(source, target, file.size, pacing=self.pace)):
                return ""
        except FileNotFoundError:
            return f"{storage.uri(source[1])} is gone"  # somebody deletes the earlier backup
        except StorageError as error:
            return str(error)  # it is archived, or no longer to be read: the graph has it
        self.meter.add(file.size)
        self._done(file)
        return None

    def _prove(self, file: CutFile) -> CutFile:
        """Only a checksum of the original says what the copy that is there has to be. Reads the original."""
        checksum = checksum_of(self.source, file.source, self.pace)
        self.meter.add(file.size)
        return self._done(replace(file, checksum=checksum))

    def _done(self, file: CutFile) -> CutFile:
        self.journal.note(JournalledFile(file=file.file, size=file.size, checksum=file.checksum))
        return file

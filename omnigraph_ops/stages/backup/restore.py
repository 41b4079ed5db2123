"""Make a graph of a backup at an empty place, and prove that it is the one that was backed up.

The graph manifest comes late, and one file of the schema contract last: without that neither an engine nor this tool
opens a graph. So a killed restore leaves nothing that anybody would take for the graph, and a note by which the next
restore of the same backup goes on. A lease at the place keeps two restores apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.lease import LeaseKeeper, LeasePlace, patient_lease
from omnigraph_ops.coordination.state import PROBE_PREFIX, RESTORE_LEASE_PATH
from omnigraph_ops.errors import CorruptGraph, InvalidInput, OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MANIFEST_DIR, RESTORING_PATH, SCHEMA_STATE_FILE
from omnigraph_ops.graph.opening import backup_around, open_graph
from omnigraph_ops.models.backup import BackedFile, BackupRecord, FileProblem, RecordedRoot, RestoreReport, Tally
from omnigraph_ops.models.freeze import CutFileKind
from omnigraph_ops.outcomes.backups import backup_of, graph_around, place_of, present_files, read_record, stored_at
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, Meter, Progress
from omnigraph_ops.stages.backup.transfer import CopyPace, remove_all
from omnigraph_ops.stages.backup.verify import compare_rows
from omnigraph_ops.stages.freeze.files import checksum_of
from omnigraph_ops.stages.freeze.roots import rename_roots
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.storage.copying import Expected, copy_file, copy_within
from omnigraph_ops.storage.half_written import is_half_written
from omnigraph_ops.storage.inventory import files_below, sizes_below
from omnigraph_ops.storage.location import refuse_as_new_place
from omnigraph_ops.storage.store import Storage

_TURN = LeasePlace(path=RESTORE_LEASE_PATH, name="the restore")
_LAST_FOLDERS = (f"{MANIFEST_DIR}/", f"{MANIFEST_DIR}/_versions/")


def restore_backup(
    target: str,
    place: str,
    *,
    settings: Settings | None = None,
    bytes_per_second: int | None = None,
    mover: Mover | None = None,
    progress: Progress = SILENT,
) -> RestoreReport:
    """Put the graph of a backup at `place`, which must be empty, and check the result. Writes there only.

    Where another restore of this backup put all of it, and nothing came since, the result is checked, and no more.

    Args:
        mover: what restores the files; None: the threads of this process, at `bytes_per_second`.

    Raises:
        InvalidInput: it is no finished backup, there is something at the place, the place is inside a graph, or a graph
            would not be whole there.
        LeaseHeld: another restore to this place is at work.
        CorruptGraph: a file of the backup is not what was backed up; the restored graph has no manifest.
    """
    began = time.time()
    storage, backup_id = backup_of(target)
    record = read_record(storage, backup_id)
    destination = place_of(place)
    if any(file.file.startswith(f"{MANIFEST_DIR}/") for file in record.files):
        refuse_as_new_place(destination.root)
    if (backup := backup_around(destination)) is not None:
        raise InvalidInput(f"{destination.root} is inside the backup {backup}; nothing was written; restore elsewhere")
    if (above := graph_around(destination, itself=False)) is not None:
        raise InvalidInput(f"{destination.root} is inside the graph {above}; nothing was written; restore elsewhere")
    _refuse_incomplete(storage, record)
    if _is_restored(_present(destination, record), record):
        compared = _compared(destination, settings, record, storage.uri(backup_id), began)
        return replace(compared, total=Tally(), relocated=0)
    with patient_lease(destination, _TURN, purpose="restore") as keeper:
        present = _claim_place(destination, record)
        work = FileRestorer(
            backup=storage,
            backup_id=record.backup_id,
            destination=destination,
            roots=record.roots,
            workers=(settings or Settings.from_env()).concurrency,
            pace=CopyPace(bytes_per_second, keeper.assert_lately),
            meter=Meter(progress, "restoring", record.total.bytes, "bytes"),
        )
        _restore(mover or work, destination, record, present, keeper)
        note_stays = _drop_note(destination, record)
    return replace(_compared(destination, settings, record, storage.uri(backup_id), began), note_stays=note_stays)


def _drop_note(destination: Storage, record: BackupRecord) -> str | None:
    """Say that the restore has ended; why its note stays where nobody may delete, else None. Destroys the note.

    Raises:
        StorageError: it stays, and by it plain Lance counts as half restored.
    """
    try:
        destination.delete(RESTORING_PATH)
    except StorageError as error:
        if not record.branches:
            raise
        return str(error)
    return None


def _refuse_incomplete(backup: Storage, record: BackupRecord) -> None:
    """Refuse a backup of which a file is missing or has another size, before anything is written. Reads."""
    wrong = _first_wrong(record.files, present_files(backup, record.backup_id))
    if wrong is not None:
        raise CorruptGraph(
            f"{wrong[0]} of the backup {backup.uri(record.backup_id)} {wrong[1]}; nothing was written; verify the "
            "backup"
        )


def _first_wrong(files: Iterable[BackedFile], sizes: Mapping[str, int]) -> tuple[str, str] | None:
    """The first file that is not there with the size of its record, and how it is. Pure."""
    for file in files:
        size = sizes.get(file.file)
        if size != file.size:
            return file.file, "is missing" if size is None else f"has {size} bytes instead of {file.size}"
    return None


def _present(destination: Storage, record: BackupRecord) -> dict[str, int]:
    """What a kill of this very restore left; a place that has anything else is refused. Reads."""
    found = {s.path: s.size for s in files_below(destination, "")}
    foreign = _foreign(destination, record, found)
    if RESTORING_PATH in foreign:
        raise InvalidInput(
            f"a restore of another backup to {destination.root} did not end; nothing was written; run that one again, "
            "or restore to an empty place"
        )
    if foreign and not (RESTORING_PATH in found and _has_every_file(found, record)):
        raise InvalidInput(
            f"there is something at {destination.root} ({foreign[0]}); nothing was written; restore to an empty place"
        )
    return found


def _foreign(destination: Storage, record: BackupRecord, found: Mapping[str, int]) -> list[str]:
    """The files there that are not of this restore, sorted. Reads."""
    ours = {path for path in found if path.startswith((RESTORING_PATH, _TURN.path, PROBE_PREFIX))}
    if RESTORING_PATH in found and not _is_note_of(destination, record):
        ours.remove(RESTORING_PATH)
    elif RESTORING_PATH in found or _is_restored(found, record):
        # Anything else came after the graph was opened here.
        ours.update(filter(is_half_written, found), (f.file for f in record.files))
    return sorted(set(found) - ours)


def _is_restored(found: Mapping[str, int], record: BackupRecord) -> bool:
    """Whether a restore put every file there and dropped its note; it could not compare the graph perhaps. Pure."""
    return RESTORING_PATH not in found and _has_every_file(found, record)


def _has_every_file(found: Mapping[str, int], record: BackupRecord) -> bool:
    copied = (file for file in record.files if not file.records_root)
    return all(file.file in found for file in record.files) and _first_wrong(copied, found) is None


def _is_note_of(destination: Storage, record: BackupRecord) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return destination.read(RESTORING_PATH) == record.digest.encode()
    return False


def _claim_place(destination: Storage, record: BackupRecord) -> dict[str, int]:
    """Say what is restored here, for whoever goes on; what is there already. Writes a note.

    Raises:
        InvalidInput: another restore came to its end since; a note would make its graph count as half restored. Or a
            killed restore had ended but for its note, and somebody wrote to the graph since: the note is dropped.
    """
    found = _present(destination, record)
    if _is_restored(found, record):
        raise InvalidInput(
            f"another restore of this backup to {destination.root} has just ended; nothing was written; run again to "
            "compare what is there"
        )
    if since := _foreign(destination, record, found):
        _drop_note(destination, record)
        raise InvalidInput(
            f"a killed restore had put every file of this backup at {destination.root}, and somebody wrote there since "
            f"({since[0]}); its note is removed; nothing else was written, and nothing was "
            "compared; go on with `omnigraph-ops check`"
        )
    destination.write(RESTORING_PATH, record.digest.encode())
    half = [path for path in found if is_half_written(path) and not path.startswith(_TURN.path)]
    remove_all(destination, half, "a restore that did not end")
    return found


Mover = Callable[[Sequence[BackedFile], Mapping[str, int]], None]
"""Restores these files, given the sizes of those that a killed restore may have got. Writes.

Raises `CorruptGraph` where a file of the backup is not what was backed up.
"""


def _restore(
    mover: Mover, destination: Storage, record: BackupRecord, present: Mapping[str, int], keeper: LeaseKeeper
) -> None:
    """Restore everything, wave after wave; the last one only beside files that are whole. Writes."""
    *early, last = _waves(record.files)
    for wave in early:
        keeper.assert_held()
        mover(wave, present)
        destination.sync_names(f.file for f in wave)
    _refuse_not_copied(destination, [f for wave in early for f in wave])
    keeper.assert_held()
    mover(last, present)
    destination.sync_names(f.file for f in last)
    keeper.assert_held()


def _refuse_not_copied(destination: Storage, files: Iterable[BackedFile]) -> None:
    """Compare sizes at the place with the record: what a store copies by itself passes no other check. Reads.

    Files with the new root have another size, and were read again.
    """
    wrong = _first_wrong((f for f in files if not f.records_root), sizes_below(destination, ""))
    if wrong is not None:
        raise CorruptGraph(
            f"{destination.uri(wrong[0])} {wrong[1]} after it was copied; there is no graph at the place yet; verify "
            "the backup, then run the same restore again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRestorer:
    """Restores files on the threads of this process."""

    backup: Storage
    backup_id: str
    destination: Storage
    roots: tuple[RecordedRoot, ...]
    workers: int
    pace: CopyPace
    meter: Meter

    def __call__(self, files: Sequence[BackedFile], present: Mapping[str, int], /) -> None:
        def one(file: BackedFile) -> None:
            self._one(file, present.get(file.file))

        in_parallel(one, files, workers=self.workers, on_error=self.pace.stop)

    def _one(self, file: BackedFile, there: int | None) -> None:
        try:
            if file.records_root:
                self._relocate(file)
            elif not self._is_there(file, there):
                self._copy(file)
        except FileNotFoundError as error:
            raise CorruptGraph(
                f"{error.filename or file.file} went during the restore; there is no graph at the place yet; "
                "verify the backup"
            ) from None

    def _is_there(self, file: BackedFile, size: int | None) -> bool:
        """Whether a killed restore got it: only a checksum says that. Reads."""
        if size != file.size or file.checksum is None:
            return False
        return checksum_of(self.destination, file.file) == file.checksum

    def _copy(self, file: BackedFile) -> None:
        source = (self.backup, stored_at(self.backup_id, file.file))
        target = (self.destination, file.file)
        if file.checksum is None and copy_within(source, target, file.size, pacing=self.pace):
            self.meter.add(file.size)
            return
        expected = Expected(size=file.size, checksum=file.checksum)
        try:
            checksum = copy_file(source, target, expected, pacing=self.pace, on_bytes=self.meter.add)
        except CorruptGraph as error:
            raise CorruptGraph(f"{error}; {self._instead}") from None
        self._prove(file, checksum)

    @property
    def _instead(self) -> str:
        """What holds at the place after a damaged file, and what to do. Pure."""
        return (
            f"there is no graph at {self.destination.root}, the graph that was backed up is not touched; "
            "restore an earlier backup to another, empty place (`omnigraph-ops backups` lists them)"
        )

    def _relocate(self, file: BackedFile) -> None:
        """A manifest of a branch names the root of its dataset: give it the new one. Writes."""
        data = self.backup.read(stored_at(self.backup_id, file.file))
        if file.checksum not in (None, _sum(data)) or len(data) != file.size:
            raise CorruptGraph(f"{file.file} of the backup is not what was backed up; {self._instead}")
        moved = rename_roots(data, self._new_root)
        self.pace.wait_for(len(moved))
        self.destination.write(file.file, moved)
        self.meter.add(file.size)
        self._prove(file, _sum(moved))

    def _new_root(self, recorded: str) -> str:
        places = [root.place for root in self.roots if root.recorded == recorded]
        if not places:
            raise CorruptGraph(f"the backup says nothing about the root {recorded!r} that one of its files records")
        return recorded if places[0] is None else self.destination.uri(places[0])

    def _prove(self, file: BackedFile, checksum: str) -> None:
        """Read again what was written. Reads."""
        if checksum_of(self.destination, file.file) != checksum:
            raise CorruptGraph(f"{self.destination.root}/{file.file} does not read as it was written")


def _waves(files: Sequence[BackedFile]) -> list[list[BackedFile]]:
    """Files, versions of tables, branches of the graph manifest, main of it, and in the end the schema state. Pure.

    Main may have several versions, of which each alone would open as a graph that is not the one of the backup.
    """
    waves: list[list[BackedFile]] = [[], [], [], [], []]
    for file in files:
        late = file.kind is CutFileKind.MANIFEST
        wave = late + sum(late and file.file.startswith(folder) for folder in _LAST_FOLDERS)
        waves[-1 if file.file == SCHEMA_STATE_FILE else wave].append(file)
    return [wave for wave in waves if wave]


def _sum(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _compared(
    destination: Storage, settings: Settings | None, record: BackupRecord, backup: str, began: float
) -> RestoreReport:
    """Compare what was restored with the record; `StorageError` where it cannot be read. Reads."""
    try:
        return _report(open_graph(destination.root, settings), record, backup, began)
    except OpsError as error:
        why = str(error).replace("; nothing was written", "")
        raise StorageError(
            f"every file of the backup is at {destination.root}, but the graph could not be compared with the record: "
            f"{why}; the same restore, run again, compares it and writes nothing"
        ) from error


def _report(graph: Graph, record: BackupRecord, backup: str, began: float) -> RestoreReport:
    found = check(graph)
    problems = [FileProblem(file=graph.uri, reason=text) for text in found.advice]
    if not found.status.is_settled and not problems:
        problems.append(FileProblem(file=graph.uri, reason=f"check says {found.status.value}"))
    return RestoreReport(
        backup=backup,
        uri=graph.uri,
        total=record.total,
        relocated=sum(f.records_root for f in record.files),
        branches=len(record.branches),
        tables=len({r.table_key for r in record.rows}),
        rows=sum(r.rows for r in record.rows),
        seconds=round(time.time() - began, 3),
        problems=(*problems, *compare_rows(graph, record)),
    )

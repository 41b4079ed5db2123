"""Read a backup again, all of it, and say precisely what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.backup import BackedFile, BackupRecord, FileProblem, VerifyReport
from omnigraph_ops.outcomes.backup_places import backup_of, present_files, stored_at, uri_of
from omnigraph_ops.outcomes.backup_records import read_record
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, Meter, Progress
from omnigraph_ops.stages.backup.pace import CopyPace
from omnigraph_ops.stages.backup.plan import IMMUTABLE, tally
from omnigraph_ops.stages.freeze.checksums import checksum_of
from omnigraph_ops.storage.copying import is_half_written
from omnigraph_ops.storage.inventory import OpsFault, look_again
from omnigraph_ops.storage.options import AMBIENT, StoreAccess
from omnigraph_ops.storage.store import Storage

_WORKERS = 8


def verify_backup(
    target: str,
    *,
    graph: Graph | None = None,
    access: StoreAccess = AMBIENT,
    bytes_per_second: int | None = None,
    progress: Progress = SILENT,
) -> VerifyReport:
    """Compare every file of a backup with its record; with a graph, also what that still has of them. Reads all.

    Raises:
        InvalidInput: it is no finished backup.
        CorruptGraph: its record is damaged.
    """
    storage, backup_id = backup_of(target, access)
    record = read_record(storage, backup_id)
    pace = CopyPace(bytes_per_second)
    present = present_files(storage, backup_id)
    shared = _shared(graph, record) if graph is not None else ()
    work = tally((*record.files, *(look.file for look in shared)))
    reader = _FileReader(pace, Meter(progress, "verifying", work.bytes, "bytes"))
    problems = [
        *_extra(present, record),
        *reader.check(storage, [_kept(backup_id, f, present) for f in record.files]),
        *(reader.check(graph.storage, shared, "in the graph it ") if graph is not None else ()),
    ]
    return VerifyReport(
        backup=uri_of(storage, backup_id),
        uri=record.uri,
        total=tally(record.files),
        without_checksum=sum(f.checksum is None for f in record.files),
        compared_with_graph=len(shared),
        problems=tuple(problems),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One file to compare: where it is and what a listing says of it."""

    path: str
    file: BackedFile
    size: int | None
    """None when it is not there."""
    fault: str | None = None
    """Why nobody can tell."""


class _FileReader:
    """Reads files side by side and compares them."""

    def __init__(self, pace: CopyPace, meter: Meter) -> None:
        self._pace, self._meter = pace, meter

    def check(self, storage: Storage, looks: Sequence[_Look], where: str = "") -> list[FileProblem]:
        """What is wrong with these files. Reads them."""

        def one(look: _Look) -> FileProblem | None:
            reason = self._reason(storage, look)
            return FileProblem(file=look.file.file, reason=f"{where}{reason}") if reason is not None else None

        problems = in_parallel(one, looks, workers=_WORKERS, on_error=self._pace.stop)
        return [p for p in problems if p is not None]

    def _reason(self, storage: Storage, look: _Look) -> str | None:
        if look.fault is not None:
            return f"cannot be looked at: {look.fault}"
        if look.size is None:
            return "is missing"
        if look.size != look.file.size:
            return f"has {look.size} bytes instead of {look.file.size}"
        try:
            checksum = checksum_of(storage, look.path, self._pace)
        except FileNotFoundError:
            return "is missing"
        except StorageError as error:
            return f"cannot be read: {error}"
        self._meter.add(look.size)
        if look.file.checksum not in (None, checksum):
            return f"has the checksum {checksum} instead of {look.file.checksum}"
        return None


def _kept(backup_id: str, file: BackedFile, present: Mapping[str, int]) -> _Look:
    return _Look(path=stored_at(backup_id, file.file), file=file, size=present.get(file.file))


def _extra(present: Mapping[str, int], record: BackupRecord) -> Iterable[FileProblem]:
    """Files that the record does not know: a restore does not take them. Pure."""
    for file in sorted(set(present) - {f.file for f in record.files}):
        if not is_half_written(file):
            yield FileProblem(file=file, reason="is not in the record of the backup")


def _shared(graph: Graph, record: BackupRecord) -> tuple[_Look, ...]:
    """Files that never change and that the graph still has. Reads."""
    lasting = [f for f in record.files if f.kind in IMMUTABLE]
    found = look_again(graph.storage, [f.file for f in lasting])
    return tuple(
        _Look(path=f.file, file=f, size=None, fault=item.reason)
        if isinstance(item, OpsFault)
        else _Look(path=f.file, file=f, size=item.size)
        for f, item in zip(lasting, found, strict=True)
        if item is not None
    )

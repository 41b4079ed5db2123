"""Read a backup again, all of it, and say precisely what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph_ops.backup.pace import Meter, Pace, Say
from omnigraph_ops.backup.places import backup_of, stored_at, uri_of
from omnigraph_ops.backup.plan import IMMUTABLE, tally
from omnigraph_ops.backup.records import read_record
from omnigraph_ops.backup.take import present_files
from omnigraph_ops.edges.copying import is_half_written
from omnigraph_ops.edges.inventory import look_again
from omnigraph_ops.edges.options import AMBIENT, StoreAccess
from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.errors import CorruptGraph, StorageError
from omnigraph_ops.freeze.checksums import checksum_of
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.backup import BackedFile, BackupRecord, FileProblem, VerifyReport
from omnigraph_ops.parallel import in_parallel

_WORKERS = 8


def verify_backup(
    target: str,
    *,
    graph: Graph | None = None,
    access: StoreAccess = AMBIENT,
    bytes_per_second: int | None = None,
    on_progress: Say | None = None,
) -> VerifyReport:
    """Compare every file of a backup with its record; with a graph, also what that still has of them. Reads all.

    Raises:
        InvalidInput: it is no finished backup.
        CorruptGraph: its record is damaged.
    """
    storage, backup_id = backup_of(target, access)
    record = read_record(storage, backup_id)
    pace = Pace(bytes_per_second)
    shared = _shared(graph, record) if graph is not None else ()
    work = tally((*record.files, *shared))
    reader = _Reader(pace, Meter("verified", work.files, work.bytes, on_progress))
    problems = [
        *_extra(storage, record),
        *reader.check(storage, [(stored_at(backup_id, f.file), f) for f in record.files]),
        *(reader.check(graph.storage, [(f.file, f) for f in shared], "in the graph it ") if graph is not None else ()),
    ]
    return VerifyReport(
        backup=uri_of(storage, backup_id),
        uri=record.uri,
        total=tally(record.files),
        without_checksum=sum(f.checksum is None for f in record.files),
        compared_with_graph=len(shared),
        problems=tuple(problems),
    )


class _Reader:
    """Reads files side by side and compares them."""

    def __init__(self, pace: Pace, meter: Meter) -> None:
        self._pace, self._meter = pace, meter

    def check(self, storage: Storage, files: Sequence[tuple[str, BackedFile]], where: str = "") -> list[FileProblem]:
        """What is wrong with these files. Reads them."""
        found = look_again(storage, [path for path, _ in files])
        sizes = [getattr(item, "size", None) for item in found]

        def one(at: tuple[tuple[str, BackedFile], int | None]) -> FileProblem | None:
            (path, file), size = at
            reason = self._reason(storage, path, file, size)
            return FileProblem(file=file.file, reason=f"{where}{reason}") if reason is not None else None

        problems = in_parallel(one, list(zip(files, sizes, strict=True)), workers=_WORKERS)
        return [p for p in problems if p is not None]

    def _reason(self, storage: Storage, path: str, file: BackedFile, size: int | None) -> str | None:
        if size is None:
            return "is missing"
        if size != file.size:
            return f"has {size} bytes instead of {file.size}"
        self._pace.wait_for(size)
        try:
            checksum = checksum_of(storage, path)
        except (CorruptGraph, StorageError) as error:
            return f"cannot be read: {error}"
        self._meter.add(size=size, files=1)
        if file.checksum not in (None, checksum):
            return f"has the checksum {checksum} instead of {file.checksum}"
        return None


def _extra(storage: Storage, record: BackupRecord) -> Iterable[FileProblem]:
    """Files that the record does not know: a restore does not take them. Reads."""
    known = {f.file for f in record.files}
    for file in sorted(set(present_files(storage, record.backup_id)) - known):
        if not is_half_written(file):
            yield FileProblem(file=file, reason="is not in the record of the backup")


def _shared(graph: Graph, record: BackupRecord) -> tuple[BackedFile, ...]:
    """Files that never change and that the graph still has. Reads."""
    lasting = [f for f in record.files if f.kind in IMMUTABLE]
    found = look_again(graph.storage, [f.file for f in lasting])
    return tuple(f for f, item in zip(lasting, found, strict=True) if item is not None)

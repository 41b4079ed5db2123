"""Read a backup again, all of it, and say precisely what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from omnigraph_ops.errors import InvalidInput, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import BranchState
from omnigraph_ops.lance.gateway import live_rows
from omnigraph_ops.models.backup import (
    BackedFile,
    BackupRecord,
    FileProblem,
    RowCount,
    Tally,
    Verification,
    VerifyReport,
)
from omnigraph_ops.models.freeze import FrozenCut, PinRole
from omnigraph_ops.outcomes.backups import backup_of, present_files, read_record, stored_at, write_verification
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, Meter, Progress
from omnigraph_ops.stages.backup.transfer import IMMUTABLE, CopyPace
from omnigraph_ops.stages.freeze.files import checksum_of
from omnigraph_ops.storage.half_written import is_half_written
from omnigraph_ops.storage.inventory import OpsFault, look_again
from omnigraph_ops.storage.location import AMBIENT, StoreAccess
from omnigraph_ops.storage.store import Storage

_Place = tuple[str | None, str, str, str | None, int]
"""Graph branch, table key, path, Lance branch, version."""


def rows_of_cut(graph: Graph, cut: FrozenCut) -> tuple[RowCount, ...]:
    """The rows of every table on every branch of a cut. Reads."""
    return _counted(graph, _places(graph, cut))


def compare_rows(graph: Graph, record: BackupRecord) -> tuple[FileProblem, ...]:
    """What a restored graph publishes otherwise than the backup recorded. Reads."""
    wanted = {_key(row): row.rows for row in record.rows}
    live = (graph.state(name) for name in (None, *graph.branches()))
    places = _published(live) if record.branches else [_key(row) for row in record.rows]
    found = {_key(row): row.rows for row in _counted(graph, places)}
    problems = []
    for key in sorted({*wanted, *found}, key=repr):
        if wanted.get(key) != found.get(key):
            branch, table_key, path, lance_branch, version = key
            where = f"{path} branch {lance_branch}" if lance_branch else path
            reason = (
                f"{table_key} on {branch or 'main'} has {_said(found.get(key))} rows at version {version} instead of "
                f"{_said(wanted.get(key))}"
            )
            problems.append(FileProblem(file=where, reason=reason))
    return tuple(problems)


def _said(rows: int | None) -> str:
    return "no" if rows is None else f"{rows:,}"


def _key(row: RowCount) -> _Place:
    return row.branch, row.table_key, row.path, row.lance_branch, row.version


def _places(graph: Graph, cut: FrozenCut) -> list[_Place]:
    if not cut.branches:
        return [(None, p.table_key, p.path, p.branch, p.version) for p in cut.pins if p.role is PinRole.TABLE]
    return _published(graph.state(at.branch, at.manifest_version) for at in cut.branches)


def _published(states: Iterable[BranchState]) -> list[_Place]:
    """The tables of these states, which are read when their turn comes. Reads."""
    return [(s.branch, e.table_key, e.path, e.branch, e.version) for s in states for e in s.entries]


def _counted(graph: Graph, places: Iterable[_Place]) -> tuple[RowCount, ...]:
    listed = list(places)
    versions = sorted({place[2:] for place in listed}, key=repr)

    def rows(at: tuple[str, str | None, int]) -> int:
        path, branch, version = at
        return live_rows(graph.open_at(path, branch=branch, version=version))

    counts = dict(zip(versions, in_parallel(rows, versions, workers=graph.settings.concurrency), strict=True))
    return tuple(
        RowCount(branch=p[0], table_key=p[1], path=p[2], lance_branch=p[3], version=p[4], rows=counts[p[2:]])
        for p in listed
    )


_WORKERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLook:
    """One file to compare: where it is and what a listing says of it."""

    path: str
    file: BackedFile
    size: int | None
    """None when it is not there."""
    fault: str | None = None
    """Why nobody can tell."""


Reader = Callable[[Storage, Sequence[FileLook], str], Sequence[FileProblem]]
"""Reads these files of a store and says what is wrong with them, with a text before each reason. Reads."""


def verify_backup(
    target: str,
    *,
    graph: Graph | None = None,
    access: StoreAccess = AMBIENT,
    bytes_per_second: int | None = None,
    reader: Reader | None = None,
    progress: Progress = SILENT,
) -> VerifyReport:
    """Read every file of a backup, with a graph also what that still has of them, and compare. Writes the outcome.

    The outcome is one file in the folder of the backup; what is wrong in the graph is not in it.

    Args:
        reader: what reads the files; None: the threads of this process, at `bytes_per_second`.

    Raises:
        InvalidInput: it is no finished backup, or none of that graph.
        CorruptGraph: its record is damaged.
    """
    began = time.time()
    storage, backup_id = backup_of(target, access)
    record = read_record(storage, backup_id)
    present = present_files(storage, backup_id)
    shared = _shared(graph, record) if graph is not None else ()
    if graph is not None and not shared and graph.target != record.uri:
        raise InvalidInput(
            f"{graph.target} has none of the files of {storage.uri(backup_id)}, which is a backup of {record.uri}; "
            "nothing was compared; leave the graph out to verify the backup alone"
        )
    work = record.total + Tally.of(look.file for look in shared)
    if reader is None:
        reader = FileReader(CopyPace(bytes_per_second), Meter(progress, "verifying", work.bytes, "bytes"))
    looks = [FileLook(path=stored_at(backup_id, f.file), file=f, size=present.get(f.file)) for f in record.files]
    problems = (*_extra(present, record), *reader(storage, looks, ""))
    not_recorded = write_verification(storage, backup_id, Verification(verified_at=began, problems=problems))
    in_graph, went = _in_graph(reader, graph, shared) if graph is not None else ((), 0)
    return VerifyReport(
        backup=storage.uri(backup_id),
        uri=record.uri,
        total=record.total,
        without_checksum=sum(f.checksum is None for f in record.files),
        compared_with_graph=len(shared) - went,
        problems=(*problems, *in_graph),
        not_recorded=not_recorded,
    )


def _in_graph(reader: Reader, graph: Graph, shared: Sequence[FileLook]) -> tuple[list[FileProblem], int]:
    """What is wrong with these files in the graph, and how many of them the graph has no longer. Reads them.

    Optimize and cleanup may run meanwhile, and to read the backup takes long.
    """
    problems = reader(graph.storage, shared, "in the graph it ")
    found = look_again(graph.storage, [problem.file for problem in problems])
    there = [problem for problem, item in zip(problems, found, strict=True) if item is not None]
    return there, len(problems) - len(there)


class FileReader:
    """Reads files on the threads of this process."""

    def __init__(self, pace: CopyPace, meter: Meter) -> None:
        self._pace, self._meter = pace, meter

    def __call__(self, storage: Storage, looks: Sequence[FileLook], where: str, /) -> list[FileProblem]:
        """What is wrong with these files. Reads them."""

        def one(look: FileLook) -> FileProblem | None:
            reason = self._reason(storage, look)
            return FileProblem(file=look.file.file, reason=f"{where}{reason}") if reason is not None else None

        problems = in_parallel(one, looks, workers=_WORKERS, on_error=self._pace.stop)
        return [p for p in problems if p is not None]

    def _reason(self, storage: Storage, look: FileLook) -> str | None:
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


def _extra(present: Mapping[str, int], record: BackupRecord) -> Iterable[FileProblem]:
    """Files that the record does not know: a restore does not take them. Pure."""
    for file in sorted(set(present) - {f.file for f in record.files}):
        if not is_half_written(file):
            yield FileProblem(file=file, reason="is not in the record of the backup")


def _shared(graph: Graph, record: BackupRecord) -> tuple[FileLook, ...]:
    """Files that never change and that the graph still has. Reads."""
    lasting = [f for f in record.files if f.kind in IMMUTABLE]
    found = look_again(graph.storage, [f.file for f in lasting])
    return tuple(
        FileLook(path=f.file, file=f, size=None, fault=item.reason)
        if isinstance(item, OpsFault)
        else FileLook(path=f.file, file=f, size=item.size)
        for f, item in zip(lasting, found, strict=True)
        if item is not None
    )

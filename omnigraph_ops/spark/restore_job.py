"""The job `restore`: the files of a backup put back and read again by Spark tasks."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from omnigraph_ops.errors import CorruptGraph, OpsError, StorageError, TransientError
from omnigraph_ops.models.backup import BackedFile, BackupRecord, PlaceOfBackup, RecordedRoot, RestoreReport
from omnigraph_ops.outcomes.backups import backup_of, place_of, read_record
from omnigraph_ops.progress import SILENT, Meter
from omnigraph_ops.spark.job import Job, shared_rate
from omnigraph_ops.stages.backup.parts import THREADS, bounded
from omnigraph_ops.stages.backup.restore import FileRestorer, restore_backup
from omnigraph_ops.stages.backup.transfer import CopyPace
from omnigraph_ops.storage.copying import half_written_of
from omnigraph_ops.storage.inventory import OpsFault, below_folder, look_again, remove_files
from omnigraph_ops.storage.location import s3fs_options
from omnigraph_ops.storage.store import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring:
    """What every task of a restore has to know."""

    backup: PlaceOfBackup
    destination: str
    roots: tuple[RecordedRoot, ...]
    tries: int
    """How often Spark executes a task before it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFailure:
    """Why the files of a task could not be restored."""

    message: str
    final: bool
    """Another attempt cannot help."""


class SparkMover:
    """Restores files where the tasks run."""

    def __init__(self, context: SparkContext, restoring: Restoring, bytes_per_second: int | None) -> None:
        self._context, self._restoring, self._rate = context, restoring, bytes_per_second

    def __call__(self, files: Sequence[BackedFile], present: Mapping[str, int], /) -> None:
        """Restore these files. Writes, on the workers."""
        parts = [
            (part, {f.file: present[f.file] for f in part if f.file in present})
            for part in bounded(sorted(files, key=lambda f: -f.size), lambda f: f.size)
        ]
        if not parts:
            return
        tasks, rate = shared_rate(self._context, len(parts), self._rate)
        work = partial(restore_on_worker, self._restoring, rate)
        failed = [f for f in self._context.parallelize(parts, tasks).map(work).collect() if f is not None]
        if failed:
            worst = next((f for f in failed if f.final), failed[0])
            raise CorruptGraph(worst.message) if worst.final else StorageError(worst.message)
        self._sweep({f.file for f in files})

    def _sweep(self, files: set[str]) -> None:
        """Remove what lost workers had begun of these files. Destroys half-written files."""
        destination = Storage(self._restoring.destination, s3fs_options(self._restoring.destination))
        begun = [s.path for s in below_folder(destination, "") if half_written_of(s.path) in files]
        for fault in remove_files(destination, begun)[:1]:
            raise StorageError(f"cannot remove {fault.path} of a lost worker: {fault.reason}")


def restore_on_worker(
    restoring: Restoring, rate: int | None, part: tuple[Sequence[BackedFile], Mapping[str, int]]
) -> RestoreFailure | None:
    """Restore some files in this worker; None when all are there. Writes."""
    files, present = part
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    destination = Storage(restoring.destination, s3fs_options(restoring.destination))
    try:
        _restorer(restoring, destination, rate)(files, _found(destination, files) if attempt else present)
    except OpsError as error:
        final = not isinstance(error, (StorageError, TransientError))
        if not final and attempt + 1 < restoring.tries:
            raise
        return RestoreFailure(message=str(error), final=final)
    return None


def _restorer(restoring: Restoring, destination: Storage, rate: int | None) -> FileRestorer:
    return FileRestorer(
        backup=Storage(restoring.backup.root, s3fs_options(restoring.backup.root)),
        backup_id=restoring.backup.backup_id,
        destination=destination,
        roots=restoring.roots,
        workers=THREADS,
        pace=CopyPace(rate),
        meter=Meter(SILENT, "restoring", 0, "bytes"),
    )


def _found(destination: Storage, files: Sequence[BackedFile]) -> dict[str, int]:
    """What an earlier attempt at these files got. Reads."""
    found = look_again(destination, [f.file for f in files])
    return {f.file: s.size for f, s in zip(files, found, strict=True) if s is not None and not isinstance(s, OpsFault)}


def _restore(spark: SparkSession, arguments: Namespace) -> RestoreReport:
    storage, backup_id = backup_of(arguments.backup)
    record: BackupRecord = read_record(storage, backup_id)
    restoring = Restoring(
        backup=PlaceOfBackup(root=storage.root, backup_id=backup_id),
        destination=place_of(arguments.place).root,
        roots=record.roots,
        tries=int(spark.sparkContext.getConf().get("spark.task.maxFailures", "4")),
    )
    mover = SparkMover(spark.sparkContext, restoring, arguments.max_bytes_per_second)
    return restore_backup(arguments.backup, arguments.place, mover=mover)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--backup", required=True, help="the backup, as every executor reaches it")
    parser.add_argument("--place", required=True, help="the empty place, as every executor reaches it")
    parser.add_argument("--max-bytes-per-second", type=int, help="of all tasks together; default: no bound")


RESTORE = Job(
    name="restore", summary="Make a graph of a backup.", subject="backup", arguments=_arguments, work=_restore
)

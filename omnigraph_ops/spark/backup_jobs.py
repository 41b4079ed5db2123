"""The jobs `copy`, `verify` and `restore`: the files of a backup copied, read again and put back by Spark tasks.

The driver of a copy knows the numbers of the parts and nothing of the files: its memory does not grow with the backup.
Only problems come back from a verify.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark import SparkContext
from pyspark.sql import SparkSession

from omnigraph_ops.errors import CorruptGraph, OpsError, StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.backup import (
    BackedFile,
    CopyDone,
    CopyOrder,
    FileProblem,
    PlaceOfBackup,
    RecordedRoot,
    RestoreReport,
    VerifyReport,
)
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.outcomes.backups import backup_of, place_of, read_record
from omnigraph_ops.progress import SILENT, Meter
from omnigraph_ops.spark.job import Job, attempt, in_tasks, shared_rate, tries_of
from omnigraph_ops.stages.backup.parts import (
    THREADS,
    bounded,
    copy_part,
    failed_part,
    joined,
    read_order,
    said,
    sizes_now,
)
from omnigraph_ops.stages.backup.restore import FileRestorer, restore_backup
from omnigraph_ops.stages.backup.transfer import CopyPace, remove_all
from omnigraph_ops.stages.backup.verify import FileLook, FileReader, verify_backup
from omnigraph_ops.storage.half_written import half_written_of, stem_of
from omnigraph_ops.storage.inventory import below_folder
from omnigraph_ops.storage.store import Storage


def _copy(spark: SparkSession, arguments: Namespace) -> CopyDone:
    """Carry out every part of a submitted copy on the workers. Writes."""
    storage, backup_id = backup_of(arguments.backup)
    order, context = read_order(storage, backup_id), spark.sparkContext
    tasks, rate = shared_rate(context, order.parts, order.bytes_per_second)
    work = in_tasks(partial(copy_on_worker, storage.root, order, rate, tries_of(context)))
    done = context.parallelize(range(1, order.parts + 1), tasks).map(work).reduce(joined)
    if done.error is not None:
        raise StorageError(done.error) if done.retryable else OpsError(done.error)
    print(said(done), flush=True)
    return done


def copy_on_worker(root: str, order: CopyOrder, rate: int | None, tries: int, number: int) -> CopyDone:
    """Copy one part in this worker. Writes.

    A part that fails for the last time, or for good, returns its error instead of raising: otherwise Spark would end
    the other parts, and their work would wait for the next submit.
    """
    try:
        return copy_part(root, order, number, rate, again=attempt() > 0)
    except OpsError as error:
        failed = failed_part(error)
        if failed.retryable and attempt() + 1 < tries:
            raise
        return failed


def _copy_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--backup", required=True, help="the unfinished backup, as every executor reaches it")


COPY = Job(
    name="copy",
    summary="Copy the files of a submitted backup.",
    subject="backup",
    arguments=_copy_arguments,
    work=_copy,
)


def read_in_tasks(
    context: SparkContext, bytes_per_second: int | None, storage: Storage, looks: Sequence[FileLook], where: str
) -> list[FileProblem]:
    """What is wrong with these files: as `Reader`, where the tasks run. Reads them, on the workers."""
    parts = list(bounded(sorted(looks, key=lambda look: -(look.size or 0)), lambda look: look.size or 0))
    if not parts:
        return []
    tasks, rate = shared_rate(context, len(parts), bytes_per_second)
    work = in_tasks(partial(read_on_worker, storage.root, where, rate))
    found = context.parallelize(parts, tasks).map(work).collect()
    return sorted((problem for part in found for problem in part), key=lambda p: p.file)


def read_on_worker(root: str, where: str, rate: int | None, looks: Sequence[FileLook]) -> list[FileProblem]:
    """Read some files in this worker. Reads."""
    reader = FileReader(CopyPace(rate), Meter(SILENT, "verifying", 0, "bytes"))
    return reader(Storage(root), looks, where)


def _verify(spark: SparkSession, arguments: Namespace) -> VerifyReport:
    reader = partial(read_in_tasks, spark.sparkContext, arguments.max_bytes_per_second)
    graph = open_graph(arguments.graph) if arguments.graph is not None else None
    return verify_backup(arguments.backup, graph=graph, reader=reader)


def _verify_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--backup", required=True, help="the backup, as every executor reaches it")
    parser.add_argument("--graph", help="also compare what this graph still has of its files")
    parser.add_argument("--max-bytes-per-second", type=int, help="of all tasks together; default: no bound")


VERIFY = Job(name="verify", summary="Read a backup again.", subject="backup", arguments=_verify_arguments, work=_verify)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring:
    """What every task of a restore has to know."""

    backup: PlaceOfBackup
    destination: str
    roots: tuple[RecordedRoot, ...]
    tries: int
    """How often Spark executes a task before it gives up."""


def restore_in_tasks(
    context: SparkContext,
    restoring: Restoring,
    bytes_per_second: int | None,
    files: Sequence[BackedFile],
    present: Mapping[str, int],
) -> None:
    """Restore these files: as `Mover`, where the tasks run. Writes, on the workers."""
    parts = [
        (part, {f.file: present[f.file] for f in part if f.file in present})
        for part in bounded(sorted(files, key=lambda f: -f.size), lambda f: f.size)
    ]
    if not parts:
        return
    tasks, rate = shared_rate(context, len(parts), bytes_per_second)
    work = in_tasks(partial(restore_on_worker, restoring, rate))
    failed = [f for f in context.parallelize(parts, tasks).map(work).collect() if f is not None]
    if failed:
        worst = next((f for f in failed if not f.retryable), failed[0])
        raise StorageError(worst.error) if worst.retryable else CorruptGraph(worst.error)
    sweep_begun(restoring.destination, {stem_of(f.file) for f in files})


def sweep_begun(root: str, stems: set[str]) -> None:
    """Remove what lost workers had begun of files with these stems. Destroys half-written files."""
    destination = Storage(root)
    begun = [s.path for s in below_folder(destination, "") if half_written_of(s.path) in stems]
    remove_all(destination, begun, "a lost worker")


def restore_on_worker(
    restoring: Restoring, rate: int | None, part: tuple[Sequence[BackedFile], Mapping[str, int]]
) -> SubmitOutcome[None] | None:
    """Restore some files in this worker; None when all are there. Writes."""
    files, present = part
    destination = Storage(restoring.destination)
    try:
        if attempt():
            present = sizes_now(destination, {f.file: f.file for f in files})
        restorer = FileRestorer(
            backup=Storage(restoring.backup.root),
            backup_id=restoring.backup.backup_id,
            destination=destination,
            roots=restoring.roots,
            workers=THREADS,
            pace=CopyPace(rate),
            meter=Meter(SILENT, "restoring", 0, "bytes"),
        )
        restorer(files, present)
    except OpsError as error:
        if error.retryable and attempt() + 1 < restoring.tries:
            raise
        return SubmitOutcome(error=str(error), retryable=error.retryable)
    return None


def _restore(spark: SparkSession, arguments: Namespace) -> RestoreReport:
    storage, backup_id = backup_of(arguments.backup)
    record = read_record(storage, backup_id)
    restoring = Restoring(
        backup=PlaceOfBackup(root=storage.root, backup_id=backup_id),
        destination=place_of(arguments.place).root,
        roots=record.roots,
        tries=tries_of(spark.sparkContext),
    )
    mover = partial(restore_in_tasks, spark.sparkContext, restoring, arguments.max_bytes_per_second)
    return restore_backup(arguments.backup, arguments.place, mover=mover)


def _restore_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--backup", required=True, help="the backup, as every executor reaches it")
    parser.add_argument("--place", required=True, help="the empty place, as every executor reaches it")
    parser.add_argument("--max-bytes-per-second", type=int, help="of all tasks together; default: no bound")


RESTORE = Job(
    name="restore", summary="Make a graph of a backup.", subject="backup", arguments=_restore_arguments, work=_restore
)

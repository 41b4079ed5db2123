"""The job `copy`: the files of a backup, copied, linked and proven by Spark tasks.

The driver knows the numbers of the parts and nothing of the files: its memory does not grow with the backup.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial

from pyspark import TaskContext
from pyspark.sql import SparkSession

from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.models.backup import CopyDone, CopyOrder
from omnigraph_ops.outcomes.backups import backup_of
from omnigraph_ops.spark.job import Job, shared_rate
from omnigraph_ops.stages.backup.parts import copy_part, failed_part, joined, read_order, said


def _copy(spark: SparkSession, arguments: Namespace) -> CopyDone:
    """Carry out every part of a submitted copy on the workers. Writes."""
    storage, backup_id = backup_of(arguments.backup)
    order, context = read_order(storage, backup_id), spark.sparkContext
    tasks, rate = shared_rate(context, order.parts, order.bytes_per_second)
    tries = int(context.getConf().get("spark.task.maxFailures", "4"))
    work = partial(copy_on_worker, storage.root, order, rate, tries)
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
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    try:
        return copy_part(root, order, number, rate, again=attempt > 0)
    except OpsError as error:
        failed = failed_part(error)
        if failed.retryable and attempt + 1 < tries:
            raise
        return failed


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--backup", required=True, help="the unfinished backup, as every executor reaches it")


COPY = Job(
    name="copy", summary="Copy the files of a submitted backup.", subject="backup", arguments=_arguments, work=_copy
)

"""The job `verify`: every file of a backup read and compared by Spark tasks; only problems come back."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial

from pyspark import SparkContext
from pyspark.sql import SparkSession

from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.backup import FileProblem, VerifyReport
from omnigraph_ops.progress import SILENT, Meter
from omnigraph_ops.spark.job import Job, shared_rate
from omnigraph_ops.stages.backup.parts import bounded
from omnigraph_ops.stages.backup.transfer import CopyPace
from omnigraph_ops.stages.backup.verify import FileLook, FileReader, verify_backup
from omnigraph_ops.storage.location import s3fs_options
from omnigraph_ops.storage.store import Storage


class SparkReader:
    """Reads files where the tasks run."""

    def __init__(self, context: SparkContext, bytes_per_second: int | None) -> None:
        self._context, self._rate = context, bytes_per_second

    def __call__(self, storage: Storage, looks: Sequence[FileLook], where: str = "", /) -> list[FileProblem]:
        """What is wrong with these files. Reads them, on the workers."""
        parts = list(bounded(sorted(looks, key=lambda look: -(look.size or 0)), lambda look: look.size or 0))
        if not parts:
            return []
        tasks, rate = shared_rate(self._context, len(parts), self._rate)
        work = partial(read_on_worker, storage.root, where, rate)
        found = self._context.parallelize(parts, tasks).map(work).collect()
        return sorted((problem for part in found for problem in part), key=lambda p: p.file)


def read_on_worker(root: str, where: str, rate: int | None, looks: Sequence[FileLook]) -> list[FileProblem]:
    """Read some files in this worker. Reads."""
    reader = FileReader(CopyPace(rate), Meter(SILENT, "verifying", 0, "bytes"))
    return reader(Storage(root, s3fs_options(root)), looks, where)


def _verify(spark: SparkSession, arguments: Namespace) -> VerifyReport:
    reader = SparkReader(spark.sparkContext, arguments.max_bytes_per_second)
    graph = open_graph(arguments.graph) if arguments.graph is not None else None
    return verify_backup(arguments.backup, graph=graph, reader=reader)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--backup", required=True, help="the backup, as every executor reaches it")
    parser.add_argument("--graph", help="also compare what this graph still has of its files")
    parser.add_argument("--max-bytes-per-second", type=int, help="of all tasks together; default: no bound")


VERIFY = Job(name="verify", summary="Read a backup again.", subject="backup", arguments=_arguments, work=_verify)

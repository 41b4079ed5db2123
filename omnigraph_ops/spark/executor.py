"""Compaction tasks on Spark: one Lance task is one Spark task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pyspark import SparkContext

from omnigraph_ops.edges.lance_gateway import Dataset, LanceGateway
from omnigraph_ops.edges.lance_tables import RewriteTask, execute_task
from omnigraph_ops.edges.options import lance_options
from omnigraph_ops.models import Executor


class SparkExecutor:
    """Executes tasks in Spark's Python workers. Retried and speculative tasks write files of their own,
    and only the result that Spark accepts is ever committed."""

    kind = Executor.SPARK

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def execute(self, dataset: Dataset, tasks: Sequence[RewriteTask]) -> Iterator[str]:
        """One RewriteResult JSON per task. Writes data files, from the workers."""
        work = partial(execute_on_worker, str(dataset.uri), int(dataset.version))
        payloads = self._context.parallelize([t.payload for t in tasks], numSlices=max(len(tasks), 1))
        yield from payloads.map(work).collect()


def execute_on_worker(uri: str, version: int, payload: str) -> str:
    """Open the dataset in this worker and run one task. Writes data files.

    Credentials come from the worker's own environment, never with the task.
    """
    dataset = LanceGateway(lance_options(uri)).open(uri, version=version)
    return execute_task(dataset, payload)

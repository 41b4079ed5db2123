"""The work of a table on Spark: one Lance task is one Spark task, and so is one index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from pyspark import SparkContext, TaskContext

from omnigraph_ops.config.settings import MIB
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome, perform
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.lance.rewrites import TaskLimits
from omnigraph_ops.models import Executor, TablePlan
from omnigraph_ops.progress import Progress
from omnigraph_ops.spark.index_tasks import work_in_tasks
from omnigraph_ops.stages.optimize.units import Effort, IndexWriter, fold
from omnigraph_ops.storage.location import lance_options

# With one thread per task these bound a worker's memory whatever the size of the table.
_BATCH_ROWS = 4096
_IO_BUFFER_BYTES = 128 * MIB


class SparkExecutor:
    """Executes tasks in Spark's Python workers.

    A worker journals its result before it returns, so a driver that dies loses nothing. Retried and
    speculative tasks write files and journal entries of their own; only what Spark accepts is committed, and
    the rest is removed by name. What comes back to the driver is the name of a result, never the result.
    """

    kind = Executor.SPARK

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        """One outcome per order. Writes data files and the journal, from the workers."""
        conf = self._context.getConf()
        limits = TaskLimits(
            num_threads=int(conf.get("spark.task.cpus", "1")),
            batch_size=_BATCH_ROWS,
            io_buffer_size=_IO_BUFFER_BYTES,
        )
        tries = int(conf.get("spark.task.maxFailures", "4"))
        work = partial(execute_on_worker, str(dataset.uri), int(dataset.version), limits, tries)
        yield from self._context.parallelize(orders, numSlices=max(len(orders), 1)).map(work).collect()

    def index(self, graph: Graph, clone: Dataset, plan: TablePlan, effort: Effort, progress: Progress) -> None:
        """Each index in a task, where there are several; what no task did, here. Writes index files in the clone."""
        done = work_in_tasks(self._context, graph, clone, plan, progress)
        effort.folded += [index.name for index in plan.folds if index.name in done]
        effort.built += [index.name for index in plan.builds if index.name in done]
        left = replace(
            plan,
            folds=tuple(index for index in plan.folds if index.name not in done),
            builds=tuple(index for index in plan.builds if index.name not in done),
        )
        fold(IndexWriter.of(graph), clone, left, lambda: None, effort, progress)


def execute_on_worker(uri: str, version: int, limits: TaskLimits, tries: int, order: TaskOrder) -> TaskOutcome:
    """Open the dataset in this worker and run one task. Writes data files and the journal.

    Credentials come from the worker's own environment, never with the task. A task that fails for the last
    time says so instead of raising: else Spark would give up the other tasks with it.
    """
    context = TaskContext.get()
    try:
        dataset = LanceGateway(lance_options(uri)).open(uri, version=version)
        return perform(order, dataset, limits)
    except OpsError as error:
        if context is not None and context.attemptNumber() + 1 < tries:
            raise
        return TaskOutcome(index=order.index, attempt=None, error=str(error))

"""The job `rewrite`: optimize a table whose rewrites fill the cluster, or many small ones, each in one worker.

One Lance task is one Spark task. Indexes are made in tasks, too: `index_tasks`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from pyspark import SparkContext
from pyspark.sql import SparkSession

from omnigraph_ops.config.settings import MIB, Settings
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome, perform
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.lance.rewrites import TaskLimits
from omnigraph_ops.models.optimize import Executor, OptimizeReport, TablePlan, TableStats
from omnigraph_ops.parallel import Lot, deal, in_parallel
from omnigraph_ops.progress import About, Lines, Progress
from omnigraph_ops.requests import from_words
from omnigraph_ops.spark.index_tasks import work_in_tasks
from omnigraph_ops.spark.job import Job, attempt, in_tasks, tries_of
from omnigraph_ops.stages.optimize.index_work import IndexWriter, fold
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from omnigraph_ops.stages.optimize.stage import OptimizeRequest
from omnigraph_ops.stages.optimize.units import Effort
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.location import lance_options

_LOTS_PER_CORE = 2
"""The last lots to end are short beside the job, and few enough that their tables are published together."""


def _rewrite(spark: SparkSession, arguments: Namespace) -> OptimizeReport:
    """Optimize the tables; of several, one that fails carries its error in its row. Writes."""
    request = from_words(OptimizeRequest, arguments.request)
    graph, keys = open_graph(arguments.graph, request.settings(Settings.from_env())), arguments.table
    _settle(graph)
    context = spark.sparkContext
    if len(keys) == 1:
        return OptimizeReport.of(graph.uri, [_on_executors(context, graph, keys[0])])
    rows = {row.table_key: row for row in _every(context, graph, keys)}
    again = [row.table_key for row in rows.values() if row.error is not None]
    if again:
        # What a worker that died left is in their way perhaps, or another run was.
        _settle(graph)
        rows |= {row.table_key: row for row in _every(context, graph, again)}
    return OptimizeReport.of(graph.uri, [rows[key] for key in keys])


def _settle(graph: Graph) -> None:
    """Finish what a killed process left; the sidecars of live writers are left to them. Writes."""
    if sidecar_names(graph.storage):
        recover(graph)


def _every(context: SparkContext, graph: Graph, keys: Sequence[str]) -> Iterable[TableStats]:
    """The rows of the tables, first of those that are optimized whole in a worker. Writes."""
    live = {entry.table_key for entry in graph.state().entries}  # one that was dropped meanwhile is an error of its own
    plan = plan_optimize(graph, tables=[key for key in keys if key in live])
    large = {t.table_key for t in plan.productive() if t.cost_bytes >= graph.settings.small_table_bytes}
    lots = deal([key for key in keys if key not in large], lots=_LOTS_PER_CORE * max(context.defaultParallelism, 1))
    if lots:
        whole = in_tasks(partial(optimize_on_worker, graph.target, graph.settings))
        for rows in context.parallelize(lots, len(lots)).map(whole).collect():
            yield from rows
    # Side by side: the tasks of one fill what those of another leave, and their indexes are built meanwhile.
    work = partial(_isolated, partial(_on_executors, context), graph)
    yield from in_parallel(work, [key for key in keys if key in large], workers=graph.settings.concurrency)


def _on_executors(context: SparkContext, graph: Graph, table_key: str) -> TableStats:
    progress = About(Lines(partial(print, flush=True)), table_key)
    return optimize_table(graph, table_key, executor=SparkExecutor(context), progress=progress)


def optimize_on_worker(target: str, settings: Settings, lot: Lot) -> tuple[TableStats, ...]:
    """Optimize the tables of a lot in this worker, whole; windows that wait together share a publish. Writes.

    A worker that is lost has its lot done again, where what was published needs nothing more.
    """
    graph = open_graph(target, settings)
    rows = in_parallel(partial(_isolated, optimize_table, graph), lot, workers=settings.concurrency)
    return tuple(replace(row, executor=Executor.SPARK) for row in rows)


def _isolated(work: Callable[[Graph, str], TableStats], graph: Graph, table_key: str) -> TableStats:
    try:
        return work(graph, table_key)
    except OpsError as error:
        return TableStats(table_key=table_key, error=str(error))


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--graph", required=True, help="path or s3:// URI, as every executor reaches it")
    parser.add_argument("--table", required=True, action="append", help="table key, e.g. node:Person; more than once")
    parser.add_argument("--request", default="{}", help='what else is asked of optimize, e.g. {"policy": "tiered"}')


REWRITE = Job(name="rewrite", summary="Optimize tables.", subject="graph", arguments=_arguments, work=_rewrite)


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
        tries = tries_of(self._context)
        work = in_tasks(partial(execute_on_worker, str(dataset.uri), int(dataset.version), limits, tries))
        yield from self._context.parallelize(orders, numSlices=max(len(orders), 1)).map(work).collect()

    def index(self, graph: Graph, clone: Dataset, plan: TablePlan, effort: Effort, progress: Progress) -> None:
        """Each index in a task, or in several; what no task did, here. Writes index files in the clone."""
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
    try:
        dataset = LanceGateway(lance_options(uri)).open(uri, version=version)
        return perform(order, dataset, limits)
    except OpsError as error:
        if attempt() + 1 < tries:
            raise
        return TaskOutcome(index=order.index, attempt=None, error=str(error))

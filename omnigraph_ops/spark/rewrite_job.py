"""The job `rewrite`: optimize a table whose rewrites fill the cluster, or many small ones, each in one worker."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from pyspark import SparkContext
from pyspark.sql import SparkSession

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models import Executor, OptimizeReport, TableStats
from omnigraph_ops.parallel import Lot, deal, in_parallel
from omnigraph_ops.progress import About, Lines
from omnigraph_ops.requests import from_words
from omnigraph_ops.spark.executor import SparkExecutor
from omnigraph_ops.spark.job import Job
from omnigraph_ops.stages.optimize.request import OptimizeRequest
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from omnigraph_ops.stages.recovery.recover import recover

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
        whole = partial(optimize_on_worker, graph.target, graph.settings)
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

"""The job `rewrite`: fold, plan, execute on workers, commit, for one heavy table."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial

from pyspark.sql import SparkSession

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models import TableStats
from omnigraph_ops.progress import About, Lines
from omnigraph_ops.requests import from_words
from omnigraph_ops.spark.executor import SparkExecutor
from omnigraph_ops.spark.job import Job
from omnigraph_ops.stages.optimize.request import OptimizeRequest
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.recovery.recover import recover


def _rewrite(spark: SparkSession, arguments: Namespace) -> TableStats:
    """Optimize one table with its rewrites on Spark. Writes."""
    request = from_words(OptimizeRequest, arguments.request)
    graph, table_key = open_graph(arguments.graph, request.settings(Settings.from_env())), arguments.table
    if sidecar_names(graph.storage):
        # A killed driver of this table may have left one; those of live writers are left to them.
        recover(graph)
    return optimize_table(
        graph,
        table_key,
        executor=SparkExecutor(spark.sparkContext),
        progress=About(Lines(partial(print, flush=True)), table_key),
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--graph", required=True, help="path or s3:// URI, as every executor reaches it")
    parser.add_argument("--table", required=True, help="table key, e.g. node:Person")
    parser.add_argument("--request", default="{}", help='what else is asked of optimize, e.g. {"policy": "tiered"}')


REWRITE = Job(name="rewrite", summary="Optimize one table.", subject="table", arguments=_arguments, run=_rewrite)

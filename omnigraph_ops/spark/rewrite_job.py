"""The job `rewrite`: fold, plan, execute on workers, commit, for one heavy table."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial

from pyspark.sql import SparkSession

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models import RewritePolicy, TableStats
from omnigraph_ops.progress import About, Lines
from omnigraph_ops.spark.executor import SparkExecutor
from omnigraph_ops.spark.job import Job
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.recovery.recover import recover


def _rewrite(spark: SparkSession, arguments: Namespace) -> TableStats:
    """Optimize one table with its rewrites on Spark. Writes."""
    graph, table_key = open_graph(arguments.graph, _settings(arguments)), arguments.table
    if sidecar_names(graph.storage):
        # A killed driver of this table may have left one; those of live writers are left to them.
        recover(graph)
    return optimize_table(
        graph,
        table_key,
        executor=SparkExecutor(spark.sparkContext),
        progress=About(Lines(partial(print, flush=True)), table_key),
    )


def _settings(arguments: Namespace) -> Settings:
    """The driver's environment, and what this submit says otherwise. Reads."""
    return Settings.from_env().for_run(
        policy=arguments.policy,
        cutoff=arguments.cutoff,
        auto=arguments.auto,
        defer_index_remap=arguments.defer_index_remap,
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--graph", required=True, help="path or s3:// URI, as every executor reaches it")
    parser.add_argument("--table", required=True, help="table key, e.g. node:Person")
    parser.add_argument("--policy", choices=[p.value for p in RewritePolicy], help="default: the setting")
    parser.add_argument("--cutoff", type=int, help="bound on small fragments; default: the setting")
    parser.add_argument("--auto", action="store_true", help="only if the table is past a threshold")
    parser.add_argument("--defer-index-remap", action="store_true", help="do not rewrite indexes during compaction")


REWRITE = Job(name="rewrite", summary="Optimize one table.", subject="table", arguments=_arguments, run=_rewrite)

"""The application that `spark-submit` runs for one heavy table: fold, plan, execute on workers, commit.

spark-submit --master MASTER rewrite_table.py --graph URI --table KEY [--result-uri PATH]

It may be submitted again after any failure: what a killed driver armed is finished first, and what its
workers finished is not executed again (docs/how-to/spark.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import OpsError, StorageError, TransientError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models import RewritePolicy, TableStats
from omnigraph_ops.models.optimize import SubmitOutcome
from omnigraph_ops.progress import About, Lines
from omnigraph_ops.spark.executor import SparkExecutor
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.location import locate, s3fs_options
from omnigraph_ops.storage.store import Storage


def main(argv: Sequence[str] | None = None) -> int:
    """Optimize one table with its rewrites on Spark; the outcome goes to `--result-uri`. Writes."""
    arguments = _parser().parse_args(argv)
    spark = SparkSession.builder.appName(f"omnigraph rewrite {arguments.table}").getOrCreate()
    try:
        stats = _optimize(spark, arguments)
    except OpsError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        retryable = isinstance(error, (TransientError, StorageError))
        write_outcome(arguments.result_uri, SubmitOutcome(error=str(error), retryable=retryable))
        return error.exit_code
    finally:
        spark.stop()
    write_outcome(arguments.result_uri, SubmitOutcome(stats=stats))
    return 0


def _optimize(spark: SparkSession, arguments: argparse.Namespace) -> TableStats:
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


def _settings(arguments: argparse.Namespace) -> Settings:
    """The driver's environment, and what this submit says otherwise. Reads."""
    return Settings.from_env().for_run(policy=arguments.policy, cutoff=arguments.cutoff, auto=arguments.auto)


def write_outcome(uri: str | None, outcome: SubmitOutcome) -> None:
    """Put the outcome where the submitting task reads it, atomically; without a place, print it. Writes."""
    text = serde.dumps(outcome)
    if uri is None:
        print(text, flush=True)
        return
    root, _, name = locate(uri).root.rpartition("/")
    Storage(root, s3fs_options(root)).write(name, text.encode())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rewrite_table.py", description="Optimize one table on Spark.", allow_abbrev=False
    )
    parser.add_argument("--graph", required=True, help="path or s3:// URI, as every executor reaches it")
    parser.add_argument("--table", required=True, help="table key, e.g. node:Person")
    parser.add_argument("--result-uri", help="where the outcome goes, as JSON; default: standard output")
    parser.add_argument("--policy", choices=[p.value for p in RewritePolicy], help="default: the setting")
    parser.add_argument("--cutoff", type=int, help="bound on small fragments; default: the setting")
    parser.add_argument("--auto", action="store_true", help="only if the table is past a threshold")
    return parser


if __name__ == "__main__":
    sys.exit(main())

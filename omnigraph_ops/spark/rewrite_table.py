"""The application that `spark-submit` runs for one heavy table: fold, plan, execute on workers, commit.

spark-submit --master MASTER rewrite_table.py --graph URI --table KEY --result-uri PATH
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import PurePath

from pyspark.sql import SparkSession

from omnigraph_ops import serde
from omnigraph_ops.edges.options import s3fs_options
from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.optimize import optimize_table
from omnigraph_ops.spark.executor import SparkExecutor


def main(argv: Sequence[str] | None = None) -> int:
    """Optimize one table with its rewrites on Spark; the TableStats go to `--result-uri`. Writes."""
    arguments = _parser().parse_args(argv)
    spark = SparkSession.builder.appName(f"omnigraph rewrite {arguments.table}").getOrCreate()
    try:
        stats = optimize_table(
            open_graph(arguments.graph),
            arguments.table,
            executor=SparkExecutor(spark.sparkContext),
            on_progress=lambda text: print(f"{arguments.table}: {text}", flush=True),
        )
    except OpsError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    finally:
        spark.stop()
    write_result(arguments.result_uri, serde.dumps(stats))
    return 0


def write_result(uri: str, text: str) -> None:
    """Put the result where the submitting task reads it, atomically. Writes."""
    folder, _, name = uri.rpartition("/")
    root = folder if uri.startswith("s3://") else str(PurePath(folder or "."))
    Storage(root, s3fs_options(root)).write(name, text.encode())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rewrite_table.py", description="Optimize one table on Spark.")
    parser.add_argument("--graph", required=True, help="path or s3:// URI, as every executor reaches it")
    parser.add_argument("--table", required=True, help="table key, e.g. node:Person")
    parser.add_argument("--result-uri", required=True, help="where the outcome goes, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())

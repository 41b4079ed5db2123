"""The application that `calibrate` submits: one table after the other in one session, with a clock beside it.

In one session, because the start of a session varies by more than a rewrite takes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from omnigraph_ops import serde
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.optimize import Seconds
from omnigraph_ops.spark.rewrite_job import SparkExecutor
from omnigraph_ops.stages.optimize.run import optimize_table


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite the one table below each root; the seconds of each go to `--result`. Writes."""
    parser = argparse.ArgumentParser(prog="measure.py", description="Time rewrites on Spark.", allow_abbrev=False)
    parser.add_argument("--result", required=True, help="where the seconds go, as JSON")
    parser.add_argument("roots", nargs="+")
    arguments = parser.parse_args(argv)
    spark = SparkSession.builder.appName("omnigraph calibrate").getOrCreate()
    try:
        seconds = tuple(_rewrite(spark, root) for root in arguments.roots)
    except OpsError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    finally:
        spark.stop()
    Path(arguments.result).write_text(serde.dumps(Seconds(of_each=seconds)), encoding="utf-8")
    return 0


def _rewrite(spark: SparkSession, root: str) -> float:
    graph = open_graph(root)
    (entry,) = graph.state().entries
    started = time.perf_counter()
    optimize_table(graph, entry.table_key, executor=SparkExecutor(spark.sparkContext))
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())

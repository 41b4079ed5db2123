"""Claim: a Spark worker stays under 1 GB while a table of 5 GB is compacted, and one of rows of a megabyte, too.

A plain Lance table of wide rows is rewritten on Spark's local cores with everything encoded anew (nothing is
copied, which needs less), and the resident memory of each Python worker is sampled. Needs 11 GB of disk.

    python bench/bench_worker_memory.py [GIGABYTES] [BYTES_PER_ROW]
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

from omnigraph_ops.spark.java import spark_environment

os.environ |= spark_environment()

from pyspark.sql import SparkSession

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo.tables import write_wide_table
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.optimize import BinaryCopy
from omnigraph_ops.spark.rewrite_job import SparkExecutor
from omnigraph_ops.stages.optimize.run import optimize_table

ROW_BYTES, FRAGMENT_BYTES = 620, 62_000_000
SETTINGS = Settings(small_table_bytes=0, target_rows_per_fragment=1_048_576, binary_copy=BinaryCopy.NEVER)


class Watch(threading.Thread):
    """The most resident memory that any Python worker of this machine's Spark held, in megabytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = 0.0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.2):
            self.most = max([self.most, *map(resident, Path("/proc").glob("[0-9]*"))])


def resident(process: Path) -> float:
    """Megabytes of a Spark worker; 0 for any other process, and for one that is gone."""
    try:
        if b"pyspark.worker" not in (process / "cmdline").read_bytes():
            return 0.0
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def main() -> None:
    gigabytes, width = float((*sys.argv, 5.0)[1]), int((*sys.argv[2:], ROW_BYTES)[0])
    rows = FRAGMENT_BYTES // width
    with tempfile.TemporaryDirectory() as folder:
        uri = str(Path(folder) / "wide.lance")
        write_wide_table(uri, fragments=round(gigabytes * 1e9 / FRAGMENT_BYTES), rows=rows, letters=width - 520)
        graph = open_graph(uri, SETTINGS)
        (entry,) = graph.state().entries
        session = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        watch = Watch()
        watch.start()
        stats = optimize_table(graph, entry.table_key, executor=SparkExecutor(session.sparkContext))
        watch.ended.set()
        session.stop()
        print(
            f"{stats.bytes_rewritten / 1e9:.1f} GB rewritten, {stats.fragments_removed} fragments into "
            f"{stats.fragments_added}; the largest worker held {watch.most:.0f} MB"
        )


if __name__ == "__main__":
    main()

"""Claim: the driver of the job `orphans` needs as much memory for 100 times the files, and so does a worker.

Plans with a made-up inventory of a small graph, half of whose rows made-up references protect, through a real
spark-submit, and watches the peak memory of the kinds of process in its session. The candidates are not looked up
again: their files do not exist.

    python bench/bench_spark_orphans.py [FILES ...]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from bench_spark_copy import watched

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.spark import submit
from omnigraph_ops.stages.orphans.stage import OrphansRequest

GROUP_ROWS = 100_000
_MONTH = 30 * 86_400


def inventory(place: Path, tables: list[str], files: int) -> None:
    """So many rows of old data files, spread over the tables. Writes."""
    columns = {"path": pa.string(), "size": pa.int64(), "last_modified": pa.float64()}
    then = time.time() - _MONTH
    with pq.ParquetWriter(place, pa.schema(columns)) as writer:
        for start in range(0, files, GROUP_ROWS):
            numbers = range(start, min(start + GROUP_ROWS, files))
            paths = [f"{tables[n % len(tables)]}/data/{n:032x}.lance" for n in numbers]
            rows = [pa.array(paths), pa.array([1000] * len(numbers)), pa.array([then] * len(numbers))]
            writer.write_table(pa.table(rows, schema=pa.schema(columns)))


def measure(folder: Path, files: int) -> tuple[dict[str, int], float]:
    """The peaks and the seconds of a plan of half of so many files."""
    root = str(folder / f"{files}.omni")
    write_demo_graph(root, DemoSpec(loads=3, rows=20))
    graph = open_graph(root)
    listing = folder / f"{files}.parquet"
    inventory(listing, [entry.path for entry in graph.state().entries], files)
    request = OrphansRequest(listing=str(listing)).said
    words = ("--graph", root, "--plan-id", new_ulid(), "--request", request)
    peaks: dict[str, int] = {}
    started = time.perf_counter()
    with watched(peaks):
        plan = submit.Submitter(master="local[2]")("orphans", words, OrphansPlan, lambda: None)
    seconds = time.perf_counter() - started
    assert plan.total_files == files // 2
    return peaks, seconds


if __name__ == "__main__":
    # The same application with made-up references.
    submit.APPLICATION = Path(__file__).with_name("made_up_references.py")
    with tempfile.TemporaryDirectory() as scratch:
        for count in [int(word) for word in sys.argv[1:]] or [100_000, 10_000_000]:
            peaks, seconds = measure(Path(scratch), count)
            print(
                f"{count:11,} files: {seconds:6.1f} s, " + ", ".join(f"{k} {v} MiB" for k, v in sorted(peaks.items()))
            )

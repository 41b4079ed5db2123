"""Claim: the driver of the job `evidence` needs as much memory for 100 times the rows, a worker that of a fragment.

Compares a table with itself after a delete and a compaction, through a real spark-submit, and watches the peak memory
of the kinds of process in its session.

    python bench/bench_spark_evidence.py [ROWS ...]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from bench_spark_copy import watched

from omnigraph_ops.spark.submit import Submitter
from omnigraph_ops.stages.repair.compare import Compared

FRAGMENT_ROWS = 100_000
COLUMNS = 5


def made(place: Path, rows: int) -> tuple[int, int]:
    """A table of so many rows, and its versions before and after. Writes."""
    random = np.random.default_rng(0)
    for start in range(0, rows, FRAGMENT_ROWS):
        count = min(FRAGMENT_ROWS, rows - start)
        table = pa.table(
            {"id": np.arange(start, start + count), **{f"c{n}": random.random(count) for n in range(COLUMNS)}}
        )
        lance.write_dataset(table, place, mode="append" if start else "create", enable_stable_row_ids=True)
    before = lance.dataset(place).version
    lance.dataset(place).delete("id % 100 = 0")
    lance.dataset(place).optimize.compact_files(
        target_rows_per_fragment=FRAGMENT_ROWS, materialize_deletions_threshold=0
    )
    return before, lance.dataset(place).version


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for count in [int(word) for word in sys.argv[1:]] or [100_000, 10_000_000]:
            place = Path(scratch, f"{count}.lance")
            before, after = made(place, count)
            peaks: dict[str, int] = {}
            started = time.perf_counter()
            words = ("--dataset", str(place), "--before", str(before), "--after", str(after), "--values")
            with watched(peaks):
                found = Submitter(master="local[2]")("evidence", words, Compared, lambda: None)
            seconds = time.perf_counter() - started
            assert found.differences.rows.removed.count == count // 100
            print(f"{count:11,} rows: {seconds:6.1f} s, " + ", ".join(f"{k} {v} MiB" for k, v in sorted(peaks.items())))

"""Claim: two executors of one core do the work of a job on Spark at least 1.6 times as fast as one.

`index` and `build` are exceptions. What is folded is one task, so the largest index bounds `index`. `build` makes one
index anew, in parts with two executors; with one the driver makes it. Joining the parts is one task. `pair` makes two
indexes of equal texts anew, each in one task.

A standalone cluster of real processes, first with one worker, then with two. Each worker is pinned to its own core,
because Lance takes every core that it sees, and the driver to the first of them. The start of the session is part of
the time; both runs have equal input.

    python bench/bench_spark_executors.py [--share SHARE] [JOB ...]

With a share, as 0.1, the work is so much smaller.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from bench_spark_copy import prepared
from bench_spark_evidence import made
from bench_spark_orphans import inventory

from omnigraph_ops.coordination.state import RESULTS_DIR
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.models.optimize import OptimizeReport
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.spark import submit
from omnigraph_ops.spark.submit import Submitter
from omnigraph_ops.stages.backup.parts import SubmittedCopy
from omnigraph_ops.stages.expire_rows.apply import DeletesDone
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.orphans.stage import OrphansRequest
from omnigraph_ops.stages.repair.compare import Compared
from tests.support.spark_cluster import Cluster, cluster
from tests.support.writers import write

LOAD_ROWS, CATEGORIES, COLUMNS = 100_000, 200, 10
Run = Callable[[Submitter], object]
"""The job, once."""


def twice(folder: Path) -> list[str]:
    """The input, and a copy of it, for a job that changes its input. Writes."""
    again = folder.with_name(f"{folder.name}-again")
    shutil.copytree(folder, again)
    return [str(folder), str(again)]


def rewrite(folder: Path, share: float) -> Run:
    """Compaction of columns of few values, which costs the most time for its bytes."""
    draw, names = np.random.default_rng(0), np.array([f"category number {n}" for n in range(CATEGORIES)])
    for _ in range(max(int(1600 * share), 20)):
        columns = {f"c{n}": names[draw.integers(0, CATEGORIES, LOAD_ROWS)] for n in range(COLUMNS)}
        lance.write_dataset(pa.table(columns), folder / "t.lance", mode="append", enable_stable_row_ids=True)

    places = twice(folder)

    def run(submitter: Submitter) -> None:
        words = ("--graph", places.pop(), "--table", "table:t")
        report = submitter("rewrite", words, OptimizeReport, lambda: None)
        assert report.tables[0].fragments_removed, report

    return run


def copy(folder: Path, share: float) -> Run:
    """A backup of files of 1 KiB."""
    transfer, plan = prepared(folder, int(150_000 * share))

    def run(submitter: Submitter) -> None:
        done = SubmittedCopy(submit=submitter)(transfer, plan, lambda: None)
        assert len(done.copied) == len(plan.copy)
        shutil.rmtree(transfer.destination.root)

    return run


def evidence(folder: Path, share: float) -> Run:
    """Two versions of a table in which every fragment differs."""
    before, after = made(folder / "t.lance", int(4_000_000 * share))
    words = ("--dataset", str(folder / "t.lance"), "--before", str(before), "--after", str(after), "--values")
    return lambda submitter: submitter("evidence", words, Compared, lambda: None)


def orphans(folder: Path, share: float) -> Run:
    """A plan from an inventory."""
    root, listing = str(folder / "g.omni"), folder / "inventory.parquet"
    write_demo_graph(root, DemoSpec(loads=3, rows=20))
    inventory(listing, [entry.path for entry in open_graph(root).state().entries], int(3_000_000 * share))
    # The same application with made-up references.
    submit.APPLICATION = Path(__file__).with_name("made_up_references.py")
    request = OrphansRequest(listing=str(listing)).said
    words = ("--graph", root, "--request", request)
    return lambda submitter: submitter("orphans", (*words, "--plan-id", new_ulid()), OrphansPlan, lambda: None)


def expire(folder: Path, share: float) -> Run:
    """A delete in files of a thousand rows: one of many rows is too fast to need a cluster."""
    rows = int(20_000_000 * share)
    made_at = np.random.default_rng(0).integers(0, 1_000, rows)
    lance.write_dataset(
        pa.table({"at": made_at}), folder / "t.lance", max_rows_per_file=1_000, max_rows_per_group=1_000
    )
    words = ("--graph", str(folder), "--dataset", str(folder / "t.lance"), "--version", "1")
    notes = ("--predicate", "`at` < 300", "--notes", f"{RESULTS_DIR}/{new_ulid()}")
    return lambda submitter: submitter("expire", (*words, *notes), DeletesDone, lambda: None)


def index(folder: Path, share: float) -> Run:
    """The indexes of a table, of which the first load is covered, and then its data."""
    write_demo_graph(str(folder), DemoSpec(node_types=1, loads=2, rows=int(5_000_000 * share)))

    places = twice(folder)

    def run(submitter: Submitter) -> None:
        words = ("--graph", places.pop(), "--table", "node:Person")
        report = submitter("rewrite", words, OptimizeReport, lambda: None)
        assert report.tables[0].indexes_folded, report

    return run


def build(folder: Path, share: float) -> Run:
    """One text index, made of nothing: its parts are the tasks."""
    people(folder, int(4_000_000 * share))
    write(open_graph(str(folder)), "node:Person", lambda table: table.drop_index("bio_idx"))
    return building(folder, {"bio_idx"})


def pair(folder: Path, share: float) -> Run:
    """Two text indexes of the same texts, made of nothing: each is a task."""
    people(folder, int(4_000_000 * share))

    def even(table: lance.LanceDataset) -> None:
        for name in ("name_idx", "bio_idx"):
            table.drop_index(name)
        table.update({"name": "bio"})

    write(open_graph(str(folder)), "node:Person", even)
    return building(folder, {"name_idx", "bio_idx"})


def people(folder: Path, rows: int) -> None:
    """A graph of one table, whose data needs no work. Writes."""
    write_demo_graph(str(folder), DemoSpec(node_types=1, loads=2, rows=rows))
    os.environ["OMNIGRAPH_OPS_SMALL_TABLE_BYTES"] = str(2**20)
    optimize_table(open_graph(str(folder)), "node:Person")


def building(folder: Path, names: set[str]) -> Run:
    """An optimize that makes these indexes."""
    places = twice(folder)

    def run(submitter: Submitter) -> None:
        words = ("--graph", places.pop(), "--table", "node:Person")
        report = submitter("rewrite", words, OptimizeReport, lambda: None)
        assert names <= set(report.tables[0].indexes_built), report

    return run


JOBS: dict[str, Callable[[Path, float], Run]] = {
    "rewrite": rewrite,
    "copy": copy,
    "evidence": evidence,
    "orphans": orphans,
    "expire": expire,
    "index": index,
    "build": build,
    "pair": pair,
}


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Processes that start meanwhile stay on this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(spark: Cluster, run: Run) -> list[float]:
    """Seconds with one worker, and with two."""
    seconds = []
    for name in ("worker-1", "worker-2"):
        with pinned(len(seconds)):
            spark.add_worker(name)
        with pinned(0):
            started = time.perf_counter()
            run(Submitter(master=spark.master_url))
            seconds.append(time.perf_counter() - started)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("jobs", nargs="*", default=list(JOBS))
    words = parser.parse_args()
    for job in words.jobs:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, job)
            folder.mkdir()
            run = JOBS[job](folder, words.share)
            with cluster(Path(scratch)) as spark:
                for name in ("worker-1", "worker-2"):
                    spark.kill(name)
                one, two = measure(spark, run)
        print(
            f"{job:9} {one:6.1f} s with one executor, {two:6.1f} s with two: {one / two:.2f} times as fast", flush=True
        )


if __name__ == "__main__":
    main()

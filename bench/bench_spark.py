"""Claim: Spark's tasks execute at 0.7x of the in-process bytes per second per core; the driver stays small.

The same tasks are executed in this process and on Spark's local cores, without the start of the session and
with warm workers (the best of some runs). Then the driver's peak memory with 10 and with 10,000 orders that do nothing.

Claim: a task of a job costs less than a bare one, whose worker looks at every import when it collects garbage after it.

    python bench/bench_spark.py
"""

from __future__ import annotations

import gc
import os
import resource
import secrets
import tempfile
import time
from pathlib import Path

from omnigraph_ops.spark.java import spark_environment

os.environ |= spark_environment()

import lance
import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.pace import Ceilings
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.coordination.rewrites import begin
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.lance.tables import plan_tasks
from omnigraph_ops.spark import rewrite_job
from omnigraph_ops.spark.job import in_tasks
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor, TaskExecutor

TABLE, GROUPS, ROWS, REPEATS = "node:Person", 16, 40_000, 3
MANY = 10_000
SMALL = 300


def seconds(executor: TaskExecutor, root: str) -> float:
    """The best of some executions of all tasks; nothing is committed."""
    graph = open_graph(root, Settings())
    entry = graph.state().get(TABLE)
    assert entry is not None
    pinned = graph.open_head(entry)
    best = float("inf")
    for _ in range(REPEATS):
        orders = begin(graph, entry, plan_tasks(pinned, 2 * ROWS)).orders
        started = time.perf_counter()
        outcomes = list(executor.execute(pinned, orders))
        best = min(best, time.perf_counter() - started)
        assert len(outcomes) == len(orders)
        assert not any(o.error for o in outcomes)
    return best


def enlarge(root: str) -> None:
    """Append copies of the rows of the table, so that a task is work. Published or not makes no difference here."""
    graph = open_graph(root, Settings())
    entry = graph.state().get(TABLE)
    assert entry is not None
    rows = graph.open_head(entry).to_table()
    load = pa.concat_tables([rows] * (ROWS // rows.num_rows))
    # Text that does not compress: 20 MB to a task, or its fixed costs are all that is measured.
    text = pa.array([secrets.token_hex(128) for _ in range(load.num_rows)], load.schema.field("bio").type)
    load = load.set_column(load.schema.get_field_index("bio"), load.schema.field("bio"), text)
    for _ in range(2 * GROUPS):
        lance.write_dataset(load, graph.open_head(entry), mode="append")


def idle(_uri: str, _version: int, _limits: object, _tries: int, order: TaskOrder) -> TaskOutcome:
    """A task that does nothing."""
    return TaskOutcome(index=order.index, attempt="0" * 12)


def driver_megabytes(session: SparkSession, root: str, count: int) -> float:
    """Peak memory of the driver's Python process after so many tasks with a payload of 4 KB each."""
    graph = open_graph(root, Settings())
    entry = graph.state().get(TABLE)
    assert entry is not None
    orders = [
        TaskOrder(
            graph_uri=graph.uri,
            table_path=entry.path,
            rewrite_id="x",
            index=n,
            payload="x" * 4096,
            source_bytes=0,
            ceilings=Ceilings(),
        )
        for n in range(count)
    ]
    real, rewrite_job.execute_on_worker = rewrite_job.execute_on_worker, idle
    try:
        started = time.perf_counter()
        done = list(rewrite_job.SparkExecutor(session.sparkContext).execute(graph.open_pinned(entry), orders))
        assert len(done) == count
        print(f"{count:>6} idle tasks: {time.perf_counter() - started:.1f} s")
    finally:
        rewrite_job.execute_on_worker = real
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def with_imports(_: int) -> int:
    """A task that does nothing, in a worker that has everything imported; how many objects it leaves alone."""
    assert rewrite_job
    return gc.get_freeze_count()


def cost_of_small_tasks(session: SparkSession) -> tuple[float, float]:
    """Seconds of so many tasks that do nothing: bare ones first, then those of a job, in the same workers."""
    taken = []
    for work, is_left_alone in ((with_imports, False), (in_tasks(with_imports), True)):
        tasks = session.sparkContext.parallelize(range(SMALL), SMALL).map(work)
        tasks.collect()
        started = time.perf_counter()
        assert all(bool(count) == is_left_alone for count in tasks.collect())
        taken.append(time.perf_counter() - started)
    return taken[0], taken[1]


def main() -> None:
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder) / "g.omni")
        write_demo_graph(root, DemoSpec(node_types=1, loads=1, rows=1000, index_after_load=0))
        enlarge(root)
        here = seconds(InProcessExecutor(), root)
        session = (
            SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false").appName("bench")
        ).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        bare, ours = cost_of_small_tasks(session)
        print(f"{SMALL} tasks that do nothing: bare {bare:.1f} s, of a job {ours:.1f} s: ratio {ours / bare:.2f}")
        there = seconds(rewrite_job.SparkExecutor(session.sparkContext), root)
        print(f"{GROUPS} tasks on {cores} cores: in process {here:.2f} s, Spark {there:.2f} s")
        print(f"ratio of bytes per second per core, Spark to in process: {here / there:.2f}")
        few = driver_megabytes(session, root, 10)
        many = driver_megabytes(session, root, MANY)
        print(f"driver's Python process: {few:.0f} MB with 10 tasks, {many:.0f} MB with {MANY}: ratio {many / few:.2f}")
        session.stop()


if __name__ == "__main__":
    main()

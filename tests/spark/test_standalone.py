"""The rewrite on a real standalone cluster: a master and two workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.rewrite_journal import attempts, open_journals
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.optimize import Executor, OptimizeReport, TableStats
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.stages.optimize.run import plan_optimize
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.held import HELD_APPLICATION, Held
from tests.support.rewrites import TABLE, unreferenced
from tests.support.spark_cluster import APPLICATION, Cluster
from tests.support.tables import rows_by_id
from tests.support.writers import entry_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-standalone")]
GROUPS = 12
SPEC = {"node_types": 1, "loads": 2 * GROUPS, "rows": 20}
TARGET = 40
SETTINGS = Settings(target_rows_per_fragment=TARGET, small_table_bytes=0)
_LONGEST_SECONDS = 600


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(stamp=6, **SPEC, settings=SETTINGS)


def hold(spark: Cluster, graph: Graph, result: Path, held: Held) -> subprocess.Popen[bytes]:
    """A submit whose workers have journalled what passed the gate and both wait there. Starts a process."""
    process = spark.submit(
        str(HELD_APPLICATION),
        *("rewrite", "--graph", graph.uri, "--table", TABLE, "--result-uri", str(result)),
        OMNIGRAPH_OPS_TARGET_ROWS_PER_FRAGMENT=str(TARGET),
        OMNIGRAPH_OPS_SMALL_TABLE_BYTES="0",
        **held.environment,
    )
    spark.wait_for_held(held, 2, process)
    return process


def outcome(result: Path) -> TableStats:
    """The row of the one table."""
    left = serde.from_json(SubmitOutcome[OptimizeReport], result.read_bytes())
    assert left.value is not None, left.error
    (stats,) = left.value.tables
    return stats


@pytest.mark.night
def test_a_killed_driver_is_resumed_by_the_next_submit_whose_worker_may_be_lost(
    spark: Cluster, graph: Graph, tmp_path: Path
) -> None:
    before, result = rows_by_id(graph), tmp_path / "result.json"
    process = hold(spark, graph, result, Held.at("rewrite", tmp_path / "first", free=2))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (rewrite_id,) = open_journals(graph.storage, entry_of(graph, TABLE).path)
    kept = {a.index for a in attempts(graph.storage, entry_of(graph, TABLE).path, rewrite_id)}
    assert len(kept) == 2
    said, held = spark.log("driver"), Held.at("rewrite", tmp_path / "again")
    process = hold(spark, graph, result, held)
    spark.kill("worker-2")
    held.open()
    assert process.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    spark.add_worker("worker-2")
    resumed = spark.log("driver")[len(said) :]
    assert f"resuming rewrite {rewrite_id}" in resumed
    # What was in flight when the driver died is all that may be done twice.
    assert resumed.count("fragment groups") <= GROUPS - len(kept)
    stats = outcome(result)
    assert (stats.fragments_removed, stats.fragments_added) == (2 * GROUPS, GROUPS)
    assert rows_by_id(graph) == before
    # A file that was begun has no name in the journal: two workers of the killed driver, and the lost one.
    assert len(unreferenced(graph)) <= 3
    assert_pins_are_heads(graph)
    recover(open_graph(graph.uri, SETTINGS), grace_seconds=0)
    assert_no_leftovers(graph)


def test_many_small_tables_are_one_submit_whose_workers_may_be_lost(
    spark: Cluster, demo_graph: DemoGraph, tmp_path: Path
) -> None:
    """Each table is optimized whole in a worker, several workers beside each other."""
    graph, result = demo_graph(stamp=6, node_types=20, loads=3, rows=6), tmp_path / "result.json"
    before, first = rows_by_id(graph), graph.state()
    keys = [entry.table_key for entry in first.entries]
    tables = [word for key in keys for word in ("--table", key)]
    process = spark.submit(APPLICATION, "rewrite", "--graph", graph.uri, *tables, "--result-uri", str(result))
    deadline = time.monotonic() + _LONGEST_SECONDS
    while graph.state().manifest_version == first.manifest_version:
        assert process.poll() is None, spark.log("driver")[-3000:]
        assert time.monotonic() < deadline, spark.log("driver")[-3000:]
        time.sleep(0.01)
    spark.kill("worker-2")
    assert process.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    spark.add_worker("worker-2")
    left = serde.from_json(SubmitOutcome[OptimizeReport], result.read_bytes())
    assert left.value is not None, left.error
    assert [(row.table_key, row.error, row.executor) for row in left.value.tables] == [
        (key, None, Executor.SPARK) for key in keys
    ]
    recover(open_graph(graph.uri), grace_seconds=0)
    assert not plan_optimize(graph).productive()
    assert rows_by_id(graph) == before
    assert_pins_are_heads(graph)

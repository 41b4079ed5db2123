"""Index work in tasks on a standalone cluster that loses a worker or its driver."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination.state import CLONES_DIR
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.tables import index_facts
from omnigraph_ops.models.optimize import OptimizeReport
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.stages.optimize.run import plan_optimize
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.rewrites import unreferenced_files
from tests.support.spark_cluster import Cluster
from tests.support.tables import PERSON, rows_by_id
from tests.support.writers import entry_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark-standalone")]
APPLICATION = str(Path(__file__).parents[1] / "support" / "slow_index.py")
_LONGEST_SECONDS = 300


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(node_types=1, loads=4, rows=20)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def submit(spark: Cluster, graph: Graph, marks: Path) -> subprocess.Popen[bytes]:
    return spark.submit(
        APPLICATION,
        *("rewrite", "--graph", graph.uri, "--table", PERSON, "--result-uri", str(marks.parent / "result.json")),
        OMNIGRAPH_OPS_SMALL_TABLE_BYTES="0",
        MARKS=str(marks),
    )


def wait_for_one(marks: Path, process: subprocess.Popen[bytes], spark: Cluster) -> None:
    """Until a worker has committed an index to the clone. Reads."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not any(marks.iterdir()):
        assert process.poll() is None, spark.log("driver")[-3000:]
        assert time.monotonic() < deadline, spark.log("driver")[-3000:]
        time.sleep(0.02)


def assert_done(graph: Graph, marks: Path, before: object) -> None:
    left = serde.from_json(SubmitOutcome[OptimizeReport], (marks.parent / "result.json").read_bytes())
    assert left.value is not None, left.error
    assert [row.error for row in left.value.tables] == [None]
    assert {i.segments for i in index_facts(graph.open_pinned(entry_of(graph, PERSON)))} == {1}
    assert not plan_optimize(graph, tables=[PERSON]).productive()
    assert rows_by_id(graph) == before
    assert_pins_are_heads(graph)


def test_a_lost_worker_costs_no_index_and_leaves_nothing(spark: Cluster, graph: Graph, marks: Path) -> None:
    before = rows_by_id(graph)
    process = submit(spark, graph, marks)
    wait_for_one(marks, process, spark)
    spark.kill("worker-2")
    assert process.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    spark.add_worker("worker-2")
    assert_done(graph, marks, before)
    assert not graph.storage.list(CLONES_DIR)
    assert not unreferenced_files(graph, entry_of(graph, PERSON))
    assert_no_leftovers(graph)


def test_a_lost_driver_published_nothing_and_its_clone_goes_with_the_next_recovery(
    spark: Cluster, graph: Graph, marks: Path
) -> None:
    before, first = rows_by_id(graph), entry_of(graph, PERSON)
    process = submit(spark, graph, marks)
    wait_for_one(marks, process, spark)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert entry_of(graph, PERSON) == first
    assert not unreferenced_files(graph, first), "what workers wrote is in the clone"
    again = submit(spark, graph, marks)
    assert again.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    assert_done(graph, marks, before)
    recover(open_graph(graph.uri), grace_seconds=0)
    assert not graph.storage.list(CLONES_DIR)
    assert_no_leftovers(graph)

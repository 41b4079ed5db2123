"""Index work in tasks on a standalone cluster that loses a worker or its driver."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.tables import index_facts
from omnigraph_ops.models.optimize import OptimizeReport
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.stages.optimize.run import plan_optimize
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.held import HELD_APPLICATION, Held
from tests.support.rewrites import clones, unreferenced_files
from tests.support.spark_cluster import Cluster
from tests.support.tables import PERSON, rows_by_id
from tests.support.writers import entry_of, write

pytestmark = [pytest.mark.spark, pytest.mark.night, pytest.mark.slow, pytest.mark.xdist_group("spark-standalone")]
_LONGEST_SECONDS = 300


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    """All indexes but two are folded."""
    graph = demo_graph(node_types=1, loads=4, rows=20)
    for name in ("id_idx", "bio_idx"):
        write(graph, PERSON, lambda dataset, name=name: dataset.drop_index(name))  # type: ignore[misc]
    return graph


def submit(spark: Cluster, graph: Graph, held: Held, result: Path) -> subprocess.Popen[bytes]:
    """With as many cores, by Spark's word, that an index that is made anew is made in parts."""
    conf = result.parent / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text("spark.default.parallelism 20\n")
    return spark.submit(
        str(HELD_APPLICATION),
        *("rewrite", "--graph", graph.uri, "--table", PERSON, "--result-uri", str(result)),
        OMNIGRAPH_OPS_SMALL_TABLE_BYTES="0",
        SPARK_CONF_DIR=str(conf),
        **held.environment,
    )


def assert_done(graph: Graph, result: Path, before: object) -> None:
    left = serde.from_json(SubmitOutcome[OptimizeReport], result.read_bytes())
    assert left.value is not None, left.error
    assert [row.error for row in left.value.tables] == [None]
    assert {i.segments for i in index_facts(graph.open_pinned(entry_of(graph, PERSON)))} == {1}
    assert not plan_optimize(graph, tables=[PERSON]).productive()
    assert rows_by_id(graph) == before
    assert_pins_are_heads(graph)


def hold(spark: Cluster, graph: Graph, result: Path, marks: Path) -> tuple[Held, subprocess.Popen[bytes]]:
    """A submit whose tasks have committed an index to the clone, before they look again and say so."""
    held = Held.at("index", marks)
    process = submit(spark, graph, held, result)
    spark.wait_for_held(held, 2, process)
    return held, process


def test_a_lost_driver_publishes_nothing_and_a_lost_worker_costs_no_index(
    spark: Cluster, graph: Graph, tmp_path: Path
) -> None:
    before, first, result = rows_by_id(graph), entry_of(graph, PERSON), tmp_path / "result.json"
    _, process = hold(spark, graph, result, tmp_path / "first")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert entry_of(graph, PERSON) == first
    assert not unreferenced_files(graph, first), "what workers wrote is in the clone"
    (left,) = clones(graph)
    held, process = hold(spark, graph, result, tmp_path / "again")
    spark.kill("worker-2")
    held.open()
    assert process.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    spark.add_worker("worker-2")
    assert " parts of id_idx, bio_idx" in spark.log("driver")
    assert_done(graph, result, before)
    assert clones(graph) <= {left}, "the second submit leaves none"
    assert not unreferenced_files(graph, entry_of(graph, PERSON))
    recover(open_graph(graph.uri), grace_seconds=0)
    assert not clones(graph)
    assert_no_leftovers(graph)

"""The job `evidence` on a standalone cluster that loses a worker or its driver."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.repair import EvidenceTier
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.spark.submit import APPLICATION
from omnigraph_ops.stages.repair.compare import Compared
from omnigraph_ops.stages.repair.run import preview_repair
from tests.conftest import DemoGraph
from tests.support.held import HELD_APPLICATION, Held
from tests.support.rows import tree_of
from tests.support.spark_cluster import Cluster
from tests.support.writers import copies, delete_first, drift, entry_of

pytestmark = [pytest.mark.spark, pytest.mark.night, pytest.mark.xdist_group("spark-standalone")]
PERSON = "node:Person"
FRAGMENTS = 8
_LONGEST_SECONDS = 300


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    made = demo_graph(node_types=1, loads=FRAGMENTS, rows=20)
    drift(made, PERSON, copies("extra-"))
    drift(made, PERSON, delete_first(2))
    drift(made, PERSON, lambda dataset: dataset.update({"age": "-7"}, where="age > 30"))
    drift(made, PERSON, lambda dataset: dataset.optimize.compact_files())
    return made


def submit(
    spark: Cluster, graph: Graph, result: Path, application: str = str(APPLICATION), **settings: str
) -> subprocess.Popen[bytes]:
    entry = entry_of(graph, PERSON)
    head = graph.open_head(entry)
    versions = ("--before", str(entry.version), "--after", str(head.version))
    words = ("evidence", "--dataset", head.uri, *versions, "--values", "--result-uri", str(result))
    return spark.submit(application, *words, **settings)


def hold(spark: Cluster, graph: Graph, result: Path, marks: Path) -> tuple[Held, subprocess.Popen[bytes]]:
    """A submit of which one task is done and another is at work in each worker. Starts a process."""
    held = Held.at("read", marks, free=1)
    process = submit(spark, graph, result, str(HELD_APPLICATION), **held.environment)
    spark.wait_for_held(held, 2, process)
    return held, process


def assert_found(graph: Graph, result: Path) -> None:
    """What one process finds, in the graph as it was."""
    there = serde.from_json(SubmitOutcome[Compared], result.read_bytes()).value
    (row,) = preview_repair(graph, tables=(PERSON,), evidence=EvidenceTier.FULL).rows
    assert there is not None
    assert row.evidence is not None
    found = there.differences
    counts = (found.rows.added.count, found.rows.removed.count, found.changed.count)
    assert counts == (row.evidence.rows_added, row.evidence.rows_removed, row.evidence.rows_changed)
    assert all(counts)
    digests = [(c.before.text, c.after.text, c.changed) for c in found.columns]
    assert digests == [(c.digest_before, c.digest_after, c.rows_changed) for c in row.evidence.columns]


def test_a_lost_driver_and_then_a_lost_worker_cost_no_row(spark: Cluster, graph: Graph, tmp_path: Path) -> None:
    before, result = tree_of(graph.uri), tmp_path / "result.json"
    _, process = hold(spark, graph, result, tmp_path / "first")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert tree_of(graph.uri) == before
    held, process = hold(spark, graph, result, tmp_path / "again")
    spark.kill("worker-2")
    held.open()
    assert process.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    spark.add_worker("worker-2")
    assert_found(graph, result)
    assert tree_of(graph.uri) == before

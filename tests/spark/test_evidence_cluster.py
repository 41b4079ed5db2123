"""The job `evidence` on a standalone cluster that loses a worker or its driver."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.repair import EvidenceTier
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.spark.submit import APPLICATION
from omnigraph_ops.stages.repair.comparison import Compared
from omnigraph_ops.stages.repair.run import preview_repair
from tests.conftest import DemoGraph
from tests.support.rows import tree_of
from tests.support.spark_cluster import Cluster
from tests.support.writers import copies, delete_first, drift, entry_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-standalone")]
PERSON = "node:Person"
FRAGMENTS = 8
SLOW = str(Path(__file__).parents[1] / "support" / "slow_evidence.py")
_LONGEST_SECONDS = 300


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    made = demo_graph(node_types=1, loads=FRAGMENTS, rows=20)
    drift(made, PERSON, copies("extra-"))
    drift(made, PERSON, delete_first(2))
    drift(made, PERSON, lambda dataset: dataset.update({"age": "-7"}, where="age > 30"))
    drift(made, PERSON, lambda dataset: dataset.optimize.compact_files())
    return made


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def submit(
    spark: Cluster, graph: Graph, result: Path, application: str = str(APPLICATION), **settings: str
) -> subprocess.Popen[bytes]:
    entry = entry_of(graph, PERSON)
    head = graph.open_head(entry)
    versions = ("--before", str(entry.version), "--after", str(head.version))
    words = ("evidence", "--dataset", head.uri, *versions, "--values", "--result-uri", str(result))
    return spark.submit(application, *words, **settings)


def wait_for_marks(marks: Path, count: int, process: subprocess.Popen[bytes], spark: Cluster) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while len(list(marks.iterdir())) < count:
        assert process.poll() is None, spark.log("driver")[-3000:]
        assert time.monotonic() < deadline, spark.log("driver")[-3000:]
        time.sleep(0.05)


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


def test_a_lost_worker_costs_no_row(spark: Cluster, graph: Graph, marks: Path, tmp_path: Path) -> None:
    before = tree_of(graph.uri)
    process = submit(spark, graph, tmp_path / "result.json", SLOW, MARKS=str(marks))
    wait_for_marks(marks, 3, process, spark)
    spark.kill("worker-2")
    assert process.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    spark.add_worker("worker-2")
    assert_found(graph, tmp_path / "result.json")
    assert tree_of(graph.uri) == before


def test_a_lost_driver_leaves_nothing_and_is_submitted_again(
    spark: Cluster, graph: Graph, marks: Path, tmp_path: Path
) -> None:
    before = tree_of(graph.uri)
    process = submit(spark, graph, tmp_path / "result.json", SLOW, MARKS=str(marks))
    wait_for_marks(marks, 2, process, spark)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert tree_of(graph.uri) == before
    assert submit(spark, graph, tmp_path / "result.json").wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    assert_found(graph, tmp_path / "result.json")

"""The job `restore` on a standalone cluster that loses a worker or its driver."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.errors import NotAGraph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.backup import BackupReport, RestoreReport
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.stages.backup.take import backup_graph
from tests.conftest import DemoGraph
from tests.support.rows import rows_everywhere
from tests.support.spark_cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-standalone")]
APPLICATION = str(Path(__file__).parents[1] / "support" / "slow_restore.py")
_LONGEST_SECONDS = 300


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(node_types=1, loads=6, rows=30, written_branches=1)


@pytest.fixture
def backup(graph: Graph, tmp_path: Path) -> BackupReport:
    return backup_graph(graph, str(tmp_path / "backups"))


def submit(spark: Cluster, backup: BackupReport, place: Path, *, slow: bool) -> subprocess.Popen[bytes]:
    """A restore, of a quarter of a minute where it is slow; its outcome goes beside the place."""
    pace = ("--max-bytes-per-second", str(backup.total.bytes // 15)) if slow else ()
    where = ("--backup", backup.backup, "--place", str(place), "--result-uri", f"{place}.json")
    return spark.submit(APPLICATION, "restore", *where, *pace)


def wait_for_files(place: Path, count: int, process: subprocess.Popen[bytes], spark: Cluster) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while len(list(place.rglob("data/*.lance"))) < count:
        assert process.poll() is None, spark.log("driver")[-3000:]
        assert time.monotonic() < deadline, spark.log("driver")[-3000:]
        time.sleep(0.05)


def assert_restored(graph: Graph, place: Path) -> None:
    report = serde.from_json(SubmitOutcome[RestoreReport], Path(f"{place}.json").read_bytes()).value
    assert report is not None
    assert report.problems == ()
    assert rows_everywhere(open_graph(str(place))) == rows_everywhere(graph)
    assert not list(place.rglob("*.part"))


def test_a_lost_worker_costs_no_file(spark: Cluster, graph: Graph, backup: BackupReport, tmp_path: Path) -> None:
    process = submit(spark, backup, tmp_path / "there", slow=True)
    wait_for_files(tmp_path / "there", 2, process, spark)
    spark.kill("worker-2")
    assert process.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    spark.add_worker("worker-2")
    assert_restored(graph, tmp_path / "there")


def test_a_lost_driver_leaves_no_graph_and_is_resumed(
    spark: Cluster, graph: Graph, backup: BackupReport, tmp_path: Path
) -> None:
    place = tmp_path / "there"
    process = submit(spark, backup, place, slow=True)
    wait_for_files(place, 2, process, spark)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(NotAGraph):
        open_graph(str(place))
    there = {p: p.stat().st_ino for p in place.rglob("data/*.lance")}
    assert submit(spark, backup, place, slow=False).wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    assert {p: p.stat().st_ino for p in there} == there, "what was there was not copied again"
    assert_restored(graph, place)

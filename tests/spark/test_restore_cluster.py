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
from omnigraph_ops.stages.backup.parts import THREADS
from omnigraph_ops.stages.backup.take import backup_graph
from tests.conftest import DemoGraph
from tests.support.held import FILES_OF_PART, HELD_APPLICATION, Held
from tests.support.rows import rows_everywhere
from tests.support.spark_cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.night, pytest.mark.xdist_group("spark-standalone")]
BOTH_WORKERS = THREADS + 1
"""Files at work at once; one worker alone has fewer."""
_LONGEST_SECONDS = 300


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(node_types=1, loads=6, rows=30, written_branches=1)


@pytest.fixture
def backup(graph: Graph, tmp_path: Path) -> BackupReport:
    return backup_graph(graph, str(tmp_path / "backups"))


@pytest.fixture
def held(tmp_path: Path) -> Held:
    """Files stop when their bytes are due; not the first ones, so that something is there."""
    return Held.at("restore", tmp_path / "marks", free=2 * FILES_OF_PART)


def submit(spark: Cluster, backup: BackupReport, place: Path, held: Held) -> subprocess.Popen[bytes]:
    """A restore with a bound, so that tasks share it; its outcome goes beside the place."""
    pace = ("--max-bytes-per-second", str(backup.total.bytes * 4))
    where = ("--backup", backup.backup, "--place", str(place), "--result-uri", f"{place}.json")
    return spark.submit(str(HELD_APPLICATION), "restore", *where, *pace, **held.environment)


def restored(place: Path) -> dict[Path, int]:
    """The files that never change and are there, and what tells them from others of the same name. Reads."""
    return {p: p.stat().st_ino for p in place.rglob("*") if p.suffix in {".lance", ".txn", ".arrow"}}


def assert_restored(graph: Graph, place: Path) -> None:
    report = serde.from_json(SubmitOutcome[RestoreReport], Path(f"{place}.json").read_bytes()).value
    assert report is not None
    assert report.problems == ()
    assert rows_everywhere(open_graph(str(place))) == rows_everywhere(graph)
    assert not list(place.rglob("*.part"))


def test_a_lost_driver_leaves_no_graph_and_a_lost_worker_costs_no_file_of_the_restore_that_goes_on(
    spark: Cluster, graph: Graph, backup: BackupReport, held: Held, tmp_path: Path
) -> None:
    place = tmp_path / "there"
    process = submit(spark, backup, place, held)
    spark.wait_for_held(held, BOTH_WORKERS, process)
    deadline = time.monotonic() + _LONGEST_SECONDS
    while len(restored(place)) < 2:  # those that passed the gate end a moment later
        assert time.monotonic() < deadline, spark.log("driver")[-3000:]
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(NotAGraph):
        open_graph(str(place))
    there = restored(place)
    again = Held.at("restore", tmp_path / "again")
    process = submit(spark, backup, place, again)
    spark.wait_for_held(again, BOTH_WORKERS, process)
    spark.kill("worker-2")
    again.open()
    assert process.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    spark.add_worker("worker-2")
    assert {p: p.stat().st_ino for p in there} == there, "what was there was not copied again"
    assert_restored(graph, place)

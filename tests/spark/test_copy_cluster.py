"""The job `copy` on a standalone cluster that loses a worker, its driver, and its submitter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.graph import Graph
from omnigraph_ops.models.backup import BackupReport
from omnigraph_ops.outcomes.backups import backup_of, read_record
from omnigraph_ops.stages.backup.listing import list_backups
from omnigraph_ops.stages.backup.request import BackupOptions
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.conftest import DemoGraph
from tests.support.rows import tree_of
from tests.support.spark_cluster import Cluster, environment

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-standalone")]
SPEC: dict[str, Any] = {"node_types": 1, "loads": 6, "rows": 30, "written_branches": 1}
_LONGEST_SECONDS = 300
_SUBMITTER = """
import sys
from omnigraph_ops.graph import open_graph
from omnigraph_ops.progress import Lines
from omnigraph_ops.spark.submit import Submitter
from omnigraph_ops.stages.backup import parts, take
from omnigraph_ops.stages.backup.request import BackupOptions

graph, place, freeze, master, rate = sys.argv[1:6]
parts._PART_FILES = 5
copier = parts.SubmittedCopy(submit=Submitter(master=master, progress=Lines(print)))
options = BackupOptions(freeze_id=freeze, max_bytes_per_second=int(rate) or None)
print(take.backup_graph(open_graph(graph), place, options, copier=copier).backup)
"""


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(**SPEC)


@pytest.fixture
def freeze(graph: Graph) -> str:
    return freeze_graph(graph).freeze_id


@pytest.fixture
def here(graph: Graph, freeze: str, tmp_path: Path) -> BackupReport:
    """The same cut, copied in process."""
    return backup_graph(graph, str(tmp_path / "here"), BackupOptions(freeze_id=freeze))


def submitter(spark: Cluster, graph: Graph, place: Path, freeze: str, rate: int = 0) -> subprocess.Popen[str]:
    """A process that backs up on the cluster, slowly where a rate is given."""
    return subprocess.Popen(
        [sys.executable, "-c", _SUBMITTER, graph.uri, str(place), freeze, spark.master_url, str(rate)],
        env=environment() | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def slow(here: BackupReport) -> int:
    """Bytes per second of a copy that takes a quarter of a minute."""
    return here.total.bytes // 15


def wait_for_files(place: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until so many files are there under their final names. Reads."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    while len([p for p in place.glob("*/files/**/*") if p.is_file() and p.suffix != ".part"]) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def finished(process: subprocess.Popen[str]) -> str:
    said = process.communicate(timeout=_LONGEST_SECONDS)[0]
    assert process.returncode == 0, said
    return str(said.splitlines()[-1])


def assert_same(here: str, there: str) -> None:
    """Byte for byte the same backup, and nothing left over."""
    assert tree_of(f"{here}/files") == tree_of(f"{there}/files")
    one, other = read_record(*backup_of(here)), read_record(*backup_of(there))
    assert (one.files, one.roots, one.rows, one.branches) == (other.files, other.roots, other.rows, other.branches)
    assert not list(Path(there).rglob("*.part"))
    assert not [p.name for p in Path(there).iterdir() if p.name in {"orders", "journal"}]
    assert verify_backup(there).problems == ()


def drivers_of(process: subprocess.Popen[str]) -> list[int]:
    """Ids of the processes that the submitter started. Reads."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process.pid:
            found.append(int(status.parent.name))
    return found


def test_a_lost_worker_costs_no_file(
    spark: Cluster, graph: Graph, freeze: str, here: BackupReport, tmp_path: Path
) -> None:
    place = tmp_path / "there"
    process = submitter(spark, graph, place, freeze, slow(here))
    wait_for_files(place, 4, process)
    spark.kill("worker-2")
    there = finished(process)
    spark.add_worker("worker-2")
    assert_same(here.backup, there)


def test_a_lost_driver_is_resumed_by_the_next_backup(
    spark: Cluster, graph: Graph, freeze: str, here: BackupReport, tmp_path: Path
) -> None:
    place = tmp_path / "there"
    process = submitter(spark, graph, place, freeze, slow(here))
    wait_for_files(place, 4, process)
    (driver,) = drivers_of(process)
    os.killpg(driver, signal.SIGKILL)
    said = process.communicate(timeout=_LONGEST_SECONDS)[0]
    assert process.returncode == 1, said
    assert "no outcome" in said
    (left,) = list_backups(str(place)).backups
    there = finished(submitter(spark, graph, place, freeze))
    assert there == left.backup
    assert_same(here.backup, there)


def test_a_driver_without_its_submitter_stops_when_another_attempt_begins(
    spark: Cluster, graph: Graph, freeze: str, here: BackupReport, tmp_path: Path
) -> None:
    place = tmp_path / "there"
    process = submitter(spark, graph, place, freeze, slow(here))
    wait_for_files(place, 4, process)
    (driver,) = drivers_of(process)
    try:
        process.kill()
        process.communicate()
        report = backup_graph(graph, str(place), BackupOptions(freeze_id=freeze))
        assert report.resumed
        deadline = time.monotonic() + _LONGEST_SECONDS
        while Path(f"/proc/{driver}").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not Path(f"/proc/{driver}").exists()
    finally:
        if Path(f"/proc/{driver}").exists():
            os.killpg(driver, signal.SIGKILL)
    assert_same(here.backup, report.backup)

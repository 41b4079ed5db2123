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
from omnigraph_ops.stages.backup.parts import THREADS
from omnigraph_ops.stages.backup.request import BackupOptions
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.conftest import DemoGraph
from tests.support.held import HELD_APPLICATION, Held
from tests.support.rows import tree_of
from tests.support.spark_cluster import Cluster, environment

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-standalone")]
SPEC: dict[str, Any] = {"node_types": 1, "loads": 6, "rows": 30, "written_branches": 1}
_LONGEST_SECONDS = 300
_SUBMITTER = """
import sys
from pathlib import Path
from omnigraph_ops.graph import open_graph
from omnigraph_ops.progress import Lines
from omnigraph_ops.spark import submit
from omnigraph_ops.stages.backup import parts, take
from omnigraph_ops.stages.backup.parts import THREADS
from omnigraph_ops.stages.backup.request import BackupOptions

graph, place, freeze, master, rate, application = sys.argv[1:7]
parts._PART_FILES, submit.APPLICATION = 5, Path(application)
copier = parts.SubmittedCopy(submit=submit.Submitter(master=master, progress=Lines(print)))
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


@pytest.fixture
def held(tmp_path: Path) -> Held:
    """Files stop when their bytes are due; not the first ones, so that something is there."""
    return Held.at("copy", tmp_path / "marks", free=12)


def submitter(spark: Cluster, here: BackupReport, place: Path, held: Held) -> subprocess.Popen[str]:
    """A process that backs up on the cluster, with a bound that the tasks share."""
    return subprocess.Popen(
        [
            *(sys.executable, "-c", _SUBMITTER, here.uri, str(place), here.freeze_id),
            *(spark.master_url, str(here.total.bytes * 4), str(HELD_APPLICATION)),
        ],
        env=environment() | held.environment | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def hold(spark: Cluster, here: BackupReport, place: Path, held: Held) -> subprocess.Popen[str]:
    """Such a process whose workers have copied some files and are both at work on others. Starts a process."""
    process = submitter(spark, here, place, held)
    held.wait_for(THREADS + 1, lambda: process.poll() is not None, lambda: str(process.communicate()[0]))
    assert len([p for p in place.glob("*/files/**/*") if p.is_file() and p.suffix != ".part"]) >= 4
    return process


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


def test_a_lost_worker_costs_no_file(spark: Cluster, here: BackupReport, held: Held, tmp_path: Path) -> None:
    place = tmp_path / "there"
    process = hold(spark, here, place, held)
    spark.kill("worker-2")
    held.open()
    there = finished(process)
    spark.add_worker("worker-2")
    assert_same(here.backup, there)


def test_a_lost_driver_is_resumed_by_the_next_backup(
    spark: Cluster, here: BackupReport, held: Held, tmp_path: Path
) -> None:
    place = tmp_path / "there"
    process = hold(spark, here, place, held)
    (driver,) = drivers_of(process)
    os.killpg(driver, signal.SIGKILL)
    said = process.communicate(timeout=_LONGEST_SECONDS)[0]
    assert process.returncode == 1, said
    assert "no outcome" in said
    (left,) = list_backups(str(place)).backups
    held.open()
    there = finished(submitter(spark, here, place, held))
    assert there == left.backup
    assert_same(here.backup, there)


def test_a_driver_without_its_submitter_stops_when_another_attempt_begins(
    spark: Cluster, graph: Graph, here: BackupReport, held: Held, tmp_path: Path
) -> None:
    place = tmp_path / "there"
    process = hold(spark, here, place, held)
    (driver,) = drivers_of(process)
    try:
        process.kill()
        process.communicate()
        report = backup_graph(graph, str(place), BackupOptions(freeze_id=here.freeze_id))
        assert report.resumed
        deadline = time.monotonic() + _LONGEST_SECONDS
        while Path(f"/proc/{driver}").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not Path(f"/proc/{driver}").exists()
    finally:
        if Path(f"/proc/{driver}").exists():
            os.killpg(driver, signal.SIGKILL)
    assert_same(here.backup, report.backup)

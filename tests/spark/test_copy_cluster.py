"""The job `copy` on a standalone cluster that loses a worker, its driver, and its submitter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.backup import BackupReport
from omnigraph_ops.outcomes.backups import backup_of, list_backups, read_record
from omnigraph_ops.stages.backup.parts import THREADS
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.conftest import DemoGraph
from tests.support.held import FILES_OF_PART, HELD_APPLICATION, Held
from tests.support.rows import tree_of
from tests.support.spark_cluster import Cluster, environment

pytestmark = [pytest.mark.spark, pytest.mark.night, pytest.mark.xdist_group("spark-standalone")]
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
from omnigraph_ops.config.terms import BackupOptions

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
    return Held.at("copy", tmp_path / "marks", free=2 * FILES_OF_PART)


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


def test_a_lost_driver_is_resumed_by_the_next_backup_of_which_a_lost_worker_costs_no_file(
    spark: Cluster, here: BackupReport, held: Held, tmp_path: Path
) -> None:
    place = tmp_path / "there"
    process = hold(spark, here, place, held)
    (driver,) = psutil.Process(process.pid).children()
    os.killpg(driver.pid, signal.SIGKILL)
    said = process.communicate(timeout=_LONGEST_SECONDS)[0]
    assert process.returncode == 1, said
    assert "no outcome" in said
    (left,) = list_backups(str(place)).backups
    again = Held.at("copy", tmp_path / "again")
    process = hold(spark, here, place, again)
    spark.kill("worker-2")
    again.open()
    there = finished(process)
    spark.add_worker("worker-2")
    assert there == left.backup
    assert_same(here.backup, there)


def test_a_driver_without_its_submitter_stops_when_another_attempt_begins(
    spark: Cluster, graph: Graph, here: BackupReport, held: Held, tmp_path: Path
) -> None:
    place = tmp_path / "there"
    process = hold(spark, here, place, held)
    (driver,) = psutil.Process(process.pid).children()
    process.kill()
    process.communicate()
    report = backup_graph(graph, str(place), BackupOptions(freeze_id=here.freeze_id))
    assert report.resumed
    driver.wait(_LONGEST_SECONDS)
    assert_same(here.backup, report.backup)

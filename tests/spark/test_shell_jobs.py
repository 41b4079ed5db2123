"""`--spark MASTER` on the verbs of the shell: the jobs for real, on Spark in one process."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from pyspark import TaskContext

from omnigraph_ops.errors import NotAGraph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.backup import BackedFile, PlaceOfBackup
from omnigraph_ops.models.optimize import OptimizeReport
from omnigraph_ops.outcomes.backups import backup_of, read_record, read_verification
from omnigraph_ops.spark.backup_jobs import Restoring, restore_on_worker, sweep_begun
from omnigraph_ops.spark.submit import Submitter
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.rewrites import TABLE
from tests.support.rows import rows_everywhere, tree_of
from tests.support.shell import Cli, assert_refused
from tests.support.spark_cluster import environment
from tests.support.tables import rows_by_id

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-local")]
MASTER = "local[2]"
SPEC: dict[str, Any] = {"node_types": 2, "loads": 3, "rows": 20}


def sealed_files(backup: str) -> tuple[BackedFile, ...]:
    """What the record of a backup says of its files. Reads."""
    return read_record(*backup_of(backup)).files


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.mark.night
def test_spark_starts_wherever_this_python_is(
    demo_graph: DemoGraph, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, place = demo_graph(**SPEC), tmp_path / "a pläce"
    place.symlink_to(Path(sys.executable).parent)
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES", "1")
    monkeypatch.setenv("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "0")
    done = cli(f"optimize --json --table {TABLE}", graph.uri, "--spark", MASTER)
    assert (done.code, [t["executor"] for t in done.json["tables"]]) == (0, ["spark"]), done.err


def test_optimize_submits_the_tables_above_the_threshold(
    demo_graph: DemoGraph, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SPEC)
    before = rows_by_id(graph)
    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES", "1")
    monkeypatch.setenv("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "0")
    done = cli(f"optimize --json --table {TABLE}", graph.uri, "--spark", MASTER)
    assert done.code == 0, done.err
    (stats,) = done.json["tables"]
    assert (stats["executor"], stats["fragments_added"], stats["error"]) == ("spark", 1, None)
    assert f"rewrite on {MASTER}" in done.err
    assert rows_by_id(open_graph(graph.uri)) == before
    assert_pins_are_heads(graph)
    assert_no_leftovers(graph)


@pytest.mark.usefixtures("submits_here")
def test_the_driver_does_what_it_is_told(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SPEC)
    words = ("--graph", graph.uri, "--table", TABLE, "--request", '{"cutoff": 100}')
    (stats,) = Submitter(master=MASTER)("rewrite", words, OptimizeReport, lambda: None).tables
    assert (stats.error, stats.fragments_added) == (None, 0), "no more fragments than that are small"


@pytest.mark.usefixtures("submits_here")
def test_a_table_that_is_gone_costs_no_other_of_its_submit(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SPEC)
    keys = [entry.table_key for entry in graph.state().entries]
    words = ("--graph", graph.uri, *(word for key in (*keys, "node:Gone") for word in ("--table", key)))
    report = Submitter(master=MASTER)("rewrite", words, OptimizeReport, lambda: None)
    assert {row.table_key: row.committed for row in report.tables} == dict.fromkeys(keys, True) | {"node:Gone": False}
    assert [row.table_key for row in report.failed] == ["node:Gone"]
    assert_pins_are_heads(graph)


@pytest.mark.night
def test_backup_copies_on_spark_what_it_copies_in_process(demo_graph: DemoGraph, cli: Cli, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC, written_branches=1)
    freeze = freeze_graph(graph).freeze_id
    reports = {}
    for name, more in (("here", ()), ("there", ("--spark", MASTER))):
        done = cli(f"backup --json --freeze {freeze}", graph.uri, str(tmp_path / name), *more)
        assert done.code == 0, done.err
        reports[name] = done.json
    here, there = reports["here"], reports["there"]
    assert {n: here[n] for n in ("total", "copied", "linked", "kept")} == {
        n: there[n] for n in ("total", "copied", "linked", "kept")
    }
    assert tree_of(f"{here['backup']}/files") == tree_of(f"{there['backup']}/files")
    assert sealed_files(here["backup"]) == sealed_files(there["backup"])
    assert verify_backup(there["backup"], graph=graph).problems == ()


@pytest.mark.usefixtures("submits_here")
def test_verify_finds_on_spark_what_it_finds_in_process(demo_graph: DemoGraph, cli: Cli, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    backup = backup_graph(graph, str(tmp_path / "backups")).backup
    base = Path(backup, "files")
    flipped, gone, longer = sorted(base.rglob("data/*.lance"))[:3]
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 1
    flipped.write_bytes(data)
    gone.unlink()
    longer.write_bytes(longer.read_bytes() + b"!")
    (base / "stray").write_bytes(b"?")
    here = cli("verify --json", backup, "--graph", graph.uri)
    between = time.time()
    there = cli("verify --json", backup, "--graph", graph.uri, "--max-bytes-per-second", "1GB", "--spark", MASTER)
    assert (here.code, there.code) == (1, 1), there.err
    recorded = read_verification(*backup_of(backup))
    assert recorded is not None
    assert recorded.verified_at > between, "by the job"
    assert {p.file for p in recorded.problems} == {p["file"] for p in there.json["problems"]}
    assert len(here.json["problems"]) == 4
    assert here.json == there.json


@pytest.mark.usefixtures("submits_here")
def test_repair_previews_with_evidence_from_spark(demo_graph: DemoGraph, cli: Cli) -> None:
    graph = demo_graph(**SPEC, drift_tables=(TABLE,))
    here = cli("repair --json --evidence full", graph.uri)
    there = cli("repair --json --evidence full", graph.uri, "--spark", MASTER)
    assert there.code == 0, there.err
    assert f"evidence on {MASTER}" in there.err
    found = []
    for said in (here, there):
        rows = said.json["tables"]
        for row in rows:
            for cost in (row["evidence"] or {}).get("costs", ()):
                # What it cost is of the way, not of the drift.
                cost |= {"seconds": None, "measured_bytes": None}
        found.append(rows)
    assert found[0] == found[1]


@pytest.mark.usefixtures("submits_here")
def test_restore_makes_on_spark_what_it_makes_in_process(demo_graph: DemoGraph, cli: Cli, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC, written_branches=1)
    rows = rows_everywhere(graph)
    backup = backup_graph(graph, str(tmp_path / "backups")).backup
    done = cli("restore --json", backup, str(tmp_path / "there"), "--spark", MASTER)
    assert done.code == 0, done.err
    assert done.json["problems"] == []
    assert not list((tmp_path / "there").rglob("*.part"))
    assert rows_everywhere(open_graph(str(tmp_path / "there"))) == rows
    here = cli("restore --json", backup, str(tmp_path / "here")).json
    assert {k: v for k, v in here.items() if k not in {"uri", "seconds"}} == {
        k: v for k, v in done.json.items() if k not in {"uri", "seconds"}
    }


@pytest.mark.usefixtures("submits_here")
def test_a_damaged_backup_is_not_restored_on_spark(demo_graph: DemoGraph, cli: Cli, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    backup = backup_graph(graph, str(tmp_path / "backups")).backup
    flipped = next(Path(backup, "files").rglob("data/*.lance"))
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 1
    flipped.write_bytes(data)
    assert_refused(cli("restore", backup, str(tmp_path / "there"), "--spark", MASTER), "has the checksum")
    with pytest.raises(NotAGraph):
        open_graph(str(tmp_path / "there"))


def test_a_task_that_is_repeated_keeps_what_was_restored(demo_graph: DemoGraph, tmp_path: Path) -> None:
    """As after a lost executor, with what it left half written."""
    graph = demo_graph(**SPEC)
    backup = backup_graph(graph, str(tmp_path / "backups")).backup
    storage, backup_id = backup_of(backup)
    record = read_record(storage, backup_id)
    restoring = Restoring(
        backup=PlaceOfBackup(root=storage.root, backup_id=backup_id),
        destination=str(tmp_path / "there"),
        roots=record.roots,
        tries=4,
    )
    assert restore_on_worker(restoring, None, (record.files, {})) is None
    inodes = {p: p.stat().st_ino for p in (tmp_path / "there").rglob("*.lance") if p.is_file()}
    with mock.patch.object(TaskContext, "get", lambda: SimpleNamespace(attemptNumber=lambda: 1)):
        assert restore_on_worker(restoring, None, (record.files, {})) is None
    assert {p: p.stat().st_ino for p in inodes} == inodes
    some = record.files[0].file
    half = tmp_path / "there" / f"{some}.{'0' * 32}.part"
    other = tmp_path / "there" / f"else.{'0' * 32}.part"
    for path in (half, other):
        path.write_bytes(b"half")
    sweep_begun(restoring.destination, {some})
    assert (half.exists(), other.exists()) == (False, True), "only what this restore began"

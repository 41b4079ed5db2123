"""A file of a backup that a verify found damaged is in no later backup, and the list names the backup that has it."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.backup import BackupReport, FileProblem, ListedBackup
from omnigraph_ops.outcomes.backups import list_backups
from omnigraph_ops.progress import SILENT
from omnigraph_ops.stages.backup.stage import Backup, BackupRequest
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import FileLook, verify_backup
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.backups import flip, restored
from tests.support.edges import raising, when_asked
from tests.support.rows import rows_everywhere
from tests.support.shell import Cli
from tests.support.writers import copies, write

pytestmark = pytest.mark.slow

SMALL = {"node_types": 1, "loads": 2, "rows": 12}


def nightly(graph: Graph, destination: Path) -> BackupReport:
    """A backup as the DAG makes it."""
    return Backup().run(graph, BackupRequest(destination=str(destination), incremental=True), SILENT)


def listed(report: BackupReport) -> ListedBackup:
    found = list_backups(str(Path(report.backup).parent)).backups
    return next(b for b in found if b.backup_id == report.backup_id)


def victim(report: BackupReport) -> str:
    """A data file, by its path in the graph."""
    files = Path(report.backup, "files")
    return str(min(files.rglob("nodes/*/data/*.lance")).relative_to(files))


@pytest.mark.parametrize("named", [False, True], ids=["newest", "named"])
def test_what_a_verify_found_damaged_is_copied_anew(demo_graph: DemoGraph, tmp_path: Path, named: bool) -> None:
    graph = demo_graph(**SMALL)
    first = nightly(graph, tmp_path / "backups")
    file = victim(first)
    flip(first.backup, file)
    (problem,) = verify_backup(first.backup).problems
    assert problem.file == file
    options = BackupOptions(incremental_from=first.backup)
    second = backup_graph(graph, str(tmp_path / "backups"), options) if named else nightly(graph, tmp_path / "backups")
    assert second.incremental_from == first.backup_id
    assert second.linked.files > 0, "all other files are taken as before"
    assert verify_backup(second.backup).problems == ()
    again = restored(second.backup, tmp_path / "restored")
    assert rows_everywhere(again) == rows_everywhere(graph)
    assert not list(Path(again.uri).rglob("verified.json"))


def test_one_damaged_file_that_several_backups_share_is_taken_from_none(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, target = demo_graph(**SMALL), tmp_path / "backups"
    first, second = nightly(graph, target), nightly(graph, target)
    flip(second.backup, victim(first), shared=True)
    assert len(verify_backup(second.backup).problems) == 1
    third = nightly(graph, target)
    assert third.incremental_from == first.backup_id, "the newest that did not fail a verify"
    assert third.linked.files > 0
    assert verify_backup(third.backup).problems == ()
    assert len(verify_backup(first.backup).problems) == 1, "it had the same damaged file"


def test_the_list_names_the_backup_until_a_verify_finds_it_sound(
    demo_graph: DemoGraph, tmp_path: Path, cli: Cli
) -> None:
    graph, target = demo_graph(**SMALL), tmp_path / "backups"
    first = nightly(graph, target)
    assert (listed(first).sound, listed(first).detail) == (None, "")
    file = victim(first)
    flip(first.backup, file)
    assert cli("verify", first.backup).code == 1
    (told,) = cli("backups --json", str(target)).json["backups"]
    assert (told["state"], told["sound"], told["verified_at"] > told["started_at"]) == ("finished", False, True)
    text = cli("backups", str(target)).out
    assert "failed verification at 20" in text
    assert "UTC, problems: 1" in text
    flip(first.backup, file)
    assert cli("verify", first.backup).code == 0
    assert (listed(first).sound, listed(first).detail) == (True, "")
    assert "failed verification" not in cli("backups", str(target)).out
    second = nightly(graph, target)
    assert Path(second.backup, "files", file).samefile(Path(first.backup, "files", file)), "taken again"


def test_damage_in_the_graph_is_no_damage_of_the_backup(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SMALL)
    report = nightly(graph, tmp_path / "backups")
    path = Path(graph.uri, victim(report))
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert len(verify_backup(report.backup, graph=graph).problems) == 1
    assert listed(report).sound is True


def test_a_verify_that_cannot_record_its_outcome_reports_it_all_the_same(
    demo_graph: DemoGraph, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = nightly(demo_graph(**SMALL), tmp_path / "backups")
    file = victim(report)
    flip(report.backup, file)

    when_asked(monkeypatch, os, "fsync", raising(OSError(errno.EROFS, "Read-only file system")), times=None)
    found = cli("verify --json", report.backup)
    assert (found.code, [p["file"] for p in found.json["problems"]]) == (1, [file])
    assert "verified.json: Read-only file system; no row is lost; mount that file" in found.json["not_recorded"]
    told = cli("verify", report.backup)
    assert (told.code, "Traceback" in told.out + told.err) == (1, False)
    assert "Not recorded" in told.out
    assert listed(report).sound is None


def test_a_backup_that_is_deleted_during_its_verify_does_not_come_back(demo_graph: DemoGraph, tmp_path: Path) -> None:
    report = nightly(demo_graph(**SMALL), tmp_path / "backups")

    def deleted(_storage: Storage, _looks: Sequence[FileLook], _where: str = "", /) -> list[FileProblem]:
        shutil.rmtree(report.backup)
        return []

    assert verify_backup(report.backup, reader=deleted).not_recorded == "the backup was deleted during the verify"
    assert not Path(report.backup).exists()


@pytest.mark.parametrize(
    "text",
    ["{", json.dumps({"schema_version": 2}), '{"schema_version": 1, "verified_at": NaN, "problems": []}'],
    ids=["damaged", "later", "no time"],
)
def test_an_outcome_that_cannot_be_read_counts_as_no_success(demo_graph: DemoGraph, tmp_path: Path, text: str) -> None:
    graph, target = demo_graph(**SMALL), tmp_path / "backups"
    first, second = nightly(graph, target), nightly(graph, target)
    Path(second.backup, "verified.json").write_text(text)
    assert listed(second).sound is False
    assert "verified.json cannot be read" in listed(second).detail
    third = nightly(graph, target)
    assert (third.incremental_from, third.linked.files) == (first.backup_id, 0)
    assert verify_backup(second.backup).problems == ()
    write(graph, "node:Person", copies("later-"))
    assert nightly(graph, target).linked.files > 0


def test_an_outcome_that_the_store_does_not_give_takes_no_backup_away(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, target = demo_graph(**SMALL), tmp_path / "backups"
    Path(nightly(graph, target).backup, "verified.json").mkdir()
    second = nightly(graph, target)
    assert (second.linked.files, verify_backup(second.backup).problems) == (0, ())

"""Backups to, within and from an object store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.coordination.holds import freezes
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.backup import BackupLeft, BackupState, Tally
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.outcomes.backups import list_backups
from omnigraph_ops.outcomes.run_journal import what_came_of
from omnigraph_ops.progress import SILENT
from omnigraph_ops.stages.backup import transfer
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.stage import Backup, BackupRequest
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.storage import copying
from omnigraph_ops.storage.copying import Expected, copy_file
from omnigraph_ops.storage.location import StoreAccess
from omnigraph_ops.storage.store import Storage
from tests.support.backups import restored
from tests.support.rows import rows_everywhere
from tests.support.s3 import s3_client
from tests.support.writers import copies, write

pytestmark = pytest.mark.s3
SPEC = DemoSpec(node_types=1, loads=1, rows=6, written_branches=1)


def test_from_disk_to_s3_and_back(bucket: str, tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "graph"), SPEC)
    graph = open_graph(str(tmp_path / "graph"), Settings())
    rows = rows_everywhere(graph)
    first = backup_graph(graph, f"{bucket}/backups")
    assert verify_backup(first.backup).without_checksum == 0
    write(graph, "node:Person", copies("later-"))
    later = rows_everywhere(graph)
    second = backup_graph(graph, f"{bucket}/backups", BackupOptions(incremental_from=first.backup))
    assert second.linked.files > second.copied.files > 0
    assert verify_backup(second.backup).problems == ()
    assert [b.sound for b in list_backups(f"{bucket}/backups").backups] == [True, True]
    (tmp_path / "graph").rename(tmp_path / "hidden")
    assert rows_everywhere(restored(first.backup, tmp_path / "one")) == rows
    assert rows_everywhere(restored(second.backup, tmp_path / "two")) == later


def test_a_backup_is_made_with_the_credentials_of_its_graph(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_demo_graph(str(tmp_path / "graph"), SPEC)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    access = StoreAccess(variables={name: os.environ[name] for name in names})
    graph = open_graph(str(tmp_path / "graph"), Settings(), access)
    for name in names:
        monkeypatch.delenv(name)
    # What is cached was made with the credentials of the environment.
    type(Storage(bucket).filesystem).clear_instance_cache()
    request = BackupRequest(destination=f"{bucket}/backups", incremental=True)
    first, second = (Backup().run(graph, request, SILENT) for _ in range(2))
    assert (first.incremental_from, second.incremental_from) == (None, first.backup_id)
    assert verify_backup(second.backup, access=access).problems == ()


def test_a_backup_is_told_with_the_credentials_of_its_graph(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_demo_graph(str(tmp_path / "graph"), SPEC)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    access = StoreAccess(variables={name: os.environ[name] for name in names})
    graph = open_graph(str(tmp_path / "graph"), Settings(), access)
    made, made_at = backup_graph(graph, f"{bucket}/backups"), Storage(f"{bucket}/backups")
    for name in names:
        monkeypatch.delenv(name)
    # What is cached was made with the credentials of the environment.
    type(made_at.filesystem).clear_instance_cache()
    told = what_came_of(graph, Unit(name="a backup", stage="backup", backup=made.backup))
    assert isinstance(told, BackupLeft)
    assert (told.finished, told.total) == (True, made.total)


def test_within_a_store_the_server_copies(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_demo_graph(str(tmp_path / "graph"), SPEC)
    on_disk = backup_graph(open_graph(str(tmp_path / "graph"), Settings()), str(tmp_path / "backups"))
    assert restore_backup(on_disk.backup, f"{bucket}/graphs/kb.omni", settings=Settings()).problems == ()
    graph = open_graph(f"{bucket}/graphs/kb.omni", Settings())
    rows = rows_everywhere(graph)
    streamed: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(transfer, "copy_file", lambda source, *_a, **_n: streamed.append(source[1]))
        first = backup_graph(graph, f"{bucket}/backups")
    assert streamed == []
    report = verify_backup(first.backup, graph=graph)
    assert (report.problems, report.without_checksum) == ((), first.total.files)
    summed = backup_graph(graph, f"{bucket}/backups", BackupOptions(checksum=True, incremental_from=first.backup))
    assert (summed.linked.files, verify_backup(summed.backup).without_checksum) == (0, 0)
    assert freezes(graph.storage) == ()
    again = restore_backup(first.backup, f"{bucket}/restored", settings=Settings())
    assert again.problems == ()
    assert restore_backup(first.backup, f"{bucket}/restored", settings=Settings()).total == Tally(), "it is there"
    s3 = graph.storage.filesystem
    s3.rm(graph.uri, recursive=True)
    assert rows_everywhere(open_graph(f"{bucket}/restored", Settings())) == rows
    s3.rm_file(f"{first.backup}/backup.json")
    assert [b.state for b in list_backups(f"{bucket}/backups").backups] == [
        BackupState.FINISHED,
        BackupState.UNFINISHED,
    ]


def test_a_large_upload_that_fails_leaves_no_object(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small:
        chunk = 1024 * 1024

        def wait_for(self, size: int) -> None:
            """Never."""

    (tmp_path / "large").write_bytes(b"x" * (12 * 1024 * 1024))
    disk, store = Storage(str(tmp_path)), Storage(bucket)
    monkeypatch.setattr(copying, "_PART", 5 * 1024 * 1024)
    with pytest.raises(CorruptGraph, match="instead of"):
        copy_file((disk, "large"), (store, "large"), Expected(size=13 * 1024 * 1024), pacing=Small())
    assert not store.exists("large")
    assert not s3_client().list_multipart_uploads(Bucket=bucket.removeprefix("s3://")).get("Uploads")
    checksum = copy_file((disk, "large"), (store, "large"), Expected(size=12 * 1024 * 1024), pacing=Small())
    back = Expected(size=12 * 1024 * 1024, checksum=checksum)
    assert copy_file((store, "large"), (disk, "back"), back, pacing=Small()) == checksum

"""Backups and restores on an object store whose processes are killed, one after the other, at chosen calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.coordination.holds import freezes
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.backup import BackupState
from omnigraph_ops.outcomes.backups import list_backups
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from tests.support.backups import killed_backup, killed_restore
from tests.support.freezes import freeze_tags
from tests.support.rows import rows_everywhere
from tests.support.s3 import REAL_STORE, s3_client
from tests.support.writers import copies, write

pytestmark = pytest.mark.s3
SPEC = DemoSpec(node_types=1, loads=1, rows=6, written_branches=1)
KILLS = (("copy_file", 1), ("copy_file", 12), ("rows_of_cut", 1), ("write_record", 1))
WITHIN = (("copy_within", 1), ("copy_within", 12), ("write_record", 1))
STEP = 1 if REAL_STORE else 2
"""On moto every other one: it takes several times longer than a real store."""


@pytest.mark.night
def test_a_backup_to_a_store_survives_every_kill(bucket: str, tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "graph"), SPEC)
    graph = open_graph(str(tmp_path / "graph"), Settings())
    rows, target = rows_everywhere(graph), f"{bucket}/backups"
    for point, number in KILLS[STEP - 1 :: STEP]:
        killed_backup(graph.uri, target, point, number)
        (left,) = list_backups(target).backups
        assert left.state is BackupState.UNFINISHED
        with pytest.raises(InvalidInput, match="unfinished and is never restored"):
            restore_backup(left.backup, str(tmp_path / "no"))
        write(graph, "node:Person", copies(f"after-{point}-{number}-"))
    made = backup_graph(graph, target)
    assert (made.backup_id, made.resumed, made.copied.files) == (left.backup_id, True, 0)
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())
    assert (verify_backup(made.backup).problems, verify_backup(made.backup).without_checksum) == ((), 0)

    place = f"{bucket}/graphs/kb.omni"
    for number in (1, 9, 20)[STEP - 1 :: STEP]:
        killed_restore(made.backup, place, "copy_file", number)
    assert restore_backup(made.backup, place, settings=Settings()).problems == ()
    assert rows_everywhere(open_graph(place, Settings())) == rows, "the cut of the first attempt"


@pytest.mark.night
def test_a_backup_that_the_store_copies_itself_survives_every_kill(bucket: str, tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "graph"), SPEC)
    on_disk = backup_graph(open_graph(str(tmp_path / "graph"), Settings()), str(tmp_path / "backups"))
    restore_backup(on_disk.backup, f"{bucket}/graph", settings=Settings())
    graph = open_graph(f"{bucket}/graph", Settings())
    rows, target = rows_everywhere(graph), f"{bucket}/backups"
    for point, number in WITHIN[STEP - 1 :: STEP]:
        killed_backup(graph.uri, target, point, number)
    made = backup_graph(graph, target)
    assert made.resumed
    assert freezes(graph.storage) == ()
    assert verify_backup(made.backup, graph=graph).problems == ()
    place = str(tmp_path / "place")
    killed_restore(made.backup, place, "copy_file", 9)
    assert restore_backup(made.backup, place, settings=Settings()).problems == ()
    assert rows_everywhere(open_graph(place, Settings())) == rows


def test_an_earlier_backup_that_goes_meanwhile_costs_a_copy(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_demo_graph(str(tmp_path / "graph"), SPEC)
    graph = open_graph(str(tmp_path / "graph"), Settings())
    first = backup_graph(graph, f"{bucket}/backups")
    real = s3_client()
    name = bucket.removeprefix("s3://")

    def lose(text: str) -> None:
        for key in real.list_objects_v2(Bucket=name, Prefix=f"backups/{first.backup_id}/files/").get("Contents", ()):
            real.delete_object(Bucket=name, Key=key["Key"])

    second = backup_graph(
        graph, f"{bucket}/backups", BackupOptions(incremental_from=first.backup), progress=Lines(lose)
    )
    assert (second.linked.files, verify_backup(second.backup).problems) == (0, ())

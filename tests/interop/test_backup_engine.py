"""The engine loads, optimizes and cleans up while a backup is killed and continued: what is restored is the cut.

`OMNIGRAPH_BACKUP_ROUNDS` sets how many rounds (default 2); each is one cut, one kill and one restored graph.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.coordination.freezes import unfreeze
from omnigraph_ops.coordination.holds import freezes
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import SCHEMA_STATE_FILE
from omnigraph_ops.models.backup import BackupReport
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.interop.engine import Engine, engine, people
from tests.support.backups import killed_backup, restored
from tests.support.freezes import freeze_tags
from tests.support.rows import tree_of

pytestmark = pytest.mark.interop
ROUNDS = int(os.environ.get("OMNIGRAPH_BACKUP_ROUNDS", "2"))
BRANCHES = ("main", "lazy", "team/a")
POINTS = ("copy_file", "copy_file", "copy_file", "copy_file", "fsync", "fsync", "rows_of_cut", "write_record")


class Busy(threading.Thread):
    """Loads, deletes, optimizes and cleans up, one engine process after the other, until it is stopped."""

    def __init__(self, subject: Engine, graph: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.subject, self.graph, self.seed = subject, graph, seed
        self.stopped = threading.Event()
        self.done = 0

    def run(self) -> None:
        while not self.stopped.is_set():
            start = 10_000 * (self.seed + 1) + 10 * self.done
            self.subject.load(self.graph, people(start, 3))
            if self.done % 2 == 0:
                self.subject.load(self.graph, people(start + 5, 2), mode="merge", branch="team/a")
            if self.subject.stamp == 6:  # 0.7.2 panics in optimize when rows of a full-text index were deleted
                self.subject.delete_person(self.graph, f"p{start}")
            self.subject.optimize(self.graph)
            self.subject.run("cleanup", "--keep", "1", "--confirm", "--json", str(self.graph))
            self.done += 1

    def __enter__(self) -> Busy:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stopped.set()
        self.join()


def made(subject: Engine, graph: Path) -> None:
    subject.init(graph)
    for number in range(3):
        subject.load(graph, people(number * 6, 6))
    subject.run("branch", "create", "--uri", str(graph), "lazy")
    subject.run("branch", "create", "--uri", str(graph), "team/a")
    subject.load(graph, people(100, 3), mode="merge", branch="team/a")
    subject.load(graph, people(50, 3))


def exports(subject: Engine, graph: Path) -> dict[str, list[str]]:
    return {name: subject.export(graph, name) for name in BRANCHES}


@pytest.mark.parametrize("stamp", [3, 6])
def test_every_restored_copy_is_the_cut(tmp_path: Path, stamp: int) -> None:
    subject, graph, target = engine(stamp), tmp_path / "g.omni", tmp_path / "backups"
    made(subject, graph)
    earlier: BackupReport | None = None
    for number in range(ROUNDS):
        dice = random.Random(f"{stamp} {number}")
        opened = open_graph(str(graph), Settings())
        at_cut = exports(subject, graph)
        freeze = freeze_graph(opened)
        with Busy(subject, graph, number) as busy:
            point = dice.choice(POINTS)
            killed_backup(str(graph), target, point, dice.randrange(24, 80) if point in {"copy_file", "fsync"} else 1)
            options = BackupOptions(
                freeze_id=freeze.freeze_id,
                incremental_from=earlier.backup if earlier is not None and dice.random() < 0.5 else None,
            )
            earlier = backup_graph(opened, str(target), options)
        assert earlier.resumed
        assert busy.done > 0
        unfreeze(opened, freeze.freeze_id)
        assert (freezes(opened.storage), freeze_tags(graph)) == ((), set())
        assert verify_backup(earlier.backup).problems == ()
        hidden = graph.rename(tmp_path / "hidden.omni")
        place = tmp_path / "restored.omni"
        restored(earlier.backup, place)
        assert exports(subject, place) == at_cut, f"round {number}, killed at {point}"
        if number == ROUNDS - 1:
            goes_on(subject, place, at_cut)
        shutil.rmtree(place)
        hidden.rename(graph)


def goes_on(subject: Engine, graph: Path, before: dict[str, list[str]]) -> None:
    """The engine writes main and a branch of a restored graph, optimizes it, cleans it up, and loses nothing."""
    subject.load(graph, people(7000, 3))
    subject.load(graph, people(7100, 3), mode="merge", branch="team/a")
    after = exports(subject, graph)
    assert after["lazy"] == before["lazy"]
    assert set(before["main"]) < set(after["main"])
    assert set(before["team/a"]) < set(after["team/a"])
    subject.optimize(graph)
    assert exports(subject, graph) == after


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_branch_that_the_engine_deletes_meanwhile_is_named(tmp_path: Path, stamp: int) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    made(subject, graph)
    opened = open_graph(str(graph), Settings())
    freeze = freeze_graph(opened)
    subject.run("branch", "delete", "--uri", str(graph), "team/a")
    with pytest.raises(CorruptGraph, match=r"team/a.*its branch was deleted"):
        backup_graph(opened, str(tmp_path / "backups"), BackupOptions(freeze_id=freeze.freeze_id))
    unfreeze(opened, freeze.freeze_id)
    report = backup_graph(opened, str(tmp_path / "backups"))
    assert not report.resumed, "nothing was copied before it was refused"
    at_cut = {name: subject.export(graph, name) for name in ("main", "lazy")}
    graph.rename(tmp_path / "hidden.omni")
    place = tmp_path / "restored.omni"
    restored(report.backup, place)
    assert {name: subject.export(place, name) for name in at_cut} == at_cut


@pytest.mark.parametrize("stamp", [3, 6])
def test_what_lacks_the_last_file_of_a_restore_is_no_graph_to_the_engine(tmp_path: Path, stamp: int) -> None:
    subject, graph, place = engine(stamp), tmp_path / "g.omni", tmp_path / "restored"
    made(subject, graph)
    restored(backup_graph(open_graph(str(graph)), str(tmp_path / "backups")).backup, place)
    last = place / SCHEMA_STATE_FILE
    content = last.read_bytes()
    last.unlink()
    stored = tree_of(place)
    for call in (
        ("export", "--store", str(place), "--branch", "main"),
        ("branch", "create", "--uri", str(place), "new"),
        ("branch", "merge", "--uri", str(place), "team/a", "--into", "main"),
        ("optimize", "--json", str(place)),
        ("cleanup", "--keep", "1", "--confirm", "--json", str(place)),
    ):
        assert "incomplete" in subject.run(*call, check=False).stderr
    assert tree_of(place) == stored
    last.write_bytes(content)
    assert exports(subject, place) == exports(subject, graph)

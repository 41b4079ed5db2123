"""What a freeze promises, with the real engine as reader, writer and collector."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.fence import current_lock, fenced
from omnigraph_ops.coordination.freezes import unfreeze
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.freeze import Freeze
from omnigraph_ops.models.optimize import SkipReason
from omnigraph_ops.models.orphans import OrphanKind
from omnigraph_ops.stages.freeze.files import cut_files
from omnigraph_ops.stages.freeze.observe import verify_cut
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.interop.engine import SCHEMA, Engine, engine, people
from tests.support.freezes import copy_cut, freeze_tags
from tests.support.orphans import WEEK, age

pytestmark = pytest.mark.interop
BRANCHES = ("main", "lazy", "team/a", "team/b/deep", "child")


def grown(subject: Engine, graph: Path) -> Graph:
    """Loads, lazy, written and nested branches, and a branch of a branch. Writes."""
    subject.init(graph)
    subject.load(graph, people(0, 6))
    subject.run("branch", "create", "--uri", str(graph), "lazy")
    subject.load(graph, people(6, 6))
    for number, name in enumerate(("team/a", "team/b/deep")):
        subject.run("branch", "create", "--uri", str(graph), name)
        subject.load(graph, people(100 + number * 100, 3), mode="merge", branch=name)
    subject.run("branch", "create", "--uri", str(graph), "--from", "team/a", "child")
    subject.optimize(graph)
    subject.load(graph, people(12, 3))
    return open_graph(str(graph), Settings())


def life_goes_on(subject: Engine, graph: Path) -> None:
    """The engine loads, optimizes and collects. Writes and destroys."""
    subject.load(graph, people(15, 6))
    subject.optimize(graph)
    subject.load(graph, people(300, 3), mode="merge", branch="team/a")
    collect(subject, graph)


def collect(subject: Engine, graph: Path) -> None:
    subject.run("cleanup", "--keep", "1", "--confirm", str(graph))


def gone(graph: Graph, freeze: Freeze) -> set[tuple[str, int]]:
    """Pinned versions of main chains that cannot be opened any more."""
    found = set()
    for pin in freeze.cut.pins:
        try:
            graph.lance.open(graph.storage.uri(pin.path), branch=pin.branch, version=pin.version).to_table()
        except Exception:
            found.add((pin.path, pin.version))
    return found


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_copy_of_the_listed_files_is_the_graph_at_the_freeze(tmp_path: Path, stamp: int) -> None:
    subject, home = engine(stamp), tmp_path / "home" / "g.omni"
    home.parent.mkdir()
    graph = grown(subject, home)
    before = {name: subject.export(home, name) for name in BRANCHES}
    freeze = freeze_graph(graph, reason="interop")
    life_goes_on(subject, home)
    assert verify_cut(graph, freeze) == ()
    copy = tmp_path / "restored" / "g.omni"
    copy_cut(graph, freeze, copy)
    home.parent.rename(tmp_path / "away")
    assert {name: subject.export(copy, name) for name in BRANCHES} == before
    subject.load(copy, people(400, 3))
    for number, name in enumerate(("lazy", "team/a", "child")):
        if not (stamp == 3 and name == "child"):  # 0.7.2 cannot write on a branch of a branch
            subject.load(copy, people(500 + number * 10, 3), mode="merge", branch=name)
    subject.run("branch", "merge", "--uri", str(copy), "team/b/deep", "--into", "main")
    assert len(subject.export(copy)) > len(before["main"])
    subject.optimize(copy)
    collect(subject, copy)
    for name in BRANCHES:
        subject.export(copy, name)
    subject.run("branch", "delete", "--uri", str(copy), "child")
    opened = open_graph(str(copy), Settings())
    apply_repair(opened, preview_repair(opened), force=True)
    assert not optimize_all(opened).failed


@pytest.mark.parametrize("stamp", [3, 6])
def test_the_engines_cleanup_honours_our_tags(tmp_path: Path, stamp: int) -> None:
    subject, home = engine(stamp), tmp_path / "g.omni"
    subject.init(home)
    subject.load(home, people(0, 6))
    subject.load(home, people(6, 6))
    graph = open_graph(str(home), Settings())
    freeze = freeze_graph(graph)
    for start in (20, 30):
        subject.load(home, people(start, 3))
        subject.optimize(home)
        collect(subject, home)
    assert gone(graph, freeze) == set()
    cut_files(graph, freeze)
    unfreeze(graph, freeze.freeze_id)
    collect(subject, home)
    # Without the tags the same cleanup takes them: it was the tags that kept them.
    assert len(gone(graph, freeze)) >= 4
    with pytest.raises(CorruptGraph):
        cut_files(graph, freeze)


def left_behind(subject: Engine, home: Path, *, frozen: bool) -> set[OrphanKind]:
    """Kinds of the orphans after the engine loaded, optimized and collected, with a freeze meanwhile or without."""
    subject.init(home)
    subject.load(home, people(0, 6))
    graph = open_graph(str(home), Settings())
    freeze = freeze_graph(graph) if frozen else None
    for start in (20, 30, 40):
        subject.load(home, people(start, 3))
        subject.optimize(home)
    collect(subject, home)
    if freeze is not None:
        unfreeze(graph, freeze.freeze_id)
        collect(subject, home)
    rows = subject.export(home)
    age(home)
    plan = plan_orphans(graph, older_than_seconds=WEEK)
    assert (plan.skipped, plan.unknown) == ((), ())
    assert apply_orphans(graph, plan).failed == ()
    age(home)
    assert plan_orphans(graph, older_than_seconds=WEEK).files == ()
    assert subject.export(home) == rows
    return {f.kind for f in plan.files}


@pytest.mark.parametrize("stamp", [3, 6])
def test_what_an_engine_leaks_under_a_tag_is_found_after_the_freeze(tmp_path: Path, stamp: int) -> None:
    """Its Lance removes versions after a tagged one, and not the files that only they referred to."""
    assert OrphanKind.DATA not in left_behind(engine(stamp), tmp_path / "free.omni", frozen=False)
    assert OrphanKind.DATA in left_behind(engine(stamp), tmp_path / "frozen.omni", frozen=True)


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_freeze_of_a_table_stays_with_it_when_the_engine_renames_it(tmp_path: Path, stamp: int) -> None:
    subject, root = engine(stamp), tmp_path / "g.omni"
    subject.init(root)
    for start in (0, 6, 12):
        subject.load(root, people(start, 6))
    freeze = freeze_graph(open_graph(str(root)), tables=("node:Person",))
    (path,) = {pin.path for pin in freeze.cut.pins if pin.table_key == "node:Person"}
    renamed = SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {').replace("Person", "Human")
    subject.apply_schema(root, renamed.replace('@rename_from("Human")', '@rename_from("Person")'))
    # A release that makes another table of it leaves the frozen one to its tags.
    moved = {e.path for e in open_graph(str(root)).state().entries if e.table_key == "node:Human"} != {path}
    skipped = {t.table_key for t in optimize_all(open_graph(str(root))).tables if t.skipped is SkipReason.FROZEN}
    assert skipped == (set() if moved else {"node:Human"})
    assert verify_cut(open_graph(str(root)), freeze) == ()
    unfreeze(open_graph(str(root)), freeze.freeze_id)
    assert not optimize_all(open_graph(str(root))).failed


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_branch_that_the_engine_deletes_is_named_and_its_tags_still_go(tmp_path: Path, stamp: int) -> None:
    subject, home = engine(stamp), tmp_path / "g.omni"
    graph = grown(subject, home)
    freeze = freeze_graph(graph)
    subject.run("branch", "delete", "--uri", str(home), "team/b/deep")
    problems = verify_cut(graph, freeze)
    assert {p.branch for p in problems} == {"team/b/deep"}
    assert all("deleted" in p.reason for p in problems)
    assert "__manifest" in {p.path for p in problems}
    with pytest.raises(CorruptGraph):
        cut_files(graph, freeze)
    # The same name again is another branch.
    subject.run("branch", "create", "--uri", str(home), "team/b/deep")
    assert any("another one of that name" in p.reason for p in verify_cut(graph, freeze))
    subject.load(home, people(800, 3), mode="merge", branch="team/b/deep")
    subject.load(home, people(700, 3))
    collect(subject, home)
    unfreeze(graph, freeze.freeze_id)
    assert freeze_tags(home) == set()
    subject.run("branch", "delete", "--uri", str(home), "team/b/deep")


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_writer_of_the_engine_stays_outside_the_fence_until_it_is_lifted(tmp_path: Path, stamp: int) -> None:
    subject, home = engine(stamp), tmp_path / "g.omni"
    subject.init(home)
    subject.load(home, people(0, 3))
    graph, data = open_graph(str(home), Settings()), home.with_suffix(".jsonl")
    load = ("load", "--data", str(data), "--mode", "append", "--branch", "main", "--quiet", str(home))
    rows = subject.export(home)
    with fenced(graph, at_most_seconds=900) as behind_fence:
        refused = subject.run(*load, check=False)
        assert refused.returncode != 0
        assert "unavailable while schema apply is in progress" in refused.stderr
        assert subject.export(home) == rows
        frozen = freeze_graph(behind_fence)
    assert frozen.cut.one_instant
    subject.load(home, people(10, 3))
    lifted: list[float] = []
    with fenced(graph, at_most_seconds=0.3, on_lift=lambda: lifted.append(time.monotonic())):
        while current_lock(graph) is not None:
            time.sleep(0.05)
        subject.load(home, people(20, 3))
    assert len(subject.export(home)) > len(rows)


@pytest.mark.parametrize("stamp", [3, 6])
def test_cuts_taken_while_the_engine_loads_and_collects_hold_whole_loads(tmp_path: Path, stamp: int) -> None:
    """Every load brings as many people as projects: a copy that is not one instant of each branch would show it."""
    subject, home = engine(stamp), tmp_path / "g.omni"
    subject.init(home)
    subject.load(home, people(0, 4))
    subject.run("branch", "create", "--uri", str(home), "b")
    graph, stop = open_graph(str(home), Settings()), threading.Event()

    def work() -> None:
        for start in itertools.count(10, 20):
            if stop.is_set():
                return
            subject.load(home, people(start, 4))
            subject.load(home, people(10_000 + start, 4), mode="merge", branch="b")
            collect(subject, home)

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work)
        try:
            for number in range(3):
                freeze = freeze_graph(graph)
                copy = tmp_path / f"copy{number}.omni"
                copy_cut(graph, freeze, copy)
                unfreeze(graph, freeze.freeze_id)
                for branch in ("main", "b"):
                    rows = [json.loads(line) for line in subject.export(copy, branch)]
                    kinds = Counter(row.get("type") or row.get("edge") for row in rows)
                    assert kinds["Person"] == kinds["Project"] == kinds["Leads"]
                    subject.load(copy, people(90_000, 4), mode="merge", branch=branch)
        finally:
            stop.set()
        worker.result()

"""Trees of branches that Lance itself forgot go as a whole; whatever a live branch needs stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph_ops.models.orphans import OrphanKind
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.edges import when_asked
from tests.support.orphans import PERSON, age, assert_nothing_left, below, every_version, planned, put, run
from tests.support.rows import rows_everywhere
from tests.support.shell import Cli
from tests.support.writers import copies, entry_of

SMALL = {"loads": 2, "rows": 6, "node_types": 1}


@pytest.mark.slow
@pytest.mark.night("combinations")
@pytest.mark.parametrize("name", ["old", "review/old", "a/b/c", "data/x"])
def test_the_tree_of_a_branch_that_lance_forgot_goes(demo_graph: DemoGraph, stamp: int, name: str) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=1, written_branches=1)
    entry = entry_of(graph, PERSON)
    fork = graph.open_head(entry).create_branch(name)
    copies("dead-")(fork)
    ref = name.replace("/", "%2F")
    Path(graph.uri, entry.path, "_refs/branches", f"{ref}.json").unlink()
    age(graph.uri)
    tree, rows, versions = f"{entry.path}/tree/{name}", rows_everywhere(graph), every_version(graph)
    dead = below(graph, tree)
    plan, report = run(graph)
    assert planned(plan) == dict.fromkeys(dead, OrphanKind.DEAD_BRANCH)
    assert [(g.path, g.kept) for g in plan.groups] == [(tree, None)]
    assert report.files_removed == len(dead)
    assert not Path(graph.uri, tree).exists()
    assert (rows_everywhere(graph), every_version(graph)) == (rows, versions)
    assert_nothing_left(graph)


def test_files_that_an_engine_makes_anew_before_they_go_stay(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    graph = demo_graph(**SMALL)
    entry = entry_of(graph, PERSON)
    copies("dead-")(graph.open_head(entry).create_branch("old"))
    Path(graph.uri, entry.path, "_refs/branches/old.json").unlink()
    age(graph.uri)
    write, again = Storage.write, list[Path]()

    def beside(storage: Storage, path: str, data: bytes) -> None:
        """When the batch is in the journal of the run, a branch of that name is made and written to."""
        write(storage, path, data)
        if "/runs/" in path and "batch 1 " in data.decode() and not again:
            again.append(min(Path(graph.uri, entry.path, "tree/old/_versions").iterdir()))
            again[0].write_bytes(b"of somebody who was told that it is there")

    monkeypatch.setattr(Storage, "write", beside)
    said = cli("orphans --older-than 7d --confirm --json", graph.uri).json
    assert again[0].read_bytes().startswith(b"of somebody")
    assert [(s["path"], s["reason"]) for s in said["spared"]] == [
        (str(again[0].relative_to(graph.uri)), "another file has its name now")
    ]


@pytest.mark.slow
def test_a_dead_branch_around_a_live_one_leaves_it_whole(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    entry = entry_of(graph, PERSON)
    for name in ("a", "a/b", "a/b/c"):
        copies(name.replace("/", "-"))(graph.open_head(entry).create_branch(name))
    for dead in ("a", "a%2Fb%2Fc"):
        Path(graph.uri, entry.path, "_refs/branches", f"{dead}.json").unlink()
    age(graph.uri)
    versions = every_version(graph)
    plan, _ = run(graph)
    assert {g.path for g in plan.groups} == {f"{entry.path}/tree/a", f"{entry.path}/tree/a/b/c"}
    assert every_version(graph) == versions
    assert any(branch == "a/b" for _, branch, _ in versions)
    assert_nothing_left(graph)


def test_a_dead_branch_that_is_young_or_has_children_stays(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    entry = entry_of(graph, PERSON)
    copies("p-")(graph.open_head(entry).create_branch("parent"))
    forked = graph.lance.open(f"{graph.uri}/{entry.path}", branch="parent").create_branch("child")
    copies("c-")(forked)
    Path(graph.uri, entry.path, "_refs/branches/parent.json").unlink()
    age(graph.uri)
    assert planned(plan_orphans(graph)) == {}
    lonely = graph.open_head(entry).create_branch("lonely")
    Path(graph.uri, entry.path, "_refs/branches/lonely.json").unlink()
    age(lonely.uri, days=1)
    plan = plan_orphans(graph)
    assert planned(plan) == {}
    assert [g.path for g in plan.groups] == [f"{entry.path}/tree/lonely"]


def test_a_branch_that_was_made_again_since_the_plan_is_spared(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    entry = entry_of(graph, PERSON)
    copies("dead-")(graph.open_head(entry).create_branch("again"))
    ref = Path(graph.uri, entry.path, "_refs/branches/again.json")
    text = ref.read_text()
    ref.unlink()
    age(graph.uri)
    plan = plan_orphans(graph)
    assert plan.files
    ref.write_text(text)
    report = apply_orphans(graph, plan)
    assert (report.files_removed, len(report.spared)) == (0, len(plan.files))
    assert graph.lance.open(f"{graph.uri}/{entry.path}", branch="again").to_table().num_rows


def test_a_branch_that_comes_back_during_the_run_is_spared(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    entry = entry_of(graph, PERSON)
    copies("dead-")(graph.open_head(entry).create_branch("again"))
    ref = Path(graph.uri, entry.path, "_refs/branches/again.json")
    text = ref.read_text()
    ref.unlink()
    put(graph, f"{entry.path}/data/stray.lance")
    age(graph.uri)
    plan = plan_orphans(graph)
    when_asked(monkeypatch, os, "unlink", lambda: ref.write_text(text), about=r"/stray\.lance$")
    report = apply_orphans(graph, plan)
    assert (report.files_removed, len(report.spared)) == (1, len(plan.files) - 1)
    assert graph.lance.open(f"{graph.uri}/{entry.path}", branch="again").to_table().num_rows

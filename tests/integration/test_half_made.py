"""Branches that a killed engine 0.7.2 made or deleted by half: named, and deleted when no engine is at work on them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import (
    COMMITS_DIR,
    EXPIRY_BRANCH_PREFIX,
    MANIFEST_DIR,
    SCHEMA_APPLY_LOCK,
    branch_reference,
)
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.lance.gateway import LanceFailure
from omnigraph_ops.models.health import FAILED, CheckStatus
from omnigraph_ops.progress import Run
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery import half_made
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK
from tests.support.edges import raising, when_asked
from tests.support.orphans import age
from tests.support.rows import rows_everywhere
from tests.support.sidecars import TABLE, arm, make_branch, on_branch
from tests.support.writers import entry_of

pytestmark = pytest.mark.slow

SIDE = "side"


@pytest.fixture
def graph(demo_graph: DemoGraph, stamp: int) -> Graph:
    return demo_graph(stamp=stamp, loads=3, rows=8, written_branches=1, settings=QUICK)


def _unrefer(graph: Graph, dataset: str, branch: str) -> None:
    """Take away the reference to a branch, and leave its files. Destroys."""
    Path(graph.uri, dataset, "_refs", "branches", f"{branch}.json").unlink()


def _made_by_half(graph: Graph) -> None:
    graph.manifest().create_branch(SIDE)


def _deleted_but_for_the_files(graph: Graph) -> None:
    make_branch(graph, SIDE)
    _unrefer(graph, MANIFEST_DIR, SIDE)


def _lock_deleted_but_for_the_files(graph: Graph) -> None:
    make_branch(graph, SCHEMA_APPLY_LOCK)
    _unrefer(graph, MANIFEST_DIR, SCHEMA_APPLY_LOCK)


HALVES = [_made_by_half, _deleted_but_for_the_files, _lock_deleted_but_for_the_files]


@pytest.mark.parametrize("stamp", [3])
@pytest.mark.parametrize("act", HALVES)
def test_it_is_named_and_goes(graph: Graph, act: Callable[[Graph], None]) -> None:
    rows, branches = rows_everywhere(graph), graph.branches()
    act(graph)
    found = check(graph)
    assert (found.status, {f.recoverable for f in found.branch_findings}) == (CheckStatus.PENDING, {True})
    assert found.advice == ("run `omnigraph-ops recover` to finish what a crashed run left",)
    report = recover(graph)
    assert {o.action for o in report.outcomes} == {"rolled_back"}
    assert report.status is CheckStatus.CLEAN
    assert (rows_everywhere(graph), graph.branches()) == (rows, branches)
    names = {*os.listdir(graph.storage.full(f"{MANIFEST_DIR}/tree"))}
    assert names.isdisjoint({SIDE, SCHEMA_APPLY_LOCK})
    make_branch(graph, "other")
    assert check(graph).status is CheckStatus.CLEAN


@pytest.mark.parametrize("stamp", [3])
def test_a_branch_below_main_goes_without_the_graph(graph: Graph) -> None:
    """Lance deletes the whole dataset with it."""
    rows, branches = rows_everywhere(graph), graph.branches()
    graph.manifest().create_branch("main/x")
    with pytest.raises(LanceFailure, match="nothing was deleted"):
        graph.lance.delete_branch(graph.manifest(), "main/x")
    (_, advice) = check(graph).advice
    assert advice.startswith("do not delete branch 'main/x' with omnigraph")
    report = recover(graph)
    assert ([o.action for o in report.outcomes], report.status) == (["rolled_back"], CheckStatus.CLEAN)
    assert (rows_everywhere(graph), graph.branches(), check(graph).advice) == (rows, branches, ())
    assert not list(Path(graph.uri, MANIFEST_DIR, "tree", "main").rglob("*.manifest"))
    graph.manifest().create_branch("main/x")


@pytest.mark.parametrize("stamp", [3])
def test_what_an_engine_may_be_at_work_on_waits(graph: Graph) -> None:
    _made_by_half(graph)
    report = recover(graph, grace_seconds=600)
    (outcome,) = report.outcomes
    assert (outcome.action, report.status) == ("deferred", CheckStatus.PENDING)
    assert SIDE in graph.branches()


@pytest.mark.parametrize("stamp", [3])
def test_what_row_expiry_left_does_not_wait(graph: Graph) -> None:
    """Only a run with the lease makes a branch of that name."""
    expiry = f"{EXPIRY_BRANCH_PREFIX}01m8n7"
    branches = graph.branches()
    graph.manifest().create_branch(expiry)
    entry = entry_of(graph, TABLE)
    graph.open_pinned(entry).create_branch(expiry, entry.version)
    _unrefer(graph, entry.path, expiry)
    report = recover(graph, grace_seconds=600)
    assert ({o.action for o in report.outcomes}, report.status) == ({"rolled_back"}, CheckStatus.CLEAN)
    assert graph.branches() == branches
    assert not Path(graph.uri, entry.path, "tree", expiry).exists()


def _has_rows(graph: Graph) -> None:
    """Files without a reference that another branch might read."""
    (branch,) = graph.branches()
    folder = Path(graph.uri, MANIFEST_DIR, "tree", *branch.split("/"))
    shutil.copytree(folder, Path(graph.uri, MANIFEST_DIR, "tree", SIDE))
    assert Path(graph.uri, MANIFEST_DIR, "tree", SIDE, "data").is_dir()


def _is_above_another(graph: Graph) -> None:
    """The files of a branch `a/b` are below those of `a`."""
    graph.manifest().create_branch("a")
    make_branch(graph, "a/b")


def _is_published_to(graph: Graph) -> None:
    graph.manifest().create_branch(SIDE).update_config({"by": "somebody"})


def _is_whole(graph: Graph) -> None:
    make_branch(graph, "a/b")


@pytest.mark.parametrize("stamp", [3])
def test_a_written_branch_that_was_deleted_by_half_is_named_until_its_files_are_gone(graph: Graph) -> None:
    assert check(graph).advice == ()
    _has_rows(graph)
    found = check(graph)
    assert (found.status, found.branch_findings) == (CheckStatus.CLEAN, ())
    assert [text.partition(":")[0] for text in found.advice] == [
        f"branch {SIDE!r} was deleted by half after it was written to, and has files left in {MANIFEST_DIR}"
    ]
    age(graph.uri)
    apply_orphans(graph, plan_orphans(graph))
    assert check(graph).advice == ()


@pytest.mark.parametrize("stamp", [3])
@pytest.mark.parametrize("act", [_has_rows, _is_above_another, _is_whole, _is_published_to])
def test_what_is_more_than_half_stays(graph: Graph, act: Callable[[Graph], None]) -> None:
    act(graph)
    names = sorted(os.listdir(graph.storage.full(f"{MANIFEST_DIR}/tree")))
    assert [f for f in check(graph).branch_findings if f.recoverable] == []
    assert recover(graph).outcomes == ()
    assert sorted(os.listdir(graph.storage.full(f"{MANIFEST_DIR}/tree"))) == names


@pytest.mark.parametrize("stamp", [3])
def test_a_branch_that_a_sidecar_names_stays(graph: Graph) -> None:
    _made_by_half(graph)
    arm(graph, change=on_branch(SIDE))
    recover(graph)
    assert SIDE in graph.branches()


@pytest.mark.parametrize("stamp", [6])
def test_engine_0_9_0_settles_this_itself(graph: Graph) -> None:
    _made_by_half(graph)
    assert check(graph).status is CheckStatus.CLEAN
    assert recover(graph).outcomes == ()
    assert SIDE in graph.branches()


@pytest.mark.parametrize("stamp", [3])
def test_a_commit_graph_of_a_branch_that_cannot_be_read_is_named(graph: Graph) -> None:
    (branch,) = graph.branches()
    versions = Path(graph.uri, COMMITS_DIR, "tree", *branch.split("/"), "_versions")
    newest = min(versions.glob("*.manifest"))
    newest.write_bytes(b"")
    found = check(graph)
    (finding,) = found.branch_findings
    assert (finding.branch, finding.table_key, finding.recoverable) == (branch, COMMITS_DIR, False)
    assert found.status is CheckStatus.DRIFTED
    assert recover(graph).outcomes == ()


@pytest.mark.parametrize("stamp", [3])
def test_a_lineage_that_cannot_be_read_needs_a_person(graph: Graph) -> None:
    versions = Path(graph.uri, COMMITS_DIR, "_versions")
    min(versions.glob("*.manifest")).write_bytes(b"")
    found = check(graph)
    assert found.status is CheckStatus.NEEDS_PERSON
    assert COMMITS_DIR in found.damaged[0]
    assert any(COMMITS_DIR in line and "restore the graph from a backup" in line for line in found.advice)
    (failed,) = recover(graph).outcomes
    assert (failed.action, COMMITS_DIR in failed.detail) == (FAILED, True)


@pytest.mark.parametrize("stamp", [3])
def test_rows_of_a_lineage_that_cannot_be_read_need_a_person(graph: Graph) -> None:
    for file in Path(graph.uri, COMMITS_DIR, "data").iterdir():
        file.write_bytes(b"damaged" * file.stat().st_size)
    found = check(graph)
    assert found.status is CheckStatus.NEEDS_PERSON
    assert COMMITS_DIR in found.damaged[0]


@pytest.mark.parametrize("stamp", [3])
def test_the_time_of_a_branch_is_that_of_its_files(graph: Graph) -> None:
    _made_by_half(graph)
    old = time.time() - 3600
    for file in Path(graph.uri, MANIFEST_DIR, "tree", SIDE).rglob("*"):
        os.utime(file, (old, old))
    assert [o.action for o in recover(graph, grace_seconds=600).outcomes] == ["rolled_back"]


def _table_forked_by_half(graph: Graph) -> None:
    """The first write of a branch to a table died before the reference to its Lance branch."""
    make_branch(graph, SIDE)
    entry = entry_of(graph, TABLE, SIDE)
    graph.open_pinned(entry).create_branch(SIDE, entry.version)
    _unrefer(graph, entry.path, SIDE)


@pytest.mark.parametrize("stamp", [3])
def test_a_branch_of_a_table_goes_and_that_of_the_graph_stays(graph: Graph) -> None:
    _table_forked_by_half(graph)
    (finding,) = check(graph).branch_findings
    assert (finding.branch, finding.table_key, finding.recoverable) == (SIDE, TABLE, True)
    assert [o.action for o in recover(graph).outcomes] == ["rolled_back"]
    assert (check(graph).status, SIDE in graph.branches()) == (CheckStatus.CLEAN, True)
    entry = entry_of(graph, TABLE, SIDE)
    graph.open_pinned(entry).create_branch(SIDE, entry.version)


@pytest.mark.parametrize("stamp", [3])
def test_what_a_branch_publishes_from_it_stays(graph: Graph) -> None:
    """The engine finds a Lance branch by its files."""
    _table_forked_by_half(graph)
    entry = entry_of(graph, TABLE, SIDE)
    forked = graph.lance.open(f"{graph.table_uri(entry)}/tree/{SIDE}")
    publish(graph, (table_update(graph, replace(entry, branch=SIDE), forked),), actor=None, branch=SIDE)
    assert [f for f in check(graph).branch_findings if f.recoverable] == []
    assert recover(graph).outcomes == ()


@pytest.mark.parametrize("stamp", [3])
def test_what_a_branch_that_cannot_be_read_may_publish_stays(graph: Graph) -> None:
    (unread,) = graph.branches()
    _table_forked_by_half(graph)
    graph.open_at(COMMITS_DIR).create_branch("gone")
    _unrefer(graph, COMMITS_DIR, "gone")
    versions = Path(graph.uri, MANIFEST_DIR, "tree", *unread.split("/"), "_versions")
    min(versions.glob("*.manifest")).write_bytes(b"")
    found = half_made.half_made(graph)
    assert [(half.branch, half.table_key) for half in found] == [("gone", COMMITS_DIR)]


@pytest.mark.parametrize("stamp", [3])
def test_a_reference_without_files_goes(graph: Graph) -> None:
    graph.manifest().create_branch(SIDE)
    shutil.rmtree(Path(graph.uri, MANIFEST_DIR, "tree", SIDE))
    assert [o.action for o in recover(graph).outcomes] == ["rolled_back"]
    assert (check(graph).status, SIDE in graph.branches()) == (CheckStatus.CLEAN, False)


@pytest.mark.parametrize("stamp", [3])
def test_a_branch_that_is_made_again_meanwhile_stays(graph: Graph) -> None:
    """Another process deleted it and makes it anew, while this one waits whether that goes on."""
    _deleted_but_for_the_files(graph)

    class MadeAgain(Run):
        def pause(self, seconds: float) -> None:
            shutil.rmtree(Path(graph.uri, MANIFEST_DIR, "tree", SIDE))
            graph.manifest().create_branch(SIDE)

    recover(graph.with_run(MadeAgain()))
    assert graph.state(SIDE).entries


@pytest.mark.parametrize("stamp", [3])
def test_what_is_written_while_it_is_looked_at_stays(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    _deleted_but_for_the_files(graph)
    tree = Path(graph.uri, MANIFEST_DIR, "tree", SIDE)
    late = tree / "_versions" / "18446744073709551000.manifest"
    writes = partial(late.write_bytes, b"of an engine at work")

    class WrittenAfterTheWait(Run):
        def pause(self, seconds: float) -> None:
            """Once it was judged, when the lease is looked at again."""
            when_asked(monkeypatch, Storage, "read", writes, about=f"^{LEASE_PATH}-")

    (outcome, *_) = recover(graph.with_run(WrittenAfterTheWait())).outcomes
    assert (outcome.action, "changed while it was looked at" in outcome.detail) == ("deferred", True)
    assert len(list(tree.rglob("*.manifest"))) == 2


@pytest.mark.parametrize("stamp", [3])
def test_retries_do_not_keep_it_young_and_what_they_write_stays(graph: Graph) -> None:
    _deleted_but_for_the_files(graph)
    tree = Path(graph.uri, MANIFEST_DIR, "tree", SIDE)
    old = time.time() - 3600
    for file in tree.rglob("*"):
        os.utime(file, (old, old))
    retry = tree / "_transactions" / "9-retry.txn"
    retry.write_bytes(b"")
    assert [o.action for o in recover(graph, grace_seconds=600).outcomes] == ["rolled_back"]
    assert [file for file in tree.rglob("*") if file.is_file()] == [retry]
    graph.manifest().create_branch(SIDE)


def _made_over_an_earlier_one(graph: Graph) -> None:
    """Of the earlier branch the commit graph is left: a delete was killed, and then the create that cleared it away."""
    make_branch(graph, SIDE)
    graph.manifest().branches.delete(SIDE)
    graph.manifest().create_branch(SIDE)
    _unrefer(graph, COMMITS_DIR, SIDE)


@pytest.mark.parametrize("stamp", [3])
def test_a_branch_with_the_history_of_an_earlier_one_goes(graph: Graph) -> None:
    """With that history a merge would bring back deleted rows."""
    _made_over_an_earlier_one(graph)
    assert {o.action for o in recover(graph).outcomes} == {"rolled_back"}
    assert (check(graph).status, SIDE in graph.branches()) == (CheckStatus.CLEAN, False)
    make_branch(graph, SIDE)


@pytest.mark.parametrize("stamp", [3])
def test_the_history_of_an_earlier_branch_gets_no_reference(graph: Graph) -> None:
    _made_over_an_earlier_one(graph)
    entry = entry_of(graph, TABLE, SIDE)
    publish(graph, (table_update(graph, entry, graph.open_pinned(entry)),), actor=None, branch=SIDE)
    assert recover(graph).outcomes == ()
    assert not Path(graph.uri, branch_reference(COMMITS_DIR, SIDE)).exists()
    (advice,) = check(graph).advice
    assert f"branch {SIDE!r} goes on with the history of an earlier branch" in advice


@pytest.mark.parametrize("stamp", [3])
def test_what_may_not_be_deleted_stops_nothing_else(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    _deleted_but_for_the_files(graph)
    arm(graph, age_seconds=3600)

    when_asked(monkeypatch, os, "unlink", raising(PermissionError("access denied")), about=f"/tree/{SIDE}/", times=None)
    report = recover(graph)
    assert [o.action for o in report.outcomes] == ["rolled_back", "deferred"]
    assert "access denied" in report.outcomes[-1].detail
    assert report.status is CheckStatus.PENDING

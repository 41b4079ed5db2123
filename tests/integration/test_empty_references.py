"""Branch references without content, as a full disk leaves them: named, and removed when nobody can need them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import COMMITS_DIR, EXPIRY_BRANCH_PREFIX, MANIFEST_DIR, branch_reference
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.progress import Run
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK
from tests.support.rows import rows_everywhere
from tests.support.sidecars import TABLE, make_branch
from tests.support.writers import entry_of

pytestmark = pytest.mark.slow

SIDE = "side/one"
EXPIRY = f"{EXPIRY_BRANCH_PREFIX}01m8n7"


@pytest.fixture
def graph(demo_graph: DemoGraph, stamp: int) -> Graph:
    return demo_graph(stamp=stamp, loads=3, rows=8, written_branches=1, settings=QUICK)


def _empty(graph: Graph, dataset: str, branch: str, *, age_seconds: float = 3600) -> Path:
    """Leave an empty reference to a branch there, of that age. Writes."""
    path = Path(graph.uri, branch_reference(dataset, branch))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    made = time.time() - age_seconds
    os.utime(path, (made, made))
    return path


def _table(graph: Graph) -> str:
    return entry_of(graph, TABLE).path


def test_that_of_a_table_is_named_and_goes(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    path = _empty(graph, _table(graph), SIDE)
    found = check(graph)
    assert found.status is CheckStatus.PENDING
    assert [(f.branch, f.table_key, f.recoverable) for f in found.branch_findings] == [(SIDE, TABLE, True)]
    assert found.advice == (
        "do not make a branch or write to one with omnigraph now: the branch reference "
        f"{path.relative_to(graph.uri)} is an empty file, as a full disk leaves it; "
        "run `omnigraph-ops recover`, which removes it",
    )
    report = recover(graph, grace_seconds=600)
    assert ([o.action for o in report.outcomes], report.status) == (["rolled_back"], CheckStatus.CLEAN)
    assert (path.exists(), rows_everywhere(graph)) == (False, rows)


def test_it_waits_for_the_grace_period_but_where_only_row_expiry_makes_it(graph: Graph) -> None:
    young = _empty(graph, _table(graph), SIDE, age_seconds=0)
    ours = _empty(graph, _table(graph), EXPIRY, age_seconds=0)
    report = recover(graph, grace_seconds=600)
    assert sorted(o.action for o in report.outcomes) == ["deferred", "rolled_back"]
    assert (young.exists(), ours.exists(), report.status) == (True, False, CheckStatus.PENDING)


def test_that_of_a_branch_of_the_graph_goes(graph: Graph) -> None:
    rows, branches = rows_everywhere(graph), graph.branches()
    make_branch(graph, SIDE)
    path = _empty(graph, MANIFEST_DIR, SIDE, age_seconds=0)
    found = check(graph)
    assert (found.status, [f.table_key for f in found.branch_findings]) == (CheckStatus.PENDING, [MANIFEST_DIR])
    assert found.advice[0].startswith("do not open the graph with omnigraph now: ")
    waits = recover(graph, grace_seconds=600)
    assert ([o.action for o in waits.outcomes], waits.status) == (["deferred"], CheckStatus.PENDING)
    assert recover(graph, grace_seconds=0).status is CheckStatus.CLEAN
    assert (path.exists(), graph.branches(), rows_everywhere(graph)) == (False, branches, rows)


def test_what_another_branch_has_below_it_does_not_count(graph: Graph) -> None:
    branches = graph.branches()
    make_branch(graph, "a/b")
    graph.open_at(MANIFEST_DIR, branch="a/b").update_config({"by": "somebody"})
    path = _empty(graph, MANIFEST_DIR, "a")
    assert recover(graph, grace_seconds=0).status is CheckStatus.CLEAN
    assert (path.exists(), {*graph.branches()}) == (False, {*branches, "a/b"})


@pytest.mark.parametrize("stamp", [3])
def test_that_of_a_commit_graph_is_written_anew(graph: Graph) -> None:
    make_branch(graph, SIDE)
    _empty(graph, COMMITS_DIR, SIDE)
    found = check(graph)
    assert [(f.table_key, f.recoverable) for f in found.branch_findings] == [(COMMITS_DIR, True)]
    assert recover(graph, grace_seconds=0).status is CheckStatus.CLEAN
    assert {ref.name for ref in graph.lance.branches(graph.open_at(COMMITS_DIR))} >= {SIDE}


def _of_a_published_fork(graph: Graph) -> Path:
    (branch,) = graph.branches()
    entry = next(e for e in graph.state(branch).entries if e.branch == branch)
    return _empty(graph, entry.path, branch)


def _of_a_written_branch(graph: Graph) -> Path:
    (branch,) = graph.branches()
    return _empty(graph, MANIFEST_DIR, branch)


def _of_a_branch_whose_settings_changed(graph: Graph) -> Path:
    make_branch(graph, SIDE)
    graph.open_at(MANIFEST_DIR, branch=SIDE).update_config({"by": "somebody"})
    return _empty(graph, MANIFEST_DIR, SIDE)


@pytest.mark.parametrize("act", [_of_a_published_fork, _of_a_written_branch, _of_a_branch_whose_settings_changed])
def test_that_of_a_branch_that_was_whole_once_stays(graph: Graph, act: Callable[[Graph], Path]) -> None:
    path = act(graph)
    found = check(graph)
    assert (found.status, [f.recoverable for f in found.branch_findings]) == (CheckStatus.NEEDS_PERSON, [False])
    assert "restore the graph from a backup" in found.advice[0]
    assert recover(graph, grace_seconds=0).status is CheckStatus.NEEDS_PERSON
    assert path.exists()


def test_one_that_is_filled_meanwhile_stays(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _empty(graph, _table(graph), SIDE)
    known = Path(graph.uri, branch_reference(MANIFEST_DIR, graph.branches()[0]))
    monkeypatch.setattr(Run, "pause", lambda _run, _seconds: shutil.copy(known, path))
    assert recover(graph, grace_seconds=0).outcomes == ()
    assert path.read_bytes() == known.read_bytes()


def test_whoever_lists_branches_says_where_to_learn_what_settles_it(graph: Graph) -> None:
    _of_a_published_fork(graph)
    _empty(graph, _table(graph), SIDE)
    said = "is an empty file, as a full disk leaves it; `omnigraph-ops check` says what settles it"
    with pytest.raises(OpsError, match=r"check. says what settles it"):
        graph.lance.branches(graph.open_at(_table(graph)))
    assert [said in skipped.reason for skipped in plan_orphans(graph).skipped] == [True]

"""Lance branches that are read although only their files are left: an engine that was killed goes on with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR, branch_reference, version_path
from omnigraph_ops.models.cleanup import RetentionPolicy, TableCleanupPlan
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.recovery.stage import Check
from tests.conftest import DemoGraph
from tests.support.orphans import PERSON, age, planned
from tests.support.rows import rows_everywhere
from tests.support.writers import copies, entry_of, write

pytestmark = pytest.mark.slow

SMALL = {"loads": 2, "rows": 6, "node_types": 1}
KEEP_1 = RetentionPolicy(keep_versions=1)
FORK = "review/hires-1"


def unrefer(graph: Graph, path: str) -> None:
    """Take away the reference to the branch of a dataset, and leave its files. Destroys."""
    Path(graph.uri, branch_reference(path, FORK)).unlink()
    age(graph.uri)


def row_of(graph: Graph, key: str) -> TableCleanupPlan:
    return next(table for table in plan_cleanup(graph, KEEP_1).tables if table.table_key == key)


def test_what_a_branch_publishes_from_it_is_no_orphan(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    rows, path = rows_everywhere(graph), entry_of(graph, PERSON, FORK).path
    unrefer(graph, path)
    plan = plan_orphans(graph)
    assert planned(plan) == {}
    (skipped,) = plan.skipped
    assert (skipped.path, f"branch {FORK!r} reads the Lance branch {FORK!r}" in skipped.reason) == (path, True)
    assert rows_everywhere(graph) == rows


def test_what_it_shares_with_main_is_kept(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    unrefer(graph, entry_of(graph, PERSON, FORK).path)
    write(graph, PERSON, copies("later"))
    row = row_of(graph, PERSON)
    assert (row.versions, "which has no reference" in (row.refused or "")) == ((), True)


def test_of_a_branch_that_is_gone_it_is_an_orphan(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    path = entry_of(graph, PERSON, FORK).path
    graph.manifest().branches.delete(FORK)
    unrefer(graph, path)
    plan = plan_orphans(graph)
    assert (plan.skipped, f"{path}/tree/{FORK}" in {group.path for group in plan.groups}) == ((), True)


@pytest.mark.parametrize("stamp", [3])
def test_the_commit_graph_of_a_branch_stays_whole(demo_graph: DemoGraph, stamp: int) -> None:
    """Engine 0.7.2 was killed while it made the branch, and worked on with it."""
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1, settings=Settings(exclusive=True))
    unrefer(graph, COMMITS_DIR)
    write(graph, PERSON, copies("later"))
    assert planned(plan_orphans(graph)) == {}
    assert "which has no reference" in (row_of(graph, "_graph_commits").refused or "")
    assert row_of(graph, PERSON).refused is None
    with pytest.raises(CorruptGraph, match=r"which has no reference.*nothing was frozen"):
        freeze_graph(graph)
    found = check(graph)
    assert [(f.branch, f.table_key, f.recoverable) for f in found.branch_findings] == [(FORK, COMMITS_DIR, True)]
    assert found.advice == ("run `omnigraph-ops recover` to finish what a crashed run left",)
    (branches,) = (section for section in Check().view(found).sections if section.title == "Named branches")
    assert branches.rows == ((FORK, COMMITS_DIR, "there by half"),)


@pytest.mark.parametrize("stamp", [3])
@pytest.mark.parametrize("lost", [(FORK,), ("a-fork",), ("z-fork",), ("a-fork", FORK)])
def test_recover_writes_the_reference_to_a_commit_graph(
    demo_graph: DemoGraph, stamp: int, lost: tuple[str, ...]
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1, settings=Settings(exclusive=True))
    for path in (MANIFEST_DIR, COMMITS_DIR) if lost[0] != FORK else ():
        graph.open_at(path, branch=FORK).create_branch(lost[0], (FORK, None))
    before, rows = _listed(graph), rows_everywhere(graph)
    for name in lost:
        Path(graph.uri, branch_reference(COMMITS_DIR, name)).unlink()
    young = recover(graph, grace_seconds=600).outcomes
    assert ({o.action for o in young}, before == _listed(graph)) == ({"deferred"}, False)
    age(graph.uri)
    report = recover(graph, grace_seconds=600)
    if len(lost) > 1:
        assert [o.action for o in report.outcomes] == ["deferred", "rolled_forward"]
        assert "the one that it was made of lacks its reference" in report.outcomes[0].detail
        report = recover(graph, grace_seconds=600)
    assert [o.action for o in report.outcomes] == ["rolled_forward"]
    assert (report.status, _listed(graph), rows_everywhere(graph)) == (CheckStatus.CLEAN, before, rows)
    assert freeze_graph(graph).tables == ()


def _listed(graph: Graph) -> dict[str, tuple[object, ...]]:
    """The branches of the commit graph, but for what is unique in each. Reads."""
    listed = dict(graph.open_at(COMMITS_DIR).branches.list())
    return {
        name: (
            info["parent_branch"],
            info["parent_version"],
            [version for version, _ in info["branch_identifier"]],
            info["branch_identifier"][:-1]
            == listed.get(info["parent_branch"], {"branch_identifier": []})["branch_identifier"],
            info["manifest_size"] > 0,
        )
        for name, info in listed.items()
    }


@pytest.mark.parametrize("stamp", [3])
def test_files_below_those_of_a_name_are_published(demo_graph: DemoGraph, stamp: int) -> None:
    """Without data of its own, as after a delete on the branch; `review/hires-1` is below `review`."""
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    entry = entry_of(graph, PERSON, FORK)
    unrefer(graph, entry.path)
    shutil.rmtree(Path(graph.uri, entry.path, "tree", FORK, "data"))
    advice = check(graph).advice
    assert (advice, recover(graph).outcomes) == ((), ())
    assert Path(graph.uri, version_path(entry.path, entry.version, FORK)).exists()


def test_a_cleanup_is_not_blamed_for_what_a_branch_had_lost(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    entry = entry_of(graph, PERSON, FORK)
    write(graph, PERSON, copies("later"))
    Path(graph.uri, version_path(entry.path, entry.version, FORK)).unlink()
    report = cleanup_all(graph, plan_cleanup(graph, KEEP_1))
    done = next(table for table in report.tables if table.table_key == PERSON)
    assert (done.error, done.old_versions_removed > 0) == (None, True)

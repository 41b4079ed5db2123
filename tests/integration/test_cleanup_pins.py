"""What branches hold on the main chain: the oldest pin wins, and a fork recorded elsewhere refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest

from omnigraph_ops.coordination.graph_view import look
from omnigraph_ops.errors import StalePlan, StorageError
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR, version_path
from omnigraph_ops.graph.state import GraphCommit
from omnigraph_ops.lance.versions import branch_base_paths
from omnigraph_ops.models.cleanup import RetentionPolicy, TableCleanupPlan
from omnigraph_ops.stages.cleanup.apply import cleanup_all, cleanup_table
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from tests.conftest import DemoGraph
from tests.support.rows import rows_everywhere, tree_of
from tests.support.tables import versions
from tests.support.writers import copies, entry_of, write

SMALL = {"loads": 2, "rows": 6, "node_types": 1}
PERSON, FORK = "node:Person", "review/hires-1"
KEEP_1 = RetentionPolicy(keep_versions=1)


def person(graph: Graph) -> TableCleanupPlan:
    return next(t for t in plan_cleanup(graph, KEEP_1).tables if t.table_key == PERSON)


@pytest.mark.slow
@pytest.mark.parametrize("names", [("a-old", "b-young"), ("b-old", "a-young")], ids=["old first", "young first"])
def test_the_oldest_of_several_lazy_pins_wins(demo_graph: DemoGraph, stamp: int, names: tuple[str, str]) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    for name in names:
        graph.manifest().create_branch(name)
        write(graph, PERSON, copies(name))
    write(graph, PERSON, copies("later"))
    old, young = (entry_of(graph, PERSON, name).version for name in names)
    head, rows = entry_of(graph, PERSON).version, rows_everywhere(graph)
    assert 1 < old < young < head
    plan = person(graph)
    assert plan.versions == tuple(range(1, old))
    assert plan.blocked_by == f"version {old}: branch {names[0]!r} reads it"
    assert not cleanup_all(graph, plan_cleanup(graph, KEEP_1)).failed
    assert versions(graph) == list(range(old, head + 1))
    assert rows_everywhere(graph) == rows
    graph.manifest().branches.delete(names[0])
    assert person(graph).versions == tuple(range(old, young))


def based(graph: Graph) -> GraphCommit:
    """Make a branch and go on on main; the commit that a merge starts from. Writes."""
    base = graph.format.commits(graph.context, None)[-1]
    graph.manifest().create_branch("topic")
    if graph.stamp == 3:
        graph.lance.open(graph.storage.uri(COMMITS_DIR)).create_branch("topic")
    for name in ("one", "two"):
        write(graph, PERSON, copies(name))
    return base


def test_the_base_of_a_merge_keeps_what_it_pins_on_the_main_chain(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    pinned = entry_of(graph, PERSON).version
    based(graph)
    reasons = {p.version: p.reasons for p in person(graph).protected}
    assert any(reason.startswith("merges start from version") for reason in reasons[pinned])


def publish_without_a_commit_row(graph: Graph, aside: Path) -> None:
    """What is left of a writer of stamp 3 that dies between its publish and its commit row. Writes."""
    commits = Path(graph.uri, COMMITS_DIR)
    shutil.copytree(commits, aside)
    write(graph, PERSON, copies("last words"))
    shutil.rmtree(commits)
    aside.rename(commits)


def test_the_commit_that_a_dead_writer_left_as_head_keeps_what_it_pins(demo_graph: DemoGraph, tmp_path: Path) -> None:
    """Without a branch, too: one that is made of main next is merged from there."""
    graph = demo_graph(stamp=3, **SMALL)
    pinned = entry_of(graph, PERSON).version
    publish_without_a_commit_row(graph, tmp_path / "aside")
    assert not look(graph).branches
    plan = person(graph)
    assert pinned < entry_of(graph, PERSON).version
    assert any(p.version == pinned and p.reasons[0].startswith("merges start from") for p in plan.protected)
    assert not cleanup_all(graph, plan_cleanup(graph, KEEP_1)).failed
    assert pinned in versions(graph)


def test_a_base_that_the_store_does_not_give_is_no_corruption_and_says_how_to_go_on(
    demo_graph: DemoGraph, stamp: int
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    base = based(graph)
    Path(graph.uri, version_path(MANIFEST_DIR, base.manifest_version, None)).write_bytes(b"cut off")
    with pytest.raises(StorageError, match=f"version {base.manifest_version} of .* main .* delete the branches"):
        person(graph)


def test_where_main_is_alone_no_branch_is_to_be_deleted(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(stamp=3, **SMALL)
    base = graph.format.commits(graph.context, None)[-1]
    publish_without_a_commit_row(graph, tmp_path / "aside")
    Path(graph.uri, version_path(MANIFEST_DIR, base.manifest_version, None)).write_bytes(b"cut off")
    with pytest.raises(StorageError, match=f"version {base.manifest_version} of .* main .* from a backup$"):
        person(graph)


def refork(graph: Graph, uri: str) -> None:
    """Make the fork of Person again from another spelling of its URI, at the version that the branch pins."""
    head = graph.open_head(entry_of(graph, PERSON))
    parent = head.branches.list()[FORK]["parent_version"]
    head.branches.delete(FORK)
    fork = lance.dataset(uri).create_branch(FORK, parent)
    lance.write_dataset(fork.to_table(limit=1), fork, mode="append")
    assert lance.dataset(uri).checkout_version((FORK, None)).version == entry_of(graph, PERSON, FORK).version


@pytest.mark.parametrize("spelling", ["relative", "link"])
def test_a_fork_that_records_another_root_refuses_its_table(
    demo_graph: DemoGraph, stamp: int, spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    before, signed = versions(graph), plan_cleanup(graph, KEEP_1)
    monkeypatch.chdir(tmp_path)
    path = entry_of(graph, PERSON).path
    (tmp_path / "link").symlink_to(graph.uri)
    uri = f"graph.omni/{path}" if spelling == "relative" else f"{tmp_path}/link/{path}"
    refork(graph, uri)
    assert branch_base_paths(graph.open_head(entry_of(graph, PERSON)), FORK) == (uri,)
    refused = person(graph)
    assert refused.versions == ()
    assert f"records this table at {uri!r}, not {graph.uri + '/' + path!r}" in (refused.refused or "")
    tree = tree_of(graph.uri)
    # A plan that was made before the fork was is not believed either.
    with pytest.raises(StalePlan, match="records this table at"):
        cleanup_table(graph, signed, PERSON)
    assert versions(graph) == before
    assert {k: v for k, v in tree_of(graph.uri).items() if not k.startswith("__maintenance")} == tree


def test_a_lineage_is_read_once_until_a_branch_moves(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, read = demo_graph(stamp=stamp, **SMALL), list[str | None]()
    based(graph)
    real = type(graph.format).commits

    def commits(self: object, context: object, branch: str | None) -> tuple[GraphCommit, ...]:
        read.append(branch)
        return real(self, context, branch)  # type: ignore[arg-type]

    monkeypatch.setattr(type(graph.format), "commits", commits)
    first = look(graph)
    assert first.bases
    assert look(graph).bases is first.bases
    assert read == [None, "topic"]
    write(graph, PERSON, copies("three"))
    read.clear()
    assert look(graph).bases == first.bases
    assert read == [None, "topic"]

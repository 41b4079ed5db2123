"""What named branches own is listed by `plan`, and optimize leaves it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import rewrite_journal
from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.tables import execute_task
from omnigraph_ops.models.optimize import OptimizeDecision
from omnigraph_ops.stages.optimize import table_run
from omnigraph_ops.stages.optimize.observe import left_on_branches
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_no_leftovers
from tests.support.rows import tree_of
from tests.support.shell import Cli
from tests.support.writers import entry_of

pytestmark = pytest.mark.slow

SMALL = {"loads": 3, "rows": 6, "node_types": 1, "lazy_branches": 1, "written_branches": 2}
PHOTO = "node:Photo"


def own_files(graph: Graph) -> dict[str, bytes]:
    """Everything below the folders of Lance branches of tables."""
    return {
        path: Path(graph.uri, path).read_bytes()
        for path in tree_of(graph.uri)
        if "/tree/" in str(path) and str(path).startswith(("nodes/", "edges/")) and Path(graph.uri, path).is_file()
    }


@pytest.mark.slow
def test_what_branches_own_is_listed_with_its_size_and_left(demo_graph: DemoGraph, stamp: int, cli: Cli) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    tree = tree_of(graph.uri)
    left = left_on_branches(graph)
    assert tree_of(graph.uri) == tree
    published = {(name, e.table_key): e for name in graph.branches() for e in graph.state(name).entries if e.branch}
    assert len(published) >= 2
    assert {(t.branch, t.table_key) for t in left} == set(published)
    for table in left:
        entry = published[table.branch, table.table_key]
        assert (table.version, table.error) == (entry.version, None)
        assert table.rows == graph.open_pinned(entry).count_rows()
        assert table.fragments == len(graph.open_pinned(entry).get_fragments())
    files = own_files(graph)
    assert sum(t.own_files for t in left) == len(files)
    assert sum(t.own_bytes for t in left) == sum(map(len, files.values()))
    assert left[0].branch in cli("plan", graph.uri).out
    assert not optimize_all(graph).failed
    assert own_files(graph) == files
    assert left_on_branches(graph) == left


def test_a_branch_that_cannot_be_read_has_its_problem(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    broken = left_on_branches(graph)[0].branch
    for path in Path(graph.uri, "__manifest", "tree", broken, "_versions").glob("*.manifest"):
        path.write_bytes(b"damaged")
    rows = left_on_branches(graph)
    assert [(t.branch, bool(t.error)) for t in rows if t.error or t.branch == broken] == [(broken, True)]


def test_a_graph_without_branches_says_nothing_of_them(demo_graph: DemoGraph, cli: Cli) -> None:
    graph = demo_graph(loads=2, rows=6, node_types=1)
    assert left_on_branches(graph) == ()
    assert "Left as they are" not in cli("plan", graph.uri).out


def places(graph: Graph) -> list[object]:
    """Where the blobs of main lie, as a merge of engine 0.9 reads it."""
    table = graph.open_pinned(entry_of(graph, PHOTO)).to_table(blob_handling="all_descriptions")
    return [row["image"] for row in table.to_pylist()]


@pytest.mark.parametrize("small_table_bytes", [10**7, 0], ids=["one_window", "two_windows"])
def test_blobs_stay_in_their_places_as_long_as_a_branch_may_be_merged(
    demo_graph: DemoGraph, small_table_bytes: int
) -> None:
    settings = Settings(small_table_bytes=small_table_bytes)
    graph = demo_graph(stamp=6, loads=3, rows=6, node_types=1, blobs=True, lazy_branches=1, settings=settings)
    before, (branch,) = places(graph), graph.branches()
    report = {t.table_key: t for t in optimize_all(graph).tables}
    assert (bool(report[PHOTO].indexes_folded), report[PHOTO].fragments_removed) == (True, 0)
    assert report["node:Person"].fragments_removed == 3
    assert places(graph) == before
    (plan,) = plan_optimize(graph, tables=(PHOTO,)).tables
    assert (plan.decision, f"a merge of branch {branch!r}" in plan.reason) == (OptimizeDecision.NO_OP, True)
    graph.lance.delete_branch(graph.manifest(), branch)
    assert optimize_table(graph, PHOTO).fragments_removed == 3
    assert places(graph) != before
    assert_converged(graph)


@pytest.mark.parametrize("at", ["index", "execute"])
@pytest.mark.parametrize("small_table_bytes", [10**7, 0], ids=["one_window", "two_windows"])
def test_a_branch_that_is_made_after_the_plan_keeps_blobs_in_their_places(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, small_table_bytes: int, at: str
) -> None:
    settings = Settings(small_table_bytes=small_table_bytes)
    graph = demo_graph(stamp=6, loads=3, rows=6, node_types=1, blobs=True, settings=settings)
    before = places(graph)

    class Branching(InProcessExecutor):
        def index(self, graph: Graph, *others: object) -> None:
            if at == "index":
                graph.manifest().create_branch("late")
            super().index(graph, *others)

    def execute(dataset: Dataset, payload: str) -> str:
        """As it is, after somebody made a branch."""
        if not graph.branches():
            graph.manifest().create_branch("late")
        return execute_task(dataset, payload)

    if at == "execute":
        for module in (table_run, rewrite_journal):
            monkeypatch.setattr(module, "execute_task", execute)
    stats = optimize_table(graph, PHOTO, executor=Branching())
    assert (stats.fragments_removed, bool(stats.indexes_folded)) == (0, True)
    assert places(graph) == before
    assert graph.branches() == ("late",)
    assert_no_leftovers(graph)

"""What named branches own is listed by `plan`, and optimize leaves it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.graph import Graph
from omnigraph_ops.stages.optimize.observe import left_on_branches
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.conftest import DemoGraph
from tests.support.rows import tree_of
from tests.support.shell import Cli

SMALL = {"loads": 3, "rows": 6, "node_types": 1, "lazy_branches": 1, "written_branches": 2}


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

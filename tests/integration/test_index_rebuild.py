"""Indexes are derived data: where folding cannot work they are built anew, and the rows stay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from tests.support.index_files import entries, repeat_entries
from tests.support.rows import rows_of
from tests.support.writers import copies, entry_of, write

KEY = "node:Person"


@pytest.mark.slow
@pytest.mark.parametrize("stamp", [3, 6])
def test_an_index_whose_files_are_gone_is_built_anew(tmp_path: Path, stamp: int) -> None:
    root = tmp_path / "g.omni"
    write_demo_graph(str(root), DemoSpec(stamp=stamp, node_types=1, loads=3, rows=20))
    graph = open_graph(str(root))
    entry = graph.state().get(KEY)
    assert entry is not None
    rows = rows_of(graph)
    shutil.rmtree(root / entry.path / "_indices")
    stats = optimize_table(graph, KEY)
    assert stats.committed
    assert rows_of(open_graph(str(root))) == rows
    (plan,) = plan_optimize(open_graph(str(root)), tables=(KEY,)).tables
    assert (plan.folds, plan.builds) == ((), ())
    after = open_graph(str(root)).state().get(KEY)
    assert after is not None
    found = open_graph(str(root)).open_pinned(after).to_table(filter="id = 'p1' or name = 'p1'")
    assert found.num_rows == 1


@pytest.mark.slow
@pytest.mark.parametrize("stamp", [3, 6])
def test_an_index_with_two_entries_of_a_row_is_built_anew_where_the_engine_leaves_such(
    tmp_path: Path, stamp: int
) -> None:
    root = tmp_path / "g.omni"
    write_demo_graph(str(root), DemoSpec(stamp=stamp, node_types=1, loads=3, rows=20))
    graph = open_graph(str(root))
    assert optimize_table(graph, KEY).committed
    repeat_entries(graph.open_pinned(entry_of(graph, KEY)), "id_idx")
    write(graph, KEY, copies("x"))
    graph = open_graph(str(root))
    rows = rows_of(graph)
    (plan,) = plan_optimize(graph, tables=(KEY,)).tables
    assert ("id_idx still has entries of updated rows, so it is built anew" in plan.reason) is (stamp == 3)
    assert optimize_table(graph, KEY).committed
    graph = open_graph(str(root))
    assert rows_of(graph) == rows
    optimized = graph.open_pinned(entry_of(graph, KEY))
    assert (len(entries(optimized, "id_idx")) == optimized.count_rows()) is (stamp == 3)
    (plan,) = plan_optimize(graph, tables=(KEY,)).tables
    assert (plan.folds, plan.builds) == ((), ())

"""Indexes are derived data: where folding cannot work they are built anew, and the rows stay."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.lance.tables import described, index_facts, open_indexes
from omnigraph_ops.models.optimize import OptimizeDecision, RewritePolicy
from omnigraph_ops.stages.optimize.observe import observe_table, policy_of
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from tests.conftest import DemoGraph
from tests.support.index_files import drop_entry, entries, repeat_entries
from tests.support.rows import rows_of
from tests.support.shell import Cli
from tests.support.writers import copies, entry_of, write

pytestmark = pytest.mark.slow

KEY, DOC = "node:Person", "node:Doc"


def lose(graph: Graph, *patterns: str, left: str = "nothing") -> None:
    """Remove these files of indexes that the newest version of the table has, or cut them short. Writes."""
    used = {part.uuid for index in described(graph.open_head(entry_of(graph, DOC))) for part in index.segments}
    folder = Path(graph.table_uri(entry_of(graph, DOC)), "_indices")
    doomed = [path for pattern in patterns for path in folder.glob(pattern) if path.parent.name in used]
    assert doomed
    for path in doomed:
        half = path.read_bytes()[: path.stat().st_size // 2]
        path.unlink()
        if left == "link":
            path.symlink_to("nowhere")
        elif left != "nothing":
            path.write_bytes(half if left == "half" else b"")


@pytest.mark.parametrize("left", ["nothing", "empty", "half", "link"])
def test_every_kind_of_index_that_covers_all_rows_and_lacks_a_file_is_built_anew(
    demo_graph: DemoGraph, stamp: int, cli: Cli, left: str
) -> None:
    graph = demo_graph(stamp=stamp, loads=2, rows=20)
    optimize_all(graph)
    rows, indexes = rows_of(graph), index_facts(graph.open_head(entry_of(graph, DOC)))
    lose(graph, "*/page_data.lance", "*/metadata.lance", "*/index.idx", left=left)
    said = cli("health --files", graph.uri)
    assert said.code == 1
    assert "`omnigraph-ops optimize` builds the indexes of main anew" in " ".join(said.err.split())
    assert "restore the graph" not in " ".join(said.err.split())
    (plan,) = plan_optimize(graph, tables=(DOC,)).tables
    assert {fold.why for fold in plan.folds if fold.rebuild} == {f"{index.name} lacks files" for index in indexes}
    assert optimize_table(graph, DOC).committed
    graph = open_graph(graph.uri)
    assert rows_of(graph) == rows
    anew = graph.open_head(entry_of(graph, DOC))
    assert {(i.name, i.details, i.segments) for i in index_facts(anew)} == {(i.name, i.details, 1) for i in indexes}
    open_indexes(anew, besides=None)
    assert cli("health --files", graph.uri).code == 0
    (plan,) = plan_optimize(graph, tables=(DOC,)).tables
    assert plan.decision is OptimizeDecision.NO_OP


def test_the_folder_of_an_index_that_nothing_uses_any_more_is_not_looked_into(demo_graph: DemoGraph) -> None:
    graph = demo_graph(loads=2, rows=20)
    optimize_all(graph)
    folder = Path(graph.table_uri(entry_of(graph, DOC)), "_indices")
    used = {part.uuid for index in described(graph.open_head(entry_of(graph, DOC))) for part in index.segments}
    for unused in (path for path in folder.iterdir() if path.name not in used):
        shutil.rmtree(unused)
        unused.write_text("a file is in its place")
    (plan,) = plan_optimize(graph, tables=(DOC,)).tables
    assert (plan.decision, plan.error) == (OptimizeDecision.NO_OP, None)


def test_what_was_replaced_while_somebody_looked_is_not_lost(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(loads=2, rows=20)
    optimize_all(graph)
    real, other = LanceGateway.open, open_graph(graph.uri)
    lose(graph, "*/index.idx")

    def moved(gateway: LanceGateway, uri: str, **options: Any) -> Dataset:
        found = real(gateway, uri, **options)
        if uri == graph.table_uri(entry) and gateway is graph.lance:
            write(other, DOC, lambda dataset: dataset.update_config({"look": "again"}))
        return found

    entry = entry_of(graph, DOC)
    policy = policy_of(graph)
    monkeypatch.setattr(LanceGateway, "open", moved)
    assert observe_table(graph, entry, policy).lost == frozenset()


def test_one_lost_index_leaves_the_others_as_they_are(demo_graph: DemoGraph) -> None:
    graph = demo_graph(loads=2, rows=20)
    optimize_all(graph)
    lose(graph, "*/index.idx")
    (plan,) = plan_optimize(graph, tables=(DOC,)).tables
    assert [(fold.columns, fold.rebuild) for fold in plan.folds] == [(("embedding",), True)]


def test_a_lost_index_is_reason_enough_where_only_what_is_past_a_threshold_is_done(demo_graph: DemoGraph) -> None:
    settings = Settings(auto=True, policy=RewritePolicy.TIERED, tier_unindexed_share=0.9)
    graph = demo_graph(settings=settings, loads=2, rows=20)
    optimize_all(graph)
    lose(graph, "*/index.idx")
    assert plan_optimize(graph, tables=(DOC,)).tables[0].decision is OptimizeDecision.OPTIMIZE


def test_a_lost_vector_index_whose_vectors_are_all_gone_waits_for_others(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, loads=2, rows=20)
    optimize_all(graph)
    write(graph, DOC, lambda dataset: dataset.update({"embedding": "NULL"}))
    lose(graph, "*/index.idx")
    graph = open_graph(graph.uri)
    stats = optimize_table(graph, DOC)
    assert (stats.error, [i.column for i in stats.pending_indexes]) == (None, ["embedding"])


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
@pytest.mark.parametrize("spoil", [repeat_entries, drop_entry])
def test_an_index_with_two_entries_of_a_row_or_none_is_built_anew_where_the_engine_leaves_such(
    tmp_path: Path, stamp: int, spoil: Callable[[Dataset, str], None]
) -> None:
    root = tmp_path / "g.omni"
    write_demo_graph(str(root), DemoSpec(stamp=stamp, node_types=1, loads=3, rows=20))
    graph = open_graph(str(root))
    assert optimize_table(graph, KEY).committed
    spoil(graph.open_pinned(entry_of(graph, KEY)), "id_idx")
    write(graph, KEY, copies("x"))
    graph = open_graph(str(root))
    rows = rows_of(graph)
    (plan,) = plan_optimize(graph, tables=(KEY,)).tables
    assert ("id_idx has wrong entries of updated rows, so it is built anew" in plan.reason) is (stamp == 3)
    assert optimize_table(graph, KEY).committed
    graph = open_graph(str(root))
    assert rows_of(graph) == rows
    optimized = graph.open_pinned(entry_of(graph, KEY))
    assert (len(entries(optimized, "id_idx")) == optimized.count_rows()) is (stamp == 3)
    (plan,) = plan_optimize(graph, tables=(KEY,)).tables
    assert (plan.folds, plan.builds) == ((), ())

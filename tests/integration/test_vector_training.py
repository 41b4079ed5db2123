"""Vector indexes that get the number of partitions that their rows want, where that is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.vector_indexes import FEWEST_ROWS, MOST_ROWS, TARGET_ROWS
from omnigraph_ops.models.health import VectorHealth
from omnigraph_ops.models.optimize import OptimizeDecision, TablePlan
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.harness_state import QUICK
from tests.support.kills import AFTER, BEFORE, NO_VERSION, kill_at
from tests.support.rows import rows_of
from tests.support.shell import Cli
from tests.support.vectors import clustered, column_of
from tests.support.writers import entry_of, write

pytestmark = pytest.mark.slow

KEY, ROWS, CLUSTERS = "node:Doc", 5 * TARGET_ROWS, 5
RETRAIN = QUICK.model_copy(update={"retrain_vectors": True})


def grow(rows: int, *, same: bool = False) -> Callable[[lance.LanceDataset], None]:
    """Append documents with vectors in clusters, or with one vector."""

    def change(dataset: lance.LanceDataset) -> None:
        table = dataset.to_table(limit=1).take([0] * rows)
        dimension = int(table.schema.field("embedding").type.list_size)
        vectors = np.ones((rows, dimension), np.float32) if same else clustered(rows, dimension, CLUSTERS)
        ids = pa.array([f"v{n}" for n in range(rows)], pa.string())
        columns = {"id": ids, "slug": ids, "embedding": column_of(vectors)}
        for name in table.column_names:
            if name in columns:
                field = table.schema.field(name)
                table = table.set_column(table.schema.get_field_index(name), field, columns[name].cast(field.type))
        lance.write_dataset(table, dataset, mode="append")

    return change


@pytest.fixture(params=[3, 6])
def grown(tmp_path: Path, request: pytest.FixtureRequest) -> Graph:
    """Documents in five clusters, all in one partition, as the engine and an optimize without the policy leave them."""
    return make(tmp_path, request.param)


def make(tmp_path: Path, stamp: int, *, same: bool = False) -> Graph:
    root = str(tmp_path / "g.omni")
    write_demo_graph(root, DemoSpec(stamp=stamp, loads=1, rows=12))
    graph = open_graph(root, QUICK)
    write(graph, KEY, grow(ROWS, same=same))
    assert not optimize_all(graph).failed
    return open_graph(root, RETRAIN)


def planned(graph: Graph) -> TablePlan:
    (plan,) = plan_optimize(graph, tables=(KEY,)).tables
    return plan


def vectors_of(graph: Graph, recall: int = 0) -> VectorHealth:
    (table,) = health(graph, tables=(KEY,), recall=recall).tables
    (found,) = table.vectors
    return found


def again(graph: Graph, settings: Settings = RETRAIN) -> Graph:
    return open_graph(graph.uri, settings)


def test_nothing_is_trained_unless_somebody_asks(grown: Graph) -> None:
    plan = planned(again(grown, QUICK))
    assert plan.decision is OptimizeDecision.NO_OP
    assert vectors_of(grown).problem is not None


def test_an_index_gets_the_partitions_that_its_rows_want(grown: Graph) -> None:
    rows, before = rows_of(grown), vectors_of(grown, recall=10)
    plan = planned(grown)
    assert [f.retrain for f in plan.folds] == [True]
    assert "1 partition for 20,486 rows" in plan.reason
    assert "built anew" in plan.reason
    stats = optimize_table(grown, KEY)
    assert stats.committed
    after = vectors_of(again(grown), recall=10)
    assert rows_of(again(grown)) == rows
    assert (after.problem, after.segments, after.uncovered_rows) == (None, 1, 0)
    assert after.smallest >= FEWEST_ROWS
    assert after.largest <= MOST_ROWS
    assert before.recall is not None
    assert after.recall is not None
    assert after.recall >= max(0.95, before.recall)
    assert before.bytes_per_query is not None
    assert after.bytes_per_query is not None
    assert after.bytes_per_query * 2 < before.bytes_per_query
    assert planned(again(grown)).decision is OptimizeDecision.NO_OP


def test_auto_takes_a_table_for_its_index_alone(grown: Graph) -> None:
    auto = again(grown, RETRAIN.model_copy(update={"auto": True}))
    assert planned(auto).decision is OptimizeDecision.OPTIMIZE


def test_rows_that_came_since_are_covered(grown: Graph) -> None:
    write(grown, KEY, grow(50))
    assert optimize_table(again(grown), KEY).committed
    found = vectors_of(again(grown))
    assert (found.rows, found.uncovered_rows, found.problem) == (ROWS + 6 + 50, 0, None)


def test_vectors_that_allow_no_partitions_keep_their_index(tmp_path: Path) -> None:
    graph = make(tmp_path, 6, same=True)
    version = entry_of(graph, KEY).version
    stats = optimize_table(graph, KEY)
    assert stats.error is None
    assert not stats.committed
    assert entry_of(again(graph), KEY).version == version


def test_an_index_whose_files_are_gone_is_told_and_built_anew(grown: Graph) -> None:
    shutil.rmtree(Path(grown.uri) / entry_of(grown, KEY).path / "_indices")
    assert vectors_of(again(grown), recall=5).kind == "unreadable"
    write(again(grown), KEY, grow(5))
    assert optimize_table(again(grown), KEY).error is None
    assert vectors_of(again(grown)).kind == "IVF_FLAT"


@pytest.mark.night("combinations")
@pytest.mark.parametrize(
    ("call", "mode"),
    [("create_index", BEFORE), ("create_index", NO_VERSION), ("create_index", AFTER), ("merge_insert", BEFORE)],
)
@pytest.mark.parametrize("stamp", [3, 6])
def test_a_kill_within_is_the_next_runs_work(tmp_path: Path, stamp: int, call: str, mode: str) -> None:
    graph = make(tmp_path, stamp)
    rows = rows_of(graph)
    kill_at(graph, lambda g: optimize_table(g, KEY), call, mode)
    assert rows_of(again(graph)) == rows
    recover(again(graph), grace_seconds=0)
    assert not optimize_all(again(graph)).failed
    assert vectors_of(again(graph)).problem is None
    assert rows_of(again(graph)) == rows
    assert planned(again(graph)).decision is OptimizeDecision.NO_OP


def test_a_plain_dataset_is_trained_in_place(tmp_path: Path) -> None:
    path = str(tmp_path / "docs.lance")
    table = pa.table({"id": np.arange(ROWS), "v": column_of(clustered(ROWS, 8, CLUSTERS))})
    lance.write_dataset(table, path).create_index("v", "IVF_FLAT", metric="L2", num_partitions=1)
    report = optimize_all(open_graph(path, RETRAIN))
    assert not report.failed
    (told,) = health(open_graph(path, RETRAIN)).tables
    (found,) = told.vectors
    assert found.problem is None
    assert found.partitions > 1
    assert lance.dataset(path).count_rows() == ROWS


def test_a_vector_that_no_partition_takes_in_is_named_with_the_way_out(tmp_path: Path) -> None:
    path = str(tmp_path / "docs.lance")
    vectors = clustered(600, 8, 2)
    lance.write_dataset(pa.table({"v": column_of(vectors)}), path).create_index(
        "v", "IVF_FLAT", metric="L2", num_partitions=1
    )
    vectors[0] = 1e20
    lance.write_dataset(pa.table({"v": column_of(vectors)}), path, mode="append")
    version = lance.dataset(path).version
    for settings in (QUICK, RETRAIN):
        (failed,) = optimize_all(open_graph(path, settings)).failed
        assert failed.error is not None
        assert "distances overflow" in failed.error
        assert "the engine's own optimize may never end on them" in failed.error
    (told,) = health(open_graph(path), recall=3).tables
    assert told.error is None
    assert lance.dataset(path).version == version


def test_an_index_that_cannot_be_asked_costs_its_table_nothing_but_the_recall(tmp_path: Path, cli: Cli) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([float(n) for n in range(600)], pa.float32()), 2)
    # The name of a column that Lance adds to every answer.
    table = pa.table({"_distance": pa.array([1.0] * 300), "v": vectors})
    dataset = lance.write_dataset(table, str(tmp_path / "a.lance"))
    dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    shown = cli("health --recall 2", str(tmp_path))
    (told,) = health(open_graph(str(tmp_path)), recall=2).tables
    assert (told.error, told.score is not None, told.vectors[0].recall) == (None, True, None)
    assert "queries of 1 vector index fail; see why in the rows" in " ".join(shown.err.split())
    assert (shown.code, "queries fail: cannot search v of" in " ".join(shown.out.split())) == (1, True)
    assert cli("health", str(tmp_path)).code == 0

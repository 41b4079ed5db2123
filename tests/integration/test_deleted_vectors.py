"""Nearest rows are found as before, although a vector index keeps the entries of rows that were deleted."""

from __future__ import annotations

import random
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import DatasetOptimizer

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.models.optimize import OptimizeDecision, RewritePolicy, TablePlan
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from tests.conftest import DemoGraph
from tests.support import plain
from tests.support.edges import raising, when_asked
from tests.support.vectors import clustered, column_of
from tests.support.writers import copies, delete_first, entry_of, write

KEY, COLUMN, INDEX = "node:Doc", "embedding", "embedding_idx"
LOADED = {"loads": 3, "rows": 40}
WAYS = {
    "one_window": Settings(),
    "two_windows": Settings(small_table_bytes=0),
    "tiered": Settings(policy=RewritePolicy.TIERED, tier_fan_in=2),
    "auto": Settings(auto=True),
}


def nearest(dataset: Dataset, column: str, *, rows: int = 10, by_index: bool = True) -> list[str]:
    width = int(dataset.schema.field(column).type.list_size)
    query = {"column": column, "q": np.ones(width, np.float32), "k": rows, "use_index": by_index}
    found: list[str] = dataset.to_table(columns=["id"], nearest=query).column("id").to_pylist()
    return found


def pinned(graph: Graph) -> Dataset:
    return graph.open_pinned(entry_of(graph, KEY))


def forget(dataset: Dataset, column: str = COLUMN, *, rows: int = 30) -> None:
    """Delete those that are nearest."""
    names = nearest(dataset, column, rows=rows, by_index=False)
    dataset.delete("id in ({})".format(", ".join(f"'{name}'" for name in names)))


def deleted(dataset: Dataset) -> int:
    return sum(int(fragment.num_deletions) for fragment in dataset.get_fragments())


def assert_all_found(dataset: Dataset, column: str = COLUMN) -> None:
    assert nearest(dataset, column) == nearest(dataset, column, by_index=False)
    assert len(nearest(dataset, column)) == 10


def has_dead_entries(graph: Graph) -> bool:
    (table,) = health(graph, tables=(KEY,)).tables
    (index,) = table.vectors
    return index.dead_entries


def planned(graph: Graph) -> TablePlan:
    (plan,) = plan_optimize(graph, tables=(KEY,)).tables
    return plan


@pytest.mark.slow
@pytest.mark.night("combinations")
@pytest.mark.parametrize("way", WAYS)
def test_a_rewrite_of_deleted_rows_takes_no_place_among_the_nearest(
    demo_graph: DemoGraph, stamp: int, way: str
) -> None:
    graph = demo_graph(stamp=stamp, **LOADED)
    assert not optimize_all(graph).failed
    write(graph, KEY, forget)
    graph = open_graph(graph.uri, WAYS[way])
    assert_all_found(pinned(graph))
    assert not optimize_all(graph).failed
    assert deleted(pinned(graph)) == 0, "the deleted rows were rewritten away"
    assert_all_found(pinned(graph))
    assert planned(graph).decision is OptimizeDecision.NO_OP


@pytest.mark.slow
def test_indexes_that_wait_for_rows_are_folded_all_the_same(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **LOADED)
    assert not optimize_all(graph).failed
    write(graph, KEY, forget)
    write(graph, KEY, copies("few-"))
    graph = open_graph(graph.uri, Settings(policy=RewritePolicy.TIERED, tier_unindexed_share=0.5, tier_fan_in=2))
    assert not optimize_all(graph).failed
    assert_all_found(pinned(graph))


@pytest.mark.slow
@pytest.mark.night("combinations")
@pytest.mark.parametrize("way", WAYS)
def test_what_another_writer_left_so_is_put_right(demo_graph: DemoGraph, stamp: int, way: str) -> None:
    graph = demo_graph(stamp=stamp, **LOADED)
    assert not optimize_all(graph).failed
    write(graph, KEY, forget)
    write(graph, KEY, lambda head: head.optimize.compact_files())
    assert len(nearest(pinned(graph), COLUMN)) < 10, "as the engine's own optimize leaves it"
    graph = open_graph(graph.uri, WAYS[way])
    assert f"{INDEX} has entries of rows that are gone, so it is folded" in planned(graph).reason
    assert has_dead_entries(graph)
    assert not optimize_all(graph).failed
    assert_all_found(pinned(graph))
    assert not has_dead_entries(graph)
    assert planned(graph).decision is OptimizeDecision.NO_OP


@pytest.mark.slow
def test_without_the_fold_deleted_rows_are_not_rewritten_away(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **LOADED)
    assert not optimize_all(graph).failed
    write(graph, KEY, forget)
    failing = raising(OSError("no answer"))
    with monkeypatch.context() as patch:
        when_asked(patch, DatasetOptimizer, "optimize_indices", failing, times=None)
        for build in ("create_index", "create_scalar_index"):
            when_asked(patch, lance.LanceDataset, build, failing, times=None)
        assert [t.table_key for t in optimize_all(graph).failed] == [KEY]
    assert deleted(pinned(graph)) > 0
    assert_all_found(pinned(graph))
    assert not optimize_all(graph).failed
    assert_all_found(pinned(graph))


@pytest.mark.slow
def test_an_index_that_was_folded_since_is_not_folded_again(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **LOADED)
    assert not optimize_all(graph).failed
    write(graph, KEY, forget)
    assert [fold.name for fold in planned(graph).folds] == [INDEX]
    write(graph, KEY, lambda head: head.optimize.optimize_indices(index_names=[INDEX], num_indices_to_merge=1))
    assert (planned(graph).folds, planned(graph).compaction_tasks) == ((), 1)
    assert not optimize_all(graph).failed
    assert deleted(pinned(graph)) == 0
    assert_all_found(pinned(graph))


@pytest.mark.slow
def test_a_few_deleted_rows_that_stay_are_no_reason_to_fold(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **LOADED)
    assert not optimize_all(graph).failed
    write(graph, KEY, lambda head: forget(head, rows=2))
    assert planned(graph).decision is OptimizeDecision.NO_OP
    assert_all_found(pinned(graph))


def distances(dataset: Dataset, *, by_index: bool) -> list[float]:
    """Of the nearest rows, for which no two may stand in for each other."""
    query = {"column": COLUMN, "q": np.ones(int(dataset.schema.field(COLUMN).type.list_size), np.float32), "k": 10}
    found = dataset.to_table(columns=["id", "_distance"], nearest=query | {"use_index": by_index})
    assert len(set(found.column("id").to_pylist())) == len(found)
    return [round(float(distance), 4) for distance in found.column("_distance").to_pylist()]


@pytest.mark.night("combinations")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_after_any_night_the_nearest_are_found(demo_graph: DemoGraph, stamp: int, seed: int) -> None:
    chance, graph = random.Random(seed), demo_graph(stamp=stamp, **LOADED)
    for night in range(8):
        for day in range(chance.randrange(3)):
            act = chance.choice(
                (
                    copies(f"n{night}-{day}-", chance.randrange(1, 20)),
                    lambda head: forget(head, rows=chance.randrange(1, 25)),
                    delete_first(chance.randrange(1, 6)),
                    lambda head: head.optimize.compact_files(),
                )
            )
            write(graph, KEY, act)
        graph = open_graph(graph.uri, WAYS[chance.choice(sorted(WAYS))])
        assert not optimize_all(graph).failed
        dataset = pinned(graph)
        assert distances(dataset, by_index=True) == distances(dataset, by_index=False), f"night {night}"


@pytest.mark.slow
@pytest.mark.parametrize("stable", [True, False], ids=["stable", "unstable"])
@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ"])
def test_so_it_is_with_plain_lance(tmp_path: Path, kind: str, stable: bool) -> None:
    path, rows = tmp_path / "vectors.lance", 600
    ids = pa.array([f"v{n}" for n in range(rows)])
    table = pa.table({"id": ids, "vec": column_of(clustered(rows, 16, 3, spread=1.0))})
    dataset = lance.write_dataset(table, path, enable_stable_row_ids=stable)
    more = {"num_sub_vectors": 16} if kind == "IVF_PQ" else {}
    dataset.create_index("vec", kind, num_partitions=1, metric="l2", **more)
    forget(lance.dataset(path), "vec", rows=100)
    assert not optimize_all(plain.opened(path)).failed
    compacted = lance.dataset(path)
    assert deleted(compacted) == 0
    assert len(nearest(compacted, "vec")) == 10


def test_and_with_vectors_inside_a_struct(tmp_path: Path) -> None:
    path, rows = tmp_path / "vectors.lance", 300
    inside = pa.StructArray.from_arrays([column_of(clustered(rows, 16, 3, spread=1.0))], names=["vec"])
    table = pa.table({"id": pa.array(range(rows)), "doc": inside})
    dataset = lance.write_dataset(table, path, enable_stable_row_ids=True, max_rows_per_file=100)
    dataset.create_index("doc.vec", "IVF_FLAT", num_partitions=1, metric="l2")
    dataset.delete("id % 3 = 0")
    assert [table.error for table in health(plain.opened(path)).tables] == [None]
    assert not optimize_all(plain.opened(path)).failed
    query = {"column": "doc.vec", "q": np.ones(16, np.float32), "k": 200}
    assert lance.dataset(path).to_table(columns=["id"], nearest=query).num_rows == 200


def test_and_where_some_rows_have_no_entry(tmp_path: Path) -> None:
    path, rows = tmp_path / "vectors.lance", 600
    vectors = clustered(rows, 16, 3, spread=1.0)
    vectors[::4] = 0  # of no direction
    field = pa.field("vec", pa.list_(pa.float32(), 16), nullable=False)
    schema = pa.schema([pa.field("id", pa.string()), field])
    table = pa.table({"id": [f"v{n}" for n in range(rows)], "vec": column_of(vectors)}).cast(schema)
    dataset = lance.write_dataset(table, path, enable_stable_row_ids=True)
    dataset.create_index("vec", "IVF_FLAT", num_partitions=1, metric="cosine")
    forget(lance.dataset(path), "vec", rows=100)
    assert not optimize_all(plain.opened(path)).failed
    assert deleted(lance.dataset(path)) == 0
    assert len(nearest(lance.dataset(path), "vec")) == 10


def test_an_index_that_lance_cannot_fold_keeps_its_rows_and_holds_up_no_other(tmp_path: Path) -> None:
    path, rows = tmp_path / "vectors.lance", 600
    table = pa.table({"id": [f"v{n}" for n in range(rows)], "vec": column_of(clustered(rows, 16, 3, spread=1.0))})
    dataset = lance.write_dataset(table.slice(0, 500), path, enable_stable_row_ids=True)
    dataset.create_index("vec", "IVF_PQ", num_partitions=1, num_sub_vectors=4, index_file_version="LEGACY")
    dataset.create_scalar_index("id", "BTREE", name="z_idx")
    forget(lance.dataset(path), "vec", rows=100)
    lance.write_dataset(table.slice(500), path, mode="append")
    (failed,) = optimize_all(plain.opened(path)).failed
    assert "vec_idx" in str(failed.error)
    assert "no row was changed; drop the index or build it with the tool that made it" in str(failed.error)
    assert deleted(lance.dataset(path)) == 100
    assert len(nearest(lance.dataset(path), "vec")) == 10
    assert plain.index_coverage(path)["z_idx"] == [plain.fragment_ids(path)]

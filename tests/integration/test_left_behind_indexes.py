"""Indexes that a rewrite empties, or that no fold can train or write: answers stay, and the table is compacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import DatasetOptimizer

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.rewrite_journal import open_journals
from omnigraph_ops.models.optimize import OptimizeDecision
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from tests.conftest import DemoGraph
from tests.support import plain
from tests.support.edges import raising, when_asked, when_compacted
from tests.support.writers import entry_of, write

pytestmark = pytest.mark.slow
BOTH = pytest.mark.parametrize("bytes_", [0, 10**9], ids=["two_units", "one_unit"])
STABLE = pytest.mark.parametrize("stable", [True, False], ids=["stable", "unstable"])


def _found(path: Path) -> list[list[int]]:
    """What a range, a part of a word and a word find."""
    dataset = lance.dataset(str(path))
    asked: list[dict[str, Any]] = [{"filter": "id >= 50"}, {"filter": "contains(kind, 'k1')"}]
    tables = [dataset.to_table(**query) for query in [*asked, {"full_text_query": "word3"}]]
    return [sorted(table.column("id").to_pylist()) for table in tables]


@BOTH
def test_after_a_deferred_rewrite_the_next_one_empties_no_index(tmp_path: Path, bytes_: int) -> None:
    path = tmp_path / "items.lance"
    plain.indexed(path, stable=False)
    lance.dataset(str(path)).create_scalar_index("kind", "NGRAM", name="parts")
    optimize_all(plain.opened(path, small_table_bytes=bytes_, defer_index_remap=True))
    lance.dataset(str(path)).delete("id % 4 = 0")
    found, answers = _found(path), plain.answers(path)
    (stats,) = optimize_all(plain.opened(path, small_table_bytes=bytes_)).tables
    assert stats.committed
    assert (_found(path), plain.answers(path)) == (found, answers)
    assert all(found)


BATCHES = {"small_table_bytes": 0, "target_rows_per_fragment": 20, "commit_batch_tasks": 1}


def _eight_fragments(path: Path, kind: str) -> Any:
    for load in range(8):
        lance.write_dataset(plain.rows(10 * load, 10), str(path), mode="append" if load else "create")
    dataset: Any = lance.dataset(str(path))
    dataset.create_scalar_index("id", kind)
    return dataset


@pytest.mark.parametrize("kind", ["ZONEMAP", "BLOOMFILTER", "BTREE"])
def test_several_commits_of_one_rewrite_do_not_make_each_other_unfit(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "items.lance"
    _eight_fragments(path, kind)
    (stats,) = optimize_all(plain.opened(path, **BATCHES)).tables
    assert (stats.error, stats.fragments_removed, len(plain.fragment_ids(path))) == (None, 8, 4)
    assert plain.index_coverage(path) == {"id_idx": [plain.fragment_ids(path)]}
    (planned,) = plan_optimize(plain.opened(path, **BATCHES)).tables
    assert planned.decision is OptimizeDecision.NO_OP


@pytest.mark.parametrize("kind", ["ZONEMAP", "BTREE"])
def test_results_of_a_killed_run_that_an_index_made_unfit_are_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "items.lance"
    _eight_fragments(path, kind)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        when_compacted(patched, raising(KeyboardInterrupt()))
        optimize_all(plain.opened(path, **BATCHES))
    plain.append(path, 500, 10)
    (stats,) = optimize_all(plain.opened(path, **BATCHES)).tables
    assert (stats.error, len(plain.fragment_ids(path))) == (None, 4)
    assert plain.index_coverage(path) == {"id_idx": [plain.fragment_ids(path)]}
    assert not open_journals(plain.opened(path).storage, "items.lance")


@BOTH
@STABLE
@pytest.mark.parametrize("kind", ["ZONEMAP", "BLOOMFILTER"])
def test_an_index_of_parts_of_fragments_covers_what_was_rewritten(
    tmp_path: Path, bytes_: int, stable: bool, kind: str
) -> None:
    path = tmp_path / "items.lance"
    dataset = lance.write_dataset(plain.rows(0, 100), str(path), enable_stable_row_ids=stable)
    dataset.create_scalar_index("id", kind)  # type: ignore[arg-type]
    for night in range(2):
        plain.append(path, 100 + 10 * night, 10)
        optimize_all(plain.opened(path, small_table_bytes=bytes_))
        assert plain.index_coverage(path) == {"id_idx": [plain.fragment_ids(path)]}
        assert len(plain.fragment_ids(path)) == 1
    (planned,) = plan_optimize(plain.opened(path)).tables
    assert planned.decision is OptimizeDecision.NO_OP


def test_a_quantizer_of_four_bits_needs_sixteen(tmp_path: Path) -> None:
    path = tmp_path / "items.lance"
    dataset = lance.write_dataset(plain.rows(0, 300), str(path))
    dataset.create_index("vector", "IVF_PQ", num_partitions=1, num_sub_vectors=4, num_bits=4)
    dataset.delete("true")
    plain.append(path, 300, 20)
    (stats,) = optimize_all(plain.opened(path)).tables
    assert (stats.error, stats.pending_indexes) == (None, ())
    assert plain.index_coverage(path) == {"vector_idx": [plain.fragment_ids(path)]}


def test_an_index_that_waits_for_vectors_is_no_reason_for_a_run(tmp_path: Path) -> None:
    path = tmp_path / "items.lance"
    dataset = lance.write_dataset(plain.rows(0, 100), str(path))
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_index("vector", "IVF_PQ", num_partitions=1, num_sub_vectors=2)
    plain.append(path, 100, 2)
    for settings in ({"auto": True}, {"policy": "tiered"}):
        (planned,) = plan_optimize(plain.opened(path, **settings)).tables
        assert planned.decision in {OptimizeDecision.DEFERRED, OptimizeDecision.NO_OP}
        assert [p.column for p in planned.pending_indexes] == ["vector"]


@BOTH
def test_too_few_vectors_to_train_an_index_are_no_failure(tmp_path: Path, bytes_: int) -> None:
    path = tmp_path / "items.lance"
    dataset = lance.write_dataset(plain.rows(0, 50), str(path), max_rows_per_file=20)
    dataset.create_index("vector", "IVF_PQ", num_partitions=1, num_sub_vectors=2)
    (stats,) = optimize_all(plain.opened(path, small_table_bytes=bytes_)).tables
    (waits,) = stats.pending_indexes
    assert (waits.column, waits.reason) == ("vector", "256 vectors train it, it has 50")
    assert (stats.error, len(plain.fragment_ids(path))) == (None, 1)
    before = plain.versions(path)
    optimize_all(plain.opened(path))
    assert plain.versions(path) == before
    plain.append(path, 50, 250)
    optimize_all(plain.opened(path))
    assert plain.index_coverage(path) == {"vector_idx": [plain.fragment_ids(path)]}


@BOTH
@pytest.mark.parametrize("deferred", [True, False], ids=["deferred", "at_once"])
def test_an_index_that_lance_cannot_fold_keeps_no_fragment_apart(tmp_path: Path, bytes_: int, deferred: bool) -> None:
    """Lance finds the column of an index on a field in a struct no more once it covers nothing."""
    path = tmp_path / "items.lance"

    def rows(first: int) -> pa.Table:
        ids = pa.array(range(first, first + 10), pa.int64())
        return pa.table({"id": ids, "place": pa.StructArray.from_arrays([ids], ["street"])})

    dataset = lance.write_dataset(rows(0), str(path))
    dataset.create_scalar_index("place.street", "BTREE", name="streets")
    dataset.delete("true")
    for load in (1, 2):
        lance.write_dataset(rows(10 * load), str(path), mode="append")
    lance.dataset(str(path)).create_scalar_index("id", "BTREE", name="zz")
    (stats,) = optimize_all(plain.opened(path, small_table_bytes=bytes_, defer_index_remap=deferred)).tables
    assert "index streets" in str(stats.error)
    assert "drop the index" in str(stats.error)
    assert (stats.fragments_removed, stats.fragments_added, len(plain.fragment_ids(path))) == (2, 1, 1)
    assert "rewrite" in [window.unit for window in stats.windows]
    assert plain.index_coverage(path)["zz"] == [plain.fragment_ids(path)], "the others are folded all the same"


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_fold_that_fails_keeps_no_fragment_of_a_graph_apart(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, stamp: int
) -> None:
    graph = demo_graph(stamp=stamp, loads=3, rows=8, settings=Settings(small_table_bytes=0))

    failing = raising(OSError("cannot fold today"))
    when_asked(monkeypatch, DatasetOptimizer, "optimize_indices", failing, times=None)
    for build in ("create_index", "create_scalar_index"):
        when_asked(monkeypatch, lance.LanceDataset, build, failing, times=None)
    stats = next(t for t in optimize_all(graph).tables if t.table_key == "node:Person")
    assert "cannot fold" in str(stats.error)
    # Of three: those that indexes cover stay by themselves.
    assert len(graph.open_pinned(entry_of(graph, "node:Person")).get_fragments()) == 2


@pytest.mark.parametrize("stamp", [3, 6])
def test_an_index_whose_vectors_are_all_gone_waits_for_others(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, loads=2, rows=8)
    optimize_all(graph)

    def replaced(head: Any) -> None:
        rows = head.to_table()
        head.delete("true")
        place = rows.schema.get_field_index("embedding")
        empty = rows.set_column(place, rows.schema.field(place), pa.nulls(len(rows), rows.schema.field(place).type))
        for part in (empty.slice(0, 4), empty.slice(4)):
            lance.write_dataset(part, head.uri, mode="append")

    write(graph, "node:Doc", replaced)
    for _ in range(2):
        stats = next(t for t in optimize_all(graph).tables if t.table_key == "node:Doc")
        assert (stats.error, [p.column for p in stats.pending_indexes]) == (None, ["embedding"])
    assert not stats.committed

    def filled(head: Any) -> None:
        rows = head.to_table(limit=3)
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array(np.ones(3 * rows.schema.field("embedding").type.list_size, np.float32)),
            rows.schema.field("embedding").type.list_size,
        )
        named = rows.set_column(rows.schema.get_field_index("id"), rows.schema.field("id"), [["x", "y", "z"]])
        place = named.schema.get_field_index("embedding")
        lance.write_dataset(named.set_column(place, named.schema.field(place), vectors), head.uri, mode="append")

    write(graph, "node:Doc", filled)
    stats = next(t for t in optimize_all(graph).tables if t.table_key == "node:Doc")
    assert (stats.error, stats.pending_indexes, "embedding_idx" in stats.indexes_folded) == (None, (), True)

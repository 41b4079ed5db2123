"""Indexes in parts: how fragments are dealt, and what is joined of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.lance.gateway import LanceFailure
from omnigraph_ops.lance.vector_indexes import FEWEST_ROWS, MOST_ROWS, centroids_for, facts_of, retrain
from omnigraph_ops.stages.optimize.index_work import NewIndex, groups_of, join_parts, write_part
from tests.support.vectors import clustered, column_of, exact

ROWS, DIMENSION, FRAGMENTS = 9_000, 8, 3


@pytest.fixture
def table(tmp_path: Path) -> lance.LanceDataset:
    vectors = clustered(ROWS, DIMENSION, 4, spread=0.1)
    rows = pa.table({"id": np.arange(ROWS), "k": np.arange(ROWS) * 7919 % ROWS, "v": column_of(vectors)})
    dataset = lance.write_dataset(
        rows, str(tmp_path / "t.lance"), max_rows_per_file=ROWS // FRAGMENTS, enable_stable_row_ids=True
    )
    dataset.delete("id % 1000 = 3")
    dataset.create_scalar_index("k", "BTREE", name="k_idx")
    dataset.create_index("v", "IVF_FLAT", name="v_idx", metric="L2", num_partitions=1)
    return dataset


def made(dataset: Any, index: NewIndex) -> None:
    groups = groups_of(dataset, most=2)
    assert len(groups) == 2
    join_parts(dataset, index, [write_part(dataset, index, group) for group in groups])


def segments(dataset: Any, name: str) -> list[set[int]]:
    (found,) = (index for index in dataset.describe_indices() if index.name == name)
    return [set(segment.fragment_ids) for segment in found.segments]


@pytest.mark.parametrize(
    ("most", "groups"), [(8, [(0,), (1,), (2,)]), (2, [(0, 2), (1,)]), (1, [(0, 1, 2)]), (0, [(0, 1, 2)])]
)
def test_fragments_are_dealt(table: Any, most: int, groups: list[tuple[int, ...]]) -> None:
    assert list(groups_of(table, most=most)) == groups


def test_a_scalar_index_is_replaced_by_one_segment_that_finds_the_same(table: Any) -> None:
    before = segments(table, "k_idx")
    made(table, NewIndex(name="k_idx", column="k", index_type="BTREE"))
    assert segments(table, "k_idx") == before == [{0, 1, 2}]
    for where in ("k >= 100 AND k < 4000", "k = 7", "k = 7922"):
        asked, scanned = (table.to_table(filter=where, use_scalar_index=used) for used in (True, False))
        assert asked.sort_by("id") == scanned.sort_by("id")


def test_a_vector_index_has_the_partitions_that_one_process_makes(table: Any, tmp_path: Path) -> None:
    facts = facts_of(table, "v_idx")
    centroids = centroids_for(table, facts)
    assert centroids is not None
    assert len(centroids) > 1
    whole = lance.write_dataset(table.to_table(), str(tmp_path / "whole.lance"), enable_stable_row_ids=True)
    whole.create_index("v", "IVF_FLAT", name="v_idx", metric="L2", num_partitions=1)
    assert retrain(whole, "v_idx")
    made(table, NewIndex(name="v_idx", column="v", index_type="IVF_FLAT", metric=facts.metric, centroids=centroids))
    assert segments(table, "v_idx") == [{0, 1, 2}]
    sizes = facts_of(table, "v_idx").sizes
    assert sorted(sizes) == sorted(facts_of(whole, "v_idx").sizes)
    assert all(FEWEST_ROWS <= size <= MOST_ROWS for size in sizes)
    rows = table.to_table(columns=["id", "v"])
    vectors = np.stack(rows["v"].to_pylist()).astype(np.float32)
    for query in vectors[::2000]:
        nearest = table.to_table(nearest={"column": "v", "q": query, "k": 10, "nprobes": len(sizes)})
        wanted = {rows["id"][number].as_py() for number in exact(vectors, query)}
        assert set(nearest["id"].to_pylist()) == wanted


def test_partitions_that_came_out_too_small_are_made_once_more(table: Any) -> None:
    facts = facts_of(table, "v_idx")
    centroids = centroids_for(table, facts)
    assert centroids is not None
    far = np.concatenate([centroids, np.full((1, DIMENSION), 100, dtype=np.float32)])
    made(table, NewIndex(name="v_idx", column="v", index_type="IVF_FLAT", metric=facts.metric, centroids=far))
    assert len(facts_of(table, "v_idx").sizes) == len(centroids)
    assert segments(table, "v_idx") == [{0, 1, 2}]


def test_parts_that_do_not_join_leave_the_index_as_it_was(table: Any) -> None:
    version, index = int(table.version), NewIndex(name="v_idx", column="v", index_type="IVF_FLAT", metric="L2")
    parts = []
    for number in range(2):
        centroids = np.random.default_rng(number).normal(size=(2, DIMENSION)).astype(np.float32)
        apart = NewIndex(name="v_idx", column="v", index_type="IVF_FLAT", metric="L2", centroids=centroids)
        parts.append(write_part(table, apart, (number,)))
    with pytest.raises(LanceFailure, match="cannot join the parts of index v_idx"):
        join_parts(table, index, parts)
    assert int(lance.dataset(table.uri).version) == version

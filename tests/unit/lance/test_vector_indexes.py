"""When the partitions of a vector index do not fit its rows, and which centroids do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.lance.vector_indexes import (
    FEWEST_ROWS,
    MOST_ROWS,
    TARGET_ROWS,
    VectorFacts,
    answers,
    centroids_for,
    retrain,
    vector_facts,
)
from tests.support.vectors import Vectors, clustered, column_of

FACTS = VectorFacts(
    name="v", column="v", kind="IVF_FLAT", metric="l2", segments=1, sizes=(0,), uncovered_rows=0, size_bytes=0
)


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ((2 * TARGET_ROWS,), None),
        ((2 * TARGET_ROWS + 1,), "2 are recommended"),
        ((MOST_ROWS + 1,), "at most 16,384"),
        ((TARGET_ROWS, TARGET_ROWS), None),
        ((FEWEST_ROWS - 1, TARGET_ROWS), "at least 1,024"),
        ((FEWEST_ROWS - 1,), None),
        ((TARGET_ROWS, MOST_ROWS + 1), "at most 16,384"),
        ((), None),
    ],
)
def test_what_is_wrong_with_partitions(sizes: tuple[int, ...], why: str | None) -> None:
    found = replace(FACTS, sizes=sizes).problem
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize("other", [{"kind": "IVF_PQ"}, {"metric": "cosine"}])
def test_an_index_of_another_kind_is_its_owners(other: dict[str, str]) -> None:
    assert replace(FACTS, sizes=(10 * MOST_ROWS,), **other).problem is None  # type: ignore[arg-type]


def indexed(path: Path, vectors: Vectors, partitions: int = 1) -> lance.LanceDataset:
    table = pa.table({"id": np.arange(len(vectors)), "v": column_of(vectors)})
    dataset = lance.write_dataset(table, str(path), data_storage_version="2.2", enable_stable_row_ids=True)
    dataset.create_index("v", "IVF_FLAT", name="v", metric="L2", num_partitions=partitions)
    return dataset


@pytest.mark.slow
def test_clusters_become_partitions_that_queries_need_not_all_read(tmp_path: Path) -> None:
    dataset = indexed(tmp_path / "d", clustered(16 * TARGET_ROWS, 8, 16))
    (facts,) = vector_facts(dataset)
    before = answers(partial(lance.dataset, str(tmp_path / "d")), facts, 20)
    assert retrain(dataset, "v")
    (facts,) = vector_facts(dataset)
    after = answers(partial(lance.dataset, str(tmp_path / "d")), facts, 20)
    assert before is not None
    assert after is not None
    assert (facts.problem, len(facts.sizes), facts.rows) == (None, 16, 16 * TARGET_ROWS)
    assert after.recall == before.recall == 1
    assert after.recall_at_1 == before.recall_at_1 == 1
    assert after.bytes_read * 10 < before.bytes_read


@pytest.mark.slow
def test_vectors_without_clusters_are_found_as_well_and_cost_no_more(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(5 * TARGET_ROWS, 8)).astype(np.float32)
    dataset = indexed(tmp_path / "d", vectors)
    (facts,) = vector_facts(dataset)
    before = answers(partial(lance.dataset, str(tmp_path / "d")), facts, 20)
    assert retrain(dataset, "v")
    (facts,) = vector_facts(dataset)
    after = answers(partial(lance.dataset, str(tmp_path / "d")), facts, 20)
    assert before is not None
    assert after is not None
    assert facts.problem is None
    assert after.recall >= 0.95
    assert after.recall_at_1 < 0.95 < before.recall_at_1, "the engine reads one partition for one neighbour"
    assert after.bytes_read < before.bytes_read * 1.2


def test_small_clusters_share_a_partition(tmp_path: Path) -> None:
    large, small = clustered(3 * TARGET_ROWS, 8, 3), clustered(60, 8, 2, first=99) + 50
    dataset = indexed(tmp_path / "d", np.concatenate([large, small.astype(np.float32)]))
    assert retrain(dataset, "v")
    (facts,) = vector_facts(dataset)
    assert min(facts.sizes) >= FEWEST_ROWS


def test_too_many_partitions_become_one_where_rows_are_few(tmp_path: Path) -> None:
    dataset = indexed(tmp_path / "d", clustered(2000, 8, 4), partitions=20)
    assert retrain(dataset, "v")
    (facts,) = vector_facts(dataset)
    assert facts.sizes == (2000,)


def test_copies_of_one_vector_stay_as_they_are(tmp_path: Path) -> None:
    dataset = indexed(tmp_path / "d", np.ones((5 * TARGET_ROWS, 8), dtype=np.float32))
    version = dataset.version
    assert not retrain(dataset, "v")
    assert dataset.version == version


def test_of_equal_vectors_any_is_found(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).random((5, 8), dtype=np.float32)[np.arange(500) % 5]
    dataset = indexed(tmp_path / "d", vectors, partitions=4)
    (facts,) = vector_facts(dataset)
    found = answers(lambda: lance.dataset(dataset.uri), facts, queries=20)
    assert found is not None
    assert found.recall == 1.0


def test_an_index_that_training_makes_no_better_stays_as_it_is(tmp_path: Path) -> None:
    # Of two centroids one gets a cluster of 1,600 alone, which is too few to be a partition.
    centers = np.tile(np.array([50, 50, 50, 50, 100, 0], dtype=np.float32), 1600)
    noise = np.random.default_rng(0).random((len(centers), 8)) * 0.02
    dataset = indexed(tmp_path / "d", (centers[:, None] + noise).astype(np.float32))
    version, (facts,) = dataset.version, vector_facts(dataset)
    assert facts.problem is not None
    assert not retrain(dataset, "v")
    assert dataset.version == version


def test_vectors_whose_distances_overflow_are_not_sampled(tmp_path: Path) -> None:
    vectors = clustered(3 * TARGET_ROWS, 8, 3)
    table = pa.table({"v": column_of(vectors)})
    dataset = lance.write_dataset(table, str(tmp_path / "d"), data_storage_version="2.2", enable_stable_row_ids=True)
    dataset.create_index("v", "IVF_FLAT", name="v", metric="L2", num_partitions=1)
    vectors[::3] = 1e20
    dataset = lance.write_dataset(pa.table({"v": column_of(vectors)}), str(tmp_path / "d"), mode="append")
    (facts,) = vector_facts(dataset)
    with np.errstate(all="raise"):
        found = centroids_for(dataset, facts)
        asked = answers(partial(lance.dataset, str(tmp_path / "d")), facts, 5)
    assert found is None or np.abs(found).max() < 1e19
    assert asked is not None
    assert np.isfinite(asked.drift)


def test_a_vector_inside_a_struct_is_sampled(tmp_path: Path) -> None:
    column = pa.StructArray.from_arrays([column_of(clustered(5 * TARGET_ROWS, 8, 4))], ["v w"])
    dataset = lance.write_dataset(pa.table({"S": column}), str(tmp_path / "d"), enable_stable_row_ids=True)
    dataset.create_index("S.`v w`", "IVF_FLAT", name="v", metric="L2", num_partitions=1)
    (facts,) = vector_facts(dataset)
    found = centroids_for(dataset, facts)
    assert found is not None
    assert found.shape[1] == 8


def test_missing_vectors_are_not_sampled(tmp_path: Path) -> None:
    vectors = column_of(clustered(15_000, 8, 2)).to_pylist()
    column = pa.array([None if n % 3 == 0 else v for n, v in enumerate(vectors)], pa.list_(pa.float32(), 8))
    dataset = lance.write_dataset(pa.table({"v": column}), str(tmp_path / "d"), enable_stable_row_ids=True)
    dataset.create_index("v", "IVF_FLAT", name="v", metric="L2", num_partitions=1)
    (facts,) = vector_facts(dataset)
    found = centroids_for(dataset, facts)
    assert found is not None
    assert np.isfinite(found).all()

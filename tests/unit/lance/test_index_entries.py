"""Which indexes have two entries of one row, and how seldom they are looked into."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.lance.index_entries import Runs, stale_indexes
from omnigraph_ops.lance.tables import table_facts
from tests.support.index_files import drop_entry, repeat_entries

ROWS = 100
NOTHING: frozenset[str] = frozenset()


def table(ids: range | list[int], word: str) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "n": pa.array(ids, pa.int64()), "text": [f"{word} {i}" for i in ids]}
    )


def indexed(folder: Path) -> Any:
    dataset: Any = lance.write_dataset(table(range(ROWS), "old"), folder / "t.lance", enable_stable_row_ids=True)
    for column, kind in (("id", "BTREE"), ("n", "BTREE"), ("text", "INVERTED")):
        dataset.create_scalar_index(column, kind, name=f"{column}_idx")
    return dataset


def updated(dataset: Any, *ids: int) -> Any:
    dataset.merge_insert("id").when_matched_update_all().execute(table(list(ids), "new"))
    return dataset


def stale(dataset: Any) -> frozenset[str]:
    return stale_indexes(dataset, table_facts(dataset, 1_048_576))


def folded(dataset: Any) -> Any:
    dataset.optimize.optimize_indices(num_indices_to_merge=1)
    return dataset


def test_one_tree_with_two_entries_of_a_row_condemns_itself_and_the_text_indexes(tmp_path: Path) -> None:
    dataset = folded(updated(indexed(tmp_path), 3, 5, 9))
    assert stale(dataset) == NOTHING
    repeat_entries(dataset, "n_idx")
    assert stale(dataset) == {"n_idx", "text_idx"}


def test_it_is_found_when_the_updated_rows_were_compacted_since(tmp_path: Path) -> None:
    dataset = folded(updated(indexed(tmp_path), 3, 5, 9))
    repeat_entries(dataset, "n_idx")
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    assert [f.physical_rows for f in dataset.get_fragments()] == [ROWS]
    assert stale(dataset) == {"n_idx", "text_idx"}


def test_segments_that_share_a_row_are_stale_together(tmp_path: Path) -> None:
    dataset = updated(indexed(tmp_path), 3, 5, 9)
    dataset.optimize.optimize_indices(index_names=["id_idx"], num_indices_to_merge=0)
    assert stale(dataset) == {"id_idx", "text_idx"}


def test_entries_of_deleted_rows_are_not_stale(tmp_path: Path) -> None:
    dataset = folded(updated(indexed(tmp_path), 3, 5, 9))
    dataset.delete("id = 50")
    assert stale(dataset) == NOTHING


@pytest.mark.parametrize("change", ["none", "deleted"])
def test_without_updated_rows_only_an_index_that_is_folded_anyway_is_looked_into(tmp_path: Path, change: str) -> None:
    dataset = indexed(tmp_path)
    if change == "deleted":
        dataset.delete("id = 50")
    repeat_entries(dataset, "id_idx")
    assert stale(dataset) == NOTHING
    dataset = lance.write_dataset(table(range(ROWS, ROWS + 5), "more"), dataset.uri, mode="append")
    assert stale(dataset) == {"id_idx", "text_idx"}


def test_an_index_without_its_files_is_left_to_the_fold(tmp_path: Path) -> None:
    dataset = folded(updated(indexed(tmp_path), 3, 5, 9))
    shutil.rmtree(tmp_path / "t.lance" / "_indices")
    assert stale(dataset) == NOTHING


def test_the_indexes_of_a_clone_are_read_where_its_original_is(tmp_path: Path) -> None:
    dataset = folded(updated(indexed(tmp_path), 3, 5, 9))
    repeat_entries(dataset, "n_idx")
    assert stale(dataset.shallow_clone(str(tmp_path / "clone"), dataset.version)) == {"n_idx", "text_idx"}


@pytest.mark.parametrize("deleted", [0, 1, 9])
def test_one_tree_without_an_entry_of_a_row_condemns_itself_and_the_text_indexes(tmp_path: Path, deleted: int) -> None:
    """Entries of rows that are gone do not make up for those that lack, however many they are."""
    dataset = folded(updated(indexed(tmp_path), 3, 5, 9))
    dataset.delete(f"id >= 50 and id < {50 + deleted}")
    assert stale(dataset) == NOTHING
    drop_entry(dataset, "n_idx")
    assert stale(dataset) == {"n_idx", "text_idx"}


def test_rows_that_an_index_does_not_cover_need_no_entry(tmp_path: Path) -> None:
    dataset = folded(updated(indexed(tmp_path), 3, 5, 9))
    dataset = lance.write_dataset(table(range(ROWS, ROWS + 5), "more"), dataset.uri, mode="append")
    assert stale(dataset) == NOTHING


@pytest.mark.parametrize(
    ("batches", "runs"),
    [
        ([], []),
        ([[]], []),
        ([[3]], [(3, 3)]),
        ([[5, 3, 4], [9]], [(3, 5), (9, 9)]),
        ([[2**40, 7], [], [8, 1]], [(1, 1), (7, 7), (8, 8), (2**40, 2**40)]),
    ],
)
def test_numbers_are_kept_as_runs(batches: list[list[int]], runs: list[tuple[int, int]]) -> None:
    found = Runs.of(np.array(numbers, np.uint64) for numbers in batches)
    assert list(zip(found.first.tolist(), found.last.tolist(), strict=True)) == runs
    there = np.array([n for numbers in batches for n in numbers], np.uint64)
    assert found.has(there)
    ids = np.sort(there)
    assert found.are_in(ids)
    assert found.are_in(np.append(ids, np.uint64(2**41)))
    assert not any(found.are_in(np.delete(ids, at)) for at in range(len(ids)))
    for absent in (0, 6, 2**40 + 1, 2**63):
        assert not found.has(np.array([absent, *there], np.uint64))

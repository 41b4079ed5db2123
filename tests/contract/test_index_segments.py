"""What ADR 23 relies on: indexes that several workers make on one clone, and segments of groups of fragments."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.lance.commits import index_change
from omnigraph_ops.lance.gateway import CommitConflict
from omnigraph_ops.lance.tables import build_index

_ROWS, _DIMENSIONS = 800, 8
_GROUPS = ([0, 1], [2, 3])


@pytest.fixture
def table(tmp_path: Path) -> Any:
    vectors = np.random.default_rng(7).normal(size=(_ROWS, _DIMENSIONS)).astype("f4")
    rows = pa.table(
        {
            "k": pa.array((np.arange(_ROWS) * 7919) % _ROWS),
            "j": pa.array(np.arange(_ROWS) % 13),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), _DIMENSIONS),
        }
    )
    return lance.write_dataset(
        rows, str(tmp_path / "table.lance"), max_rows_per_file=_ROWS // 4, enable_stable_row_ids=True
    )


def _segments(dataset: Any) -> dict[str, list[int]]:
    return {i.name: [len(s.fragment_ids) for s in i.segments] for i in dataset.describe_indices()}


def _finds_what_a_scan_finds(dataset: Any, where: str) -> bool:
    asked, scanned = dataset.to_table(filter=where), dataset.to_table(filter=where, use_scalar_index=False)
    return bool(asked.sort_by("k").equals(scanned.sort_by("k")))


def test_workers_build_on_one_clone_and_one_change_comes_of_it(table: Any, tmp_path: Path) -> None:
    clone = table.shallow_clone(str(tmp_path / "clone.lance"), table.version)
    since = int(clone.version)

    def work(column: str) -> None:
        build_index(lance.dataset(clone.uri, version=since), column, "BTREE", f"{column}_idx")

    with ThreadPoolExecutor(2) as workers:
        list(workers.map(work, ("k", "j")))
    clone.checkout_latest()
    change = index_change(table, clone, since)

    assert change is not None
    assert sorted(segment.name for segment in change.added) == ["j_idx", "k_idx"]
    assert not change.removed
    assert _segments(clone) == {"k_idx": [4], "j_idx": [4]}


def test_a_second_attempt_on_the_clone_replaces_the_first(table: Any, tmp_path: Path) -> None:
    clone = table.shallow_clone(str(tmp_path / "clone.lance"), table.version)
    since = int(clone.version)
    for _ in range(2):
        build_index(lance.dataset(clone.uri), "k", "BTREE", "k_idx")
    clone.checkout_latest()
    change = index_change(table, clone, since)

    assert change is not None
    assert len(change.added) == 1
    assert not change.removed


def test_of_two_attempts_from_one_version_only_one_commits(table: Any, tmp_path: Path) -> None:
    clone = table.shallow_clone(str(tmp_path / "clone.lance"), table.version)
    since = int(clone.version)
    first, second = (lance.dataset(clone.uri, version=since) for _ in range(2))
    build_index(first, "k", "BTREE", "k_idx")
    with pytest.raises(CommitConflict):
        build_index(second, "k", "BTREE", "k_idx")
    clone.checkout_latest()
    assert _segments(clone) == {"k_idx": [4]}


def test_a_worker_that_outlives_its_clone_writes_only_there(table: Any, tmp_path: Path) -> None:
    clone = table.shallow_clone(str(tmp_path / "clone.lance"), table.version)
    before = sorted(Path(table.uri).rglob("*"))
    shutil.rmtree(tmp_path / "clone.lance")
    build_index(clone, "k", "BTREE", "k_idx")

    assert (tmp_path / "clone.lance" / "_indices").is_dir()
    assert sorted(Path(table.uri).rglob("*")) == before


def test_segments_of_groups_merge_to_one_and_leave_their_parts_in_the_clone(table: Any, tmp_path: Path) -> None:
    clone = table.shallow_clone(str(tmp_path / "clone.lance"), table.version)
    since = int(clone.version)
    parts = [
        lance.dataset(clone.uri).create_index_uncommitted("k", "BTREE", name="k_idx", fragment_ids=group)
        for group in _GROUPS
    ]
    clone.commit_existing_index_segments("k_idx", "k", [clone.merge_existing_index_segments(parts)])
    clone.checkout_latest()
    change = index_change(table, clone, since)

    assert change is not None
    assert len(change.added) == 1
    assert _segments(clone) == {"k_idx": [4]}
    assert _finds_what_a_scan_finds(clone, "k >= 100 AND k < 400")
    assert len(list((tmp_path / "clone.lance" / "_indices").iterdir())) == len(parts) + 1


def test_vector_segments_that_trained_by_themselves_do_not_merge(table: Any) -> None:
    parts = [
        table.create_index_uncommitted("v", "IVF_FLAT", name="v_idx", num_partitions=2, fragment_ids=group)
        for group in _GROUPS
    ]
    with pytest.raises(Exception, match="centroids mismatch"):
        table.merge_existing_index_segments(parts)


def test_lance_commits_segments_of_fragments_that_are_gone(table: Any) -> None:
    part = table.create_index_uncommitted("k", "BTREE", name="k_idx", fragment_ids=[0, 1, 2, 3])
    lance.dataset(table.uri).optimize.compact_files(target_rows_per_fragment=10 * _ROWS)
    late = lance.dataset(table.uri).commit_existing_index_segments("k_idx", "k", [part])
    assert _segments(late) == {"k_idx": [0]}

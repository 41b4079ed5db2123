"""Which files the versions of a dataset keep, while branches come and go."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.lance.gateway import DatasetMissing
from omnigraph_ops.lance.versions import freed_with_forks


class Listed:
    """A dataset one of whose branches goes so many times while all of them are listed."""

    def __init__(self, dataset: lance.LanceDataset, times: int) -> None:
        self._dataset, self._goes = dataset, iter(range(times))
        self.branches = SimpleNamespace(list=self._list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def _list(self) -> dict[str, Any]:
        if next(self._goes, None) is not None:
            raise ValueError("Not found: t/_refs/branches/gone.json, src/local.rs:273:40")
        return dict(self._dataset.branches.list())


@pytest.fixture
def forked(tmp_path: Path) -> lance.LanceDataset:
    """Two versions, the second of other rows, and a branch of the first."""
    dataset = lance.write_dataset(pa.table({"n": [1]}), tmp_path / "t.lance")
    dataset.create_branch("topic", 1)
    return lance.write_dataset(pa.table({"n": [2]}), dataset, mode="overwrite")


def test_a_branch_that_goes_while_all_are_listed_is_no_fault(forked: lance.LanceDataset) -> None:
    kinds = [
        [file.kind for file in freed_with_forks(Listed(forked, 4), "nodes/x", (1,), forks)]
        for forks in ((), ("topic",))
    ]
    assert "data" not in kinds[0]
    assert "data" in kinds[1]


def test_a_branch_that_can_never_be_read_is_one(forked: lance.LanceDataset) -> None:
    with pytest.raises(DatasetMissing):
        freed_with_forks(Listed(forked, 1000), "nodes/x", (1,), ())


def test_what_many_versions_refer_to_is_not_held_at_once(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"n": [0]}), tmp_path / "t.lance")
    for number in range(1, 60):
        dataset = lance.write_dataset(pa.table({"n": [number]}), dataset, mode="append")
    dataset.create_branch("topic", 60)
    tracemalloc.start()
    try:
        freed = freed_with_forks(dataset, "nodes/x", range(1, 60), ("topic",))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert {file.kind for file in freed} == {"manifest", "transaction"}
    assert peak < 400_000

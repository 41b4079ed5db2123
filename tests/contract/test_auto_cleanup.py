"""Lance runs auto-cleanup inside any commit whose version the interval divides: the strip must not be that commit."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.lance.gateway import LanceGateway

VERSIONS = [1, 2, 3, 4, 5, 6]


@pytest.fixture
def due_at_seven(tmp_path: Path) -> lance.LanceDataset:
    """Six versions, and a config that collects everything old at version 7."""
    dataset = lance.write_dataset(pa.table({"a": [0]}), tmp_path / "d", enable_stable_row_ids=True)
    for number in range(4):
        dataset = lance.write_dataset(pa.table({"a": [number]}), dataset, mode="append")
    dataset.update_config({"lance.auto_cleanup.interval": "7", "lance.auto_cleanup.older_than": "0s"})
    assert _versions(dataset) == VERSIONS
    return lance.dataset(tmp_path / "d")


def test_strip_collects_nothing(due_at_seven: lance.LanceDataset) -> None:
    assert LanceGateway(None).strip_auto_cleanup(due_at_seven)
    assert _versions(due_at_seven) == [*VERSIONS, 7]


def test_any_other_commit_would_collect(due_at_seven: lance.LanceDataset) -> None:
    """The control: what the strip protects from."""
    after = lance.write_dataset(pa.table({"a": [9]}), due_at_seven, mode="append")
    assert _versions(after) == [6, 7]


def _versions(dataset: lance.LanceDataset) -> list[int]:
    return [v["version"] for v in lance.dataset(dataset.uri).versions()]

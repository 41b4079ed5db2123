"""Rows in full, as a person is shown them; what a comparison of two versions opens."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import LanceDataset

from omnigraph_ops.lance import rewrites
from omnigraph_ops.lance.evidence import other_rows, rows_by_id, unreadable
from tests.support.edges import when_asked


def test_values_that_python_has_no_type_for_are_shown_as_text(tmp_path: Path) -> None:
    table = pa.table(
        {
            "n": [1, 2],
            "fine": pa.array([1_000_000_001, None], pa.timestamp("ns")),
            "far": pa.array([2**58 // 86_400_000 * 86_400_000, 0], pa.date64()),
            "nowhere": pa.array([1, 2], pa.timestamp("us", tz="Foo/Bar")),
            "both": pa.array([[1_000_000_001], []], pa.list_(pa.timestamp("ns"))),
        }
    )
    dataset = lance.write_dataset(table, str(tmp_path / "d"))
    first, second = rows_by_id(dataset, [0], [0, 1]).rows.values()
    assert (first["n"], first["fine"]) == (1, "1970-01-01 00:00:01.000000001")
    assert (second["n"], second["fine"]) == (2, None)
    assert isinstance(first["far"], str)
    assert isinstance(first["nowhere"], str)
    assert "cannot be shown" in str(first["both"]) or "000000001" in str(first["both"])


@pytest.mark.parametrize("gone", ["n IN (0, 9)", "n = 5", "n < 9"])
def test_a_table_of_very_many_fragments_is_readable_although_rows_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    monkeypatch.setattr(rewrites, "_MOST_VALIDATED", 1)
    for mode in ("create", "append"):
        dataset = lance.write_dataset(pa.table({"n": range(10)}), tmp_path / "t.lance", mode=mode)
    dataset.delete(gone)
    assert unreadable(None, dataset) is None
    next((tmp_path / "t.lance/data").iterdir()).unlink()
    assert "cannot be read" in str(unreadable(None, lance.dataset(dataset.uri)))


def test_a_comparison_of_two_versions_opens_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lance.write_dataset(pa.table({"n": range(10)}), tmp_path / "t.lance", enable_stable_row_ids=True)
    after = lance.write_dataset(pa.table({"n": range(10)}), before.uri, mode="overwrite", enable_stable_row_ids=True)
    opened = when_asked(monkeypatch, LanceDataset, "__init__")
    assert other_rows(before, after) == "does not have the rows that it had"
    assert opened == []

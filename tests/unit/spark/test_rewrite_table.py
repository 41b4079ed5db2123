"""The submitted application, without Spark: what it leaves for the task that submitted it."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from omnigraph_ops import serde
from omnigraph_ops.errors import LeaseHeld, OpsError, UnknownTable
from omnigraph_ops.models import TableStats
from omnigraph_ops.models.optimize import SubmitOutcome
from omnigraph_ops.spark import rewrite_table


def submit(result: Path, outcome: TableStats | OpsError, monkeypatch: pytest.MonkeyPatch) -> tuple[int, SubmitOutcome]:
    """Run the application with that end."""
    effect = {"side_effect": outcome} if isinstance(outcome, OpsError) else {"return_value": outcome}
    monkeypatch.setattr(rewrite_table, "SparkSession", mock.MagicMock())
    monkeypatch.setattr(rewrite_table, "_optimize", mock.Mock(**effect))
    code = rewrite_table.main(["--graph", "g", "--table", "node:A", "--result-uri", str(result)])
    return code, serde.from_json(SubmitOutcome, result.read_bytes())


def test_statistics_are_left_on_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats = TableStats(table_key="node:A", fragments_removed=2)
    assert submit(tmp_path / "r.json", stats, monkeypatch) == (0, SubmitOutcome(stats=stats))


@pytest.mark.parametrize(("error", "retryable"), [(LeaseHeld("later"), True), (UnknownTable("never"), False)])
def test_an_error_says_whether_it_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OpsError, retryable: bool
) -> None:
    code, left = submit(tmp_path / "r.json", error, monkeypatch)
    assert (code, left) == (1, SubmitOutcome(error=str(error), retryable=retryable))


def test_without_a_place_the_outcome_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rewrite_table.write_outcome(None, SubmitOutcome(error="x"))
    assert serde.from_json(SubmitOutcome, capsys.readouterr().out) == SubmitOutcome(error="x")

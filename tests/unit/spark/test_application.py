"""The submitted application, without Spark: what it leaves for the task that submitted it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from omnigraph_ops import serde
from omnigraph_ops.errors import LeaseHeld, OpsError, UnknownTable
from omnigraph_ops.models.optimize import TableStats
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.spark import application


def submit(
    result: Path, outcome: TableStats | OpsError, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, SubmitOutcome[TableStats]]:
    """Run a job of the application with that end."""
    effect = {"side_effect": outcome} if isinstance(outcome, OpsError) else {"return_value": outcome}
    job = replace(application.JOBS[0], work=mock.Mock(**effect))
    monkeypatch.setattr(application, "SparkSession", mock.MagicMock())
    monkeypatch.setattr(application, "_BY_NAME", {"rewrite": job})
    code = application.main(["rewrite", "--graph", "g", "--table", "node:A", "--result-uri", str(result)])
    return code, serde.from_json(SubmitOutcome[TableStats], result.read_bytes())


def test_statistics_are_left_on_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats = TableStats(table_key="node:A", fragments_removed=2)
    assert submit(tmp_path / "r.json", stats, monkeypatch) == (0, SubmitOutcome(value=stats))


@pytest.mark.parametrize(("error", "retryable"), [(LeaseHeld("later"), True), (UnknownTable("never"), False)])
def test_an_error_says_whether_it_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OpsError, retryable: bool
) -> None:
    code, left = submit(tmp_path / "r.json", error, monkeypatch)
    assert (code, left) == (1, SubmitOutcome(error=str(error), retryable=retryable))


def test_without_a_place_the_outcome_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    application.write_outcome(None, SubmitOutcome(error="x"))
    assert serde.from_json(SubmitOutcome[TableStats], capsys.readouterr().out) == SubmitOutcome(error="x")

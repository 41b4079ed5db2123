"""What Airflow does next after a submit: go on, repeat it, or give up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops import serde
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.models import TableStats
from omnigraph_ops.rewrites.outcome import SubmitOutcome
from tests.support.templates import Templates

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
RESULT = "__maintenance/results/run/submit_rewrite.0.1.json"


class Instance:
    """Keeps what the task pushes."""

    task_id = "submit_rewrite"
    map_index = -1

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.pushed[key] = value


@pytest.fixture
def root(tmp_path: Path, templates: Templates) -> Path:
    templates.copy(DemoSpec(node_types=1, loads=1, rows=5), tmp_path / "g.omni")
    return tmp_path / "g.omni"


def run(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, leaves: SubmitOutcome | None, dies: str | None
) -> tuple[Any, Instance]:
    """Execute the operator with a spark-submit that leaves that outcome and ends like this."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk.exceptions import AirflowException
    from omnigraph_airflow.operators.rewrite import SubmitRewriteOperator

    def submit(_operator: Any, _context: Any) -> None:
        if leaves is not None:
            Storage(str(root)).write(RESULT, serde.dumps(leaves).encode())
        if dies is not None:
            raise AirflowException(dies)

    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    operator = SubmitRewriteOperator(task_id="submit_rewrite", table_key="node:Person", graph=str(root), result=RESULT)
    instance = Instance()
    try:
        return operator.execute({"ti": instance}), instance  # type: ignore[typeddict-item]
    except AirflowException as error:
        return error, instance


def test_the_statistics_become_the_xcom(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats = TableStats(table_key="node:Person", fragments_removed=3)
    result, _ = run(root, monkeypatch, leaves=SubmitOutcome(stats=stats), dies=None)
    assert serde.from_json(TableStats, result) == stats
    assert not (root / RESULT).exists()


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        (None, "Cannot execute: spark-submit. Error code is: 137."),
        (SubmitOutcome(error="the store did not answer"), "the store did not answer"),
    ],
    ids=["killed driver", "transient error"],
)
def test_what_the_next_submit_can_finish_is_repeated(
    root: Path, monkeypatch: pytest.MonkeyPatch, leaves: SubmitOutcome | None, message: str
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    error, instance = run(root, monkeypatch, leaves=leaves, dies="Cannot execute: spark-submit. Error code is: 137.")
    assert str(error) == message
    assert not isinstance(error, AirflowFailException)
    assert instance.pushed["failure"]["message"] == message


def test_what_the_application_calls_final_is_not_repeated(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    refused = SubmitOutcome(error="no such table", retryable=False)
    error, instance = run(root, monkeypatch, leaves=refused, dies="Error code is: 1.")
    assert isinstance(error, AirflowFailException)
    assert instance.pushed["failure"]["message"] == "no such table"
    assert not (root / RESULT).exists()

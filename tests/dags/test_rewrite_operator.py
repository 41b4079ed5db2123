"""What Airflow does next after a submit: go on, repeat it, or give up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jinja2 import Template

from omnigraph_ops import serde
from omnigraph_ops.coordination.state import Kept, kept_by
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.optimize import OptimizeReport, SkipReason, TableStats
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.stages.freeze.take import freeze_graph
from omnigraph_ops.storage.store import Storage
from tests.support.runs import Instance, context_of
from tests.support.templates import Templates

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
PERSON = "node:Person"
RESULT = "__maintenance/results/run/submit_rewrite.0.1.json"


@pytest.fixture
def root(tmp_path: Path, templates: Templates) -> Path:
    templates.copy(DemoSpec(node_types=1, loads=1, rows=5), tmp_path / "g.omni")
    return tmp_path / "g.omni"


def run(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    leaves: SubmitOutcome[OptimizeReport] | None,
    dies: str | None,
    not_after: int | None = None,
    request: dict[str, Any] | None = None,
    lot: Sequence[str] = (PERSON,),
) -> tuple[Any, Instance]:
    """Execute the operator with a spark-submit that leaves that outcome and ends like this; it pushes its arguments."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk.exceptions import AirflowException
    from omnigraph_airflow.operators.spark_jobs import SubmitRewriteOperator

    def submit(operator: Any, context: Any) -> None:
        context["ti"].xcom_push(key="arguments", value=operator.application_args)
        if leaves is not None:
            Storage(str(root)).write(RESULT, serde.dumps(leaves).encode())
        if dies is not None:
            raise AirflowException(dies)

    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    operator = SubmitRewriteOperator(
        task_id="submit_rewrite",
        lot=lot,
        graph=str(root),
        result=RESULT,
        not_after=not_after,
        request=request,
    )
    instance = Instance("submit_rewrite")
    try:
        return operator.execute(context_of(instance)), instance
    except (AirflowException, StorageError) as error:
        return error, instance


@pytest.mark.parametrize(
    "dies", [None, "Cannot execute: spark-submit. Error code is: 1."], ids=["well", "after its job"]
)
def test_the_statistics_become_the_xcom(root: Path, monkeypatch: pytest.MonkeyPatch, dies: str | None) -> None:
    """Also where the session could not be ended in order: what the job returned is done."""
    stats = TableStats(table_key=PERSON, fragments_removed=3)
    result, _ = run(root, monkeypatch, leaves=SubmitOutcome(value=OptimizeReport.of("/g", [stats])), dies=dies)
    assert [serde.from_json(TableStats, row) for row in result] == [stats]
    assert not (root / RESULT).exists()


def test_the_driver_is_told_what_the_run_asks_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form = {"max_bytes": "1GiB", "max_tables": None, "deadline": None, "policy": "tiered", "cutoff": 7, "auto": True}
    done = SubmitOutcome(value=OptimizeReport.of("/g", [TableStats(table_key=PERSON)]))
    _, instance = run(root, monkeypatch, leaves=done, dies=None, request=form)
    job, *words = instance.pushed["arguments"]
    told = dict(zip(words[::2], words[1::2], strict=True))
    assert (job, told["--graph"], told["--table"]) == ("rewrite", str(root), PERSON)
    assert json.loads(told["--request"]) == {"max_bytes": "1GiB", "policy": "tiered", "cutoff": 7, "auto": True}


def test_a_table_of_a_lot_that_fails_is_named_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [TableStats(table_key=PERSON), TableStats(table_key="edge:Knows", error="it is broken")]
    done = SubmitOutcome(value=OptimizeReport.of("/g", rows))
    error, instance = run(root, monkeypatch, leaves=done, dies=None, lot=(PERSON, "edge:Knows"))
    assert str(error) == "1 of 2 tables failed, the others are done: edge:Knows: it is broken"
    assert [(f["table_key"], f["message"]) for f in instance.pushed["failure"]] == [("edge:Knows", "it is broken")]
    _, *words = instance.pushed["arguments"]
    assert [words[n + 1] for n, word in enumerate(words) if word == "--table"] == [PERSON, "edge:Knows"]


_KILLED = (
    "the job rewrite was killed (SIGKILL) and left no outcome: a person did that, or the system when memory ran out"
)


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        (None, _KILLED),
        (SubmitOutcome(error="the store did not answer"), "the store did not answer"),
        (SubmitOutcome(), _KILLED),
    ],
    ids=["killed driver", "transient error", "driver killed at work"],
)
def test_what_the_next_submit_can_finish_is_repeated(
    root: Path, monkeypatch: pytest.MonkeyPatch, leaves: SubmitOutcome[OptimizeReport] | None, message: str
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    last = "WARNING: Using incubator modules: x" if leaves is None else "edge:Knows: folding 3 indexes in tasks"
    said = f"Cannot execute: spark-submit. Error code is: 137.\nLast spark-submit output:\n{last}"
    error, instance = run(root, monkeypatch, leaves=leaves, dies=said)
    assert str(error) == message
    assert not isinstance(error, AirflowFailException)
    assert instance.pushed["failure"][0]["message"] == message


def test_a_warning_of_java_is_no_reason(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Cannot execute: x. Error code is: 1.\nLast spark-submit output:\nWARNING: Using incubator modules: x"
    error, _ = run(root, monkeypatch, leaves=None, dies=said)
    assert str(error) == "the job rewrite ended with code 1 and no outcome: it said nothing"


def test_what_the_application_calls_final_is_not_repeated(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    refused = SubmitOutcome(error="no such table", retryable=False)
    error, instance = run(root, monkeypatch, leaves=refused, dies="Error code is: 1.")
    assert isinstance(error, AirflowFailException)
    assert instance.pushed["failure"][0]["message"] == "no such table"
    assert not (root / RESULT).exists()


def test_a_submit_that_timed_out_is_ended_before_the_journal_says_what_it_did(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk.exceptions import AirflowTaskTimeout
    from omnigraph_airflow.operators.spark_jobs import SubmitRewriteOperator

    left = list[list[Path]]()

    def hangs(_operator: Any, _context: Any) -> None:
        raise AirflowTaskTimeout("Timeout")

    monkeypatch.setattr(SparkSubmitOperator, "execute", hangs)
    monkeypatch.setattr(SparkSubmitOperator, "on_kill", lambda _: left.append(list(root.rglob("left.json"))))
    operator = SubmitRewriteOperator(task_id="submit_rewrite", lot=[PERSON], graph=str(root), result=RESULT)
    with pytest.raises(AirflowTaskTimeout):
        operator.execute(context_of(Instance("submit_rewrite")))
    assert left == [[]]
    assert list(root.rglob("left.json"))


@pytest.mark.parametrize(("frozen", "reason"), [(True, SkipReason.FROZEN), (False, SkipReason.DEFERRED_BUDGET)])
def test_a_table_that_may_not_be_rewritten_now_is_not_submitted(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, frozen: bool, reason: SkipReason
) -> None:
    if frozen:
        freeze_graph(open_graph(str(root)), ttl_seconds=600, reason="backup")
    result, instance = run(root, monkeypatch, leaves=None, dies="it was submitted", not_after=1)
    assert [serde.from_json(TableStats, row).skipped for row in result] == [reason]
    assert instance.pushed == {}


def test_runs_of_one_name_in_two_dags_leave_two_outcomes() -> None:
    from omnigraph_airflow.operators.spark_jobs import RESULT as TEMPLATE

    def path(dag_id: str) -> str:
        ti = SimpleNamespace(dag_id=dag_id, task_id="submit_rewrite", map_index=0, try_number=1)
        return Template(TEMPLATE).render(run_id="scheduled__2026-11-28T01:00:00+00:00", ti=ti)

    paths = {path(dag_id) for dag_id in ("omnigraph_maintenance", "omnigraph_maintenance__people")}
    assert len(paths) == 2
    assert {kept_by(found) for found in paths} == {(Kept.NEVER, "")}

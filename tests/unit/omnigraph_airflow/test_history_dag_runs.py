"""The record and the metrics of a DAG run, without Airflow's database."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from omnigraph_airflow import notify
from omnigraph_airflow.decisions import Decision
from omnigraph_airflow.run_report import Failure, RunFacts, build, decisions_of, results_of
from omnigraph_airflow.task_run import header_of

from omnigraph_ops.models.cleanup import CleanupReport, CleanupStats, RetentionPolicy
from omnigraph_ops.models.history import Answer, Measured, RunOutcome, TableCounts, Work
from omnigraph_ops.models.optimize import OptimizeReport, TableStats
from omnigraph_ops.outcomes.history import record_of
from tests.support.history import header, noted, record

BROKEN = OptimizeReport(uri="/g", tables=(TableStats(table_key="node:A", error="a file is missing"),))


def decision(*options: str, **fields: Any) -> Decision:
    return Decision(**{"chosen_options": options, "digest": "sha256:1", "decided_by": "ada", **fields})


def test_every_failure_of_the_report_is_in_the_record_once() -> None:
    facts = RunFacts(
        graph="/g",
        done=noted(BROKEN),
        failures=(
            Failure(task_id="optimize_table", table_key="node:A", message="a file is missing", map_index=0),
            Failure(task_id="plan_cleanup", table_key=None, message="denied"),
        ),
        states={"optimize_table_0": "failed", "plan_cleanup": "failed", "preview_repair": "failed"},
    )
    report = build(facts)
    run = record_of(header(), results_of(facts, report.attention))
    assert run.outcome is RunOutcome.FAILED
    assert run.errors == (
        "node:A: a file is missing",
        "plan_cleanup: denied",
        "preview_repair: failed, see its log",
    )
    assert [(t.table_key, t.outcome) for t in run.tables] == [("node:A", RunOutcome.FAILED)]


def test_a_table_that_failed_without_a_task_of_its_own_is_in_the_record_once() -> None:
    denied = CleanupStats(table_key="node:B", error="permission denied")
    tables = (TableStats(table_key="node:X", error="it cannot be opened"), *BROKEN.tables)
    facts = RunFacts(
        graph="/g",
        done=noted(OptimizeReport(uri="/g", tables=tables), CleanupReport.of("/g", RetentionPolicy(), (denied,))),
        failures=(Failure(task_id="optimize_table", table_key="node:A", message="a file is missing", map_index=0),),
        states={"optimize_table_0": "failed"},
    )
    run = record_of(header(), results_of(facts, build(facts).attention))
    assert sorted(run.errors) == [
        "node:A: a file is missing",
        "node:B: permission denied",
        "node:X: it cannot be opened",
    ]


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (decision("Approve"), Answer.APPROVED),
        (decision("Reject"), Answer.REJECTED),
        (decision("Reject", timed_out=True), Answer.TIMEOUT),
        (decision(), Answer.REJECTED),
    ],
)
def test_an_answer_that_is_no_approval_is_never_one(given: Decision, answer: Answer) -> None:
    (found,) = decisions_of(RunFacts(graph="/g", decisions={"cleanup": given}))
    assert (found.stage, found.answer, found.by, found.digest) == ("cleanup", answer, "ada", "sha256:1")


@pytest.mark.parametrize(("person", "who"), [("ada", "ada"), (None, "scheduled")])
def test_the_header_names_the_run(person: str | None, who: str) -> None:
    start = datetime(2026, 1, 2, tzinfo=UTC)
    run = SimpleNamespace(triggering_user_name=person, run_type="scheduled", start_date=start, logical_date=None)
    context = {"dag_run": run, "run_id": "night 1", "ti": SimpleNamespace(dag_id="maintain", start_date=start)}
    found = header_of(context, "/g", stages={"cleanup", "optimize"}, stamp=3)
    assert (found.run_id, found.verb, found.triggered_by) == ("maintain/night 1", "optimize+cleanup", who)
    assert (found.started_at_us, found.logical_date_us) == (int(start.timestamp() * 1e6), None)


@pytest.mark.parametrize(
    ("graph", "name"),
    [
        ("sales", "sales"),
        ("s3://bucket/team/my graph.omni/", "my_graph_omni"),
        ("/data/a:b|c\n#d@e", "a_b_c_d_e"),
        ("/", "graph"),
        ("x" * 500, "x" * 80),
    ],
)
def test_a_graph_is_one_segment_of_a_metric(graph: str, name: str) -> None:
    assert notify.metric_name(graph) == name


def test_what_nobody_knows_is_not_sent() -> None:
    run = record(after=Measured(fragments=3), work=Work(), tables=())
    assert "health_score" not in notify.gauges(run)
    assert notify.gauges(run)["fragments"] == 3
    assert notify.counters(run) == {"runs_succeeded": 1}


def test_an_interrupted_run_is_counted_as_that() -> None:
    run = record(outcome=RunOutcome.INTERRUPTED, counts=TableCounts(interrupted=2), work=Work())
    assert notify.counters(run) == {"runs_interrupted": 1}
    assert notify.gauges(run)["tables_interrupted"] == 2


def test_metrics_that_cannot_be_sent_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(notify.stats, "gauge", refuse)
    notify.emit_metrics(record(), "g")
    assert "The metrics of this run were not sent: no route" in caplog.text

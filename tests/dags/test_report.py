"""The report of a run: what a person answered stays, also where only the report is made again or the graph is away."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from omnigraph_ops.errors import StorageError, TransientError
from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.models.history import Answer, RunOutcome, RunRecord
from omnigraph_ops.outcomes import history
from tests.conftest import DemoGraph
from tests.support.edges import when_asked
from tests.support.killed_tasks import DAG, RUN, DagRun
from tests.support.operators import ASK
from tests.support.questions import keeps_question

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
APPROVE = "approve_cleanup"


@pytest.fixture
def graph(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.delenv("OMNIGRAPH_GRAPHS_FILE", raising=False)
    return demo_graph(node_types=1, loads=3, rows=3)


class Night:
    """A cleanup that asks a person, up to its report; it began an hour ago."""

    def __init__(self, graph: Graph) -> None:
        from omnigraph_airflow.operators.stages import PlanStageOperator

        began = datetime.now(UTC) - timedelta(hours=1)
        states = {"plan_cleanup": "success", APPROVE: "success", "cleanup_table": "skipped"}
        self.graph, self.run = graph, DagRun(root=Path(graph.uri), started=began, states=states)
        context = self.run.context("plan_cleanup")
        request = {"keep": 1, "older_than": None}
        PlanStageOperator(task_id="plan_cleanup", stage="cleanup", graph=graph.uri, request=request).execute(context)
        self.plan = context["ti"].pushed["plan"]
        self.events = defaultdict[Any, Any](lambda: SimpleNamespace(extra={}))
        """What the report says to whoever waits for the asset."""

    def ask(self) -> None:
        """Let the task ask, up to where it waits."""
        from airflow.sdk.exceptions import TaskAwaitingInput

        with mock.patch(ASK), pytest.raises(TaskAwaitingInput):
            self._task().execute(self._context())

    def answer(self, option: str, user: str | None = "ana") -> None:
        """Let the task go on with what Airflow hands to it."""
        from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

        event = {
            "chosen_options": [option],
            "params_input": {},
            "responded_by_user": {"id": user, "name": user} if user else None,
            "responded_at": datetime.now(UTC),
            "timedout": user is None,
        }
        self.run.states[APPROVE] = "success"
        try:
            with contextlib.suppress(AirflowSkipException, DownstreamTasksSkipped):
                self._task().execute_complete(self._context(), event)
        except AirflowFailException:
            self.run.states[APPROVE] = "failed"

    def clear(self) -> None:
        """What Airflow does to a run when any of its tasks is cleared."""
        self.run.clearings += 1
        self.run.started = datetime.now(UTC)

    def report(self) -> tuple[dict[str, Any], BaseException | None]:
        """The report, and what the task raised."""
        from omnigraph_airflow.notify import maintained_asset
        from omnigraph_airflow.operators.report import ReportOperator

        context = {**self.run.context("report"), "outlet_events": self.events}
        task = ReportOperator(task_id="report", graph=self.graph.uri, outlets=[maintained_asset("people")])
        raised: BaseException | None = None
        try:
            task.execute(context)
        except Exception as error:
            raised = error
        return context["ti"].pushed["report"], raised

    def record(self) -> RunRecord:
        """The only record of the run."""
        (found,) = history.read_runs(self.graph)
        assert found.run_id == f"{DAG}/{RUN}"
        return found

    def _task(self) -> Any:
        from omnigraph_airflow.operators.stages import ApproveStageOperator

        return ApproveStageOperator(
            task_id=APPROVE,
            stage="cleanup",
            plan=self.plan,
            answer_within=timedelta(hours=2),
            graph=self.graph.uri,
            within={"count": 0, "size": "0"},
        )

    def _context(self) -> Any:
        context = self.run.context(APPROVE)
        return {**context, "task": SimpleNamespace(upstream_task_ids={"plan_cleanup"}), "task_instance": context["ti"]}


@pytest.mark.parametrize(
    ("user", "answer", "why"),
    [
        ("ana", Answer.REJECTED, "ana answered Reject"),
        (None, Answer.TIMEOUT, "nobody answered in time, which counts as Reject"),
    ],
)
def test_a_rejection_outlives_a_clear_of_the_report_alone(
    graph: Graph, user: str | None, answer: Answer, why: str
) -> None:
    night = Night(graph)
    night.ask()
    night.answer("Reject", user)
    began = night.run.started
    for _ in range(2):
        report, raised = night.report()
        assert (report["outcome"], report["unapproved"]) == ("unapproved", [f"cleanup was not done: {why}"])
        assert str(raised) == f"cleanup was not done: {why}"
        found = night.record()
        assert (found.outcome, [d.answer for d in found.decisions]) == (RunOutcome.UNAPPROVED, [answer])
        assert found.header.started_at_us == int(began.timestamp() * 1_000_000)
        assert not night.events
        night.clear()


def test_an_answer_counts_no_more_once_its_task_was_cleared(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which then waits, or did not come to ask."""
    night = Night(graph)
    night.ask()
    night.answer("Reject")
    night.clear()
    for state in ("failed", "upstream_failed", "skipped"):
        night.run.states[APPROVE] = state
        assert night.report()[0]["unapproved"] == []
    night.run.states[APPROVE] = "success"
    night.run.tries[APPROVE] = 2
    keeps_question(monkeypatch)
    night.ask()
    ended = "cleanup was not done: the task that asks was ended before anybody answered, which counts as Reject"
    assert night.report()[0]["unapproved"] == [ended]


def test_an_unanswered_question_leads_to_the_plan_by_its_digest(graph: Graph) -> None:
    night = Night(graph)
    night.ask()
    night.answer("Reject", None)
    said = night.report()[0]["markdown"]
    next_step = (
        "to carry it out, trigger `omnigraph_cleanup` with this graph, **Confirm** and this digest before it expires."
    )
    assert f"Reject. The digest of the plan is `{night.plan['digest']}`: {next_step}" in said


def test_an_unanswered_question_about_a_graph_with_approvers_leads_to_them(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    night = Night(graph)
    night.ask()
    night.answer("Reject", None)
    listed = tmp_path / "graphs.yaml"
    listed.write_text(
        f"version: 1\ngraphs:\n  people: {{target: {graph.target}, approvals: {{approvers: [ana, bob]}}}}\n"
    )
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(listed))
    said = night.report()[0]["markdown"]
    assert "ana, bob may answer the question of another run about it." in said
    assert "**Confirm**" not in said


def test_what_was_done_stays_in_the_report_of_a_run_that_is_cleared_and_planned_again(graph: Graph) -> None:
    from omnigraph_airflow.operators.stages import ApplyPartsOperator, PlanStageOperator

    night = Night(graph)
    night.ask()
    night.answer("Approve")
    context = night.run.context("cleanup_table")
    lot = {"lot": ["node:Person"], "plan": night.plan, "approval": APPROVE, "graph": graph.uri}
    ApplyPartsOperator(task_id="cleanup_table", stage="cleanup", **lot).execute(context)
    night.run.states["cleanup_table"] = "success"
    before = night.report()[0]["markdown"]
    night.clear()
    night.run.states |= {APPROVE: "skipped", "cleanup_table": "skipped"}
    again = {"stage": "cleanup", "graph": graph.uri, "request": {"keep": 100, "older_than": None}}
    PlanStageOperator(task_id="plan_cleanup", **again).execute(night.run.context("plan_cleanup"))
    after = night.report()[0]["markdown"]
    assert "After that the run was cleared and planned again: nothing to remove." in after
    for line in ("Approve by ana", "Versions removed"):
        assert line in before
        assert line in after


def test_a_run_made_anew_under_the_same_id_has_no_answer_in_its_report(graph: Graph) -> None:
    night = Night(graph)
    night.ask()
    night.answer("Reject")
    night.run.started += timedelta(seconds=1)
    assert night.report()[0]["unapproved"] == []


def test_an_answer_that_does_not_count_is_no_timeout(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night = Night(graph)
    night.ask()
    listed = tmp_path / "graphs.yaml"
    listed.write_text("version: 1\ngraphs:\n  bad: {target: 5}\n")
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(listed))
    night.answer("Approve")
    monkeypatch.delenv("OMNIGRAPH_GRAPHS_FILE")
    assert night.run.states[APPROVE] == "failed"
    report, raised = night.report()
    assert (report["outcome"], report["unapproved"]) == ("failed", [])
    assert "No answer counts: `approve_cleanup` failed, and its error says why." in report["markdown"]
    assert raised is not None
    assert night.record().decisions == ()


def test_a_run_whose_graph_is_away_is_red_and_updates_no_asset(graph: Graph, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    night = Night(graph)
    night.run.states[APPROVE] = "skipped"
    Path(graph.uri).rename(tmp_path / "away")
    report, raised = night.report()
    assert isinstance(raised, AirflowFailException)
    assert str(raised).startswith("report: the graph cannot be opened, so this report does not know what the run did: ")
    assert "; what was done is in the rows of the tasks, and in the audit log of the graph; clear this" in str(raised)
    assert (report["outcome"], report["failed"]) == ("failed", [str(raised)])
    assert not night.events
    assert "## Cleanup\nNot known, the graph cannot be opened." in report["markdown"]


def test_a_graph_that_may_be_back_by_itself_is_looked_for_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    night = Night(graph)
    night.run.states[APPROVE] = "skipped"
    faults = [StorageError("the store is away"), StorageError("no rights")]
    faults[1].__cause__ = PermissionError(13, "Permission denied")

    def refuse() -> None:
        raise faults[0]

    when_asked(monkeypatch, LanceGateway, "open", refuse, times=None)
    assert isinstance(night.report()[1], TransientError)
    del faults[0]
    assert isinstance(night.report()[1], AirflowFailException)

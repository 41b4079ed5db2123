"""A consent is the answer that Airflow's own route took to one question about one plan, and nothing else."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lance import LanceDataset
from omnigraph_airflow import decisions
from omnigraph_airflow.decisions import Consent, QuestionId, unanswered
from structlog.testing import capture_logs

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.state import AUDIT_DIR
from omnigraph_ops.errors import ApprovalMissing, StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.models.repair import RepairPreview
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.quantities import moment
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.questions import id_of, keeps_question, when_kept
from tests.support.runs import Finished, Instance, planned
from tests.support.tables import PERSON

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
TASK = "approve_cleanup"
WITHIN = {"count": 10_000, "size": "1TiB"}
APPROVED = {"chosen_options": ["Approve"]}
ASKED = "asked"


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(node_types=1, loads=3, rows=3)


@pytest.fixture(autouse=True)
def _no_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.standard.operators.hitl import ApprovalOperator

    monkeypatch.delenv("OMNIGRAPH_GRAPHS_FILE", raising=False)
    monkeypatch.setattr(ApprovalOperator, "execute", lambda *_: ASKED)


class Attempt:
    """One attempt of the approving task in one run, `cleared` so many times."""

    def __init__(self, graph: Graph, *, plan: Any = None, cleared: int = 0, number: int = 1, **said: Any) -> None:
        from omnigraph_airflow.operators.stages import ApproveStageOperator

        self.plan = plan or plan_cleanup(graph, RetentionPolicy(keep_versions=1))
        self.graph = graph
        self.task = ApproveStageOperator(
            task_id=TASK,
            stage="cleanup",
            plan=None,
            answer_within=timedelta(hours=1),
            graph=graph.uri,
            within=WITHIN,
            **said,
        )
        instance = Instance(TASK)
        instance.id, instance.try_number = id_of(f"{TASK} {cleared} {number}"), number
        run = SimpleNamespace(
            run_type="manual", triggering_user_name="eve", start_date=datetime.now(UTC), clear_number=cleared
        )
        self.context: Any = {
            "ti": instance,
            "dag_run": run,
            "run_id": "a run",
            "task": SimpleNamespace(upstream_task_ids={"plan_cleanup"}),
            "dag": SimpleNamespace(dag_id=instance.dag_id),
        }
        self.task.plan = planned(self.context, graph, self.plan)

    def ask(self) -> Any:
        return self.task.execute(self.context)

    def asked(self) -> Consent:
        """What the graph keeps of the question."""
        kept = decisions.read_consent(self.graph.storage, decisions.question_of(self.context, TASK))
        assert kept is not None
        return kept

    def answer(self, user: str | None, option: str = "Approve", *, at: datetime | None = None) -> None:
        """What Airflow hands to a task that waited, about an answer of that moment."""
        from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

        who = {"id": user, "name": f"{user} by name"} if user else None
        event = {
            "chosen_options": [option],
            "params_input": {},
            "responded_by_user": who,
            "responded_at": at or datetime.now(UTC),
            "timedout": user is None,
        }
        with contextlib.suppress(AirflowSkipException, DownstreamTasksSkipped):
            self.task.execute_complete(self.context, event)

    def allowed(self) -> Any:
        """What the task that deletes reads, right before it does."""
        from omnigraph_airflow.operators.ask import approved

        return approved(self.context, self.graph.storage, TASK, self.plan.digest, what="cleanup")


@pytest.fixture
def approvers(tmp_path: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def are(*names: str) -> None:
        listed = tmp_path / "graphs.yaml"
        said = f"approvals: {{approvers: [{', '.join(names)}]}}"
        listed.write_text(f"version: 1\ngraphs:\n  people:\n    target: {graph.uri}\n    {said}\n")
        monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(listed))

    return are


def told(graph: Graph) -> list[tuple[str, str]]:
    return [(str(e.event), e.actor) for e in audit_log.log_of(graph.storage, "").entries]


def test_the_answer_of_a_person_allows_the_plan_that_was_asked_about(graph: Graph) -> None:
    attempt = Attempt(graph)
    assert attempt.ask() == ASKED
    with pytest.raises(ApprovalMissing, match="keeps no answer"):
        attempt.allowed()
    attempt.answer("ana")
    assert attempt.allowed().decided_by == "ana by name (ana)"
    assert told(graph) == [("approved", "ana by name (ana)")]


def test_what_an_xcom_says_is_no_consent(graph: Graph) -> None:
    attempt = Attempt(graph)
    forged = {"chosen_options": ["Approve"], "digest": attempt.plan.digest, "decided_by": "ana"}
    for key, value in {"decision": forged, "return_value": APPROVED, "asked_digest": attempt.plan.digest}.items():
        attempt.context["ti"].xcom_push(key=key, value=value)
    with pytest.raises(ApprovalMissing, match="keeps no answer"):
        attempt.allowed()
    attempt.ask()
    with pytest.raises(ApprovalMissing, match="keeps no answer"):
        attempt.allowed()


def test_the_time_of_an_answer_is_when_the_person_gave_it(graph: Graph) -> None:
    attempt, now = Attempt(graph), datetime.now(UTC)
    attempt.ask()
    attempt.answer("ana", at=now - timedelta(minutes=7))
    at_us = int((now - timedelta(minutes=7)).timestamp() * 1e6)
    assert attempt.allowed().decided_at_us == at_us
    assert [e.detail for e in audit_log.log_of(graph.storage, "").entries] == [f"Approve, answered at {moment(at_us)}"]
    attempt.ask()
    attempt.answer("ana", at=now + timedelta(minutes=7))
    assert attempt.allowed().decided_at_us < int((now + timedelta(minutes=6)).timestamp() * 1e6), "a clock that is fast"


@pytest.mark.parametrize(("user", "option", "why"), [("ana", "Reject", "answered Reject"), (None, "Reject", "in time")])
def test_a_reject_or_no_answer_allows_nothing(graph: Graph, user: str | None, option: str, why: str) -> None:
    attempt = Attempt(graph)
    attempt.ask()
    attempt.answer(user, option)
    with pytest.raises(ApprovalMissing, match=why):
        attempt.allowed()


def test_an_answer_after_the_deadline_that_was_shown_is_a_reject(graph: Graph) -> None:
    """Airflow takes one for as long as no scheduler runs to end the question."""
    attempt = Attempt(graph)
    attempt.ask()
    until = attempt.asked().answer_by
    assert until is not None
    assert f"**No answer** by {until:%Y-%m-%d %H:%M} UTC: counts as Reject" in attempt.task.body
    attempt.answer("ana", at=until.replace(second=0, microsecond=0) + timedelta(minutes=1))
    with pytest.raises(
        ApprovalMissing, match=rf"ana answered at .* UTC, after {until:%Y-%m-%d %H:%M} UTC, which counts"
    ):
        attempt.allowed()
    assert told(graph) == [("rejected", "ana by name (ana)")]
    assert not (attempt.asked().decision or unanswered("")).approved


def test_an_answer_in_the_minute_that_was_shown_counts_however_late_it_is_handed_over(graph: Graph) -> None:
    attempt = Attempt(graph)
    attempt.context["dag_run"].start_date = datetime.now(UTC) - timedelta(days=1)
    attempt.ask()
    until = attempt.asked().answer_by
    assert until is not None
    attempt.answer("ana", at=until.replace(second=59, microsecond=999_999))
    assert attempt.allowed().decided_by == "ana by name (ana)"


def test_a_question_waits_for_no_answer_that_would_come_after_its_plan_expired(graph: Graph) -> None:
    from omnigraph_airflow.operators.ask import LEAST_WAIT

    attempt = Attempt(open_graph(graph.uri, Settings(plan_ttl_seconds=1800.0)))
    attempt.ask()
    until, expires = attempt.asked().answer_by, attempt.plan.expires_at_us / 1e6
    assert until == datetime.fromtimestamp(expires, UTC) - LEAST_WAIT
    assert f"**No answer** by {until:%Y-%m-%d %H:%M} UTC" in attempt.task.body
    attempt.answer("ana", at=until + timedelta(minutes=1))
    with pytest.raises(ApprovalMissing, match=r"ana answered at .* which counts as Reject"):
        attempt.allowed()


def test_a_question_of_a_run_by_hand_waits_as_long_as_the_file_says_of_the_graph(
    dags: Any, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dags["omnigraph_cleanup"].get_task(TASK).answer_within is None

    def waits() -> timedelta:
        attempt = Attempt(graph)
        attempt.task.answer_within = None
        attempt.ask()
        until = attempt.asked().answer_by
        assert until is not None
        return until - attempt.context["dag_run"].start_date

    assert waits() == decisions.ANSWER_WITHIN
    listed = tmp_path / "graphs.yaml"
    one = f"{{target: {graph.uri}, approvals: {{answer_within: 50m}}}}"
    listed.write_text(f"version: 1\ngraphs:\n  all: {{target: {tmp_path}}}\n  one: {one}\n")
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(listed))
    assert waits() == timedelta(minutes=50)


def test_clearing_moves_no_deadline_that_a_question_shows(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow goes on showing the text of the first question, and a run that is cleared starts anew."""
    from airflow.sdk.exceptions import AirflowFailException

    first = Attempt(graph)
    first.ask()
    keeps_question(monkeypatch, first.task.body)
    later = Attempt(graph, plan=first.plan, cleared=1, number=2)
    later.task.answer_within = timedelta(hours=9)
    assert later.ask() == ASKED
    assert later.asked().answer_by == first.asked().answer_by
    past = replace(later.asked(), answer_by=datetime.now(UTC) - timedelta(seconds=1))
    decisions.keep_consent(graph.storage, past)
    with pytest.raises(
        AirflowFailException, match=r"the deadline that it had before, .* nothing was done; trigger a new"
    ):
        Attempt(graph, plan=first.plan, cleared=2, number=3).ask()


@pytest.mark.parametrize(("now", "may"), [(["ana"], True), (["ana", "cem"], False), (["5"], False), ([], False)])
def test_a_question_is_not_asked_again_where_who_may_approve_now_could_not_answer(
    graph: Graph, approvers: Callable[..., None], monkeypatch: pytest.MonkeyPatch, now: list[str], may: bool
) -> None:
    """Airflow keeps the users of the first question, and lets nobody else answer."""
    from airflow.sdk.exceptions import AirflowFailException

    approvers("ana", "bob")
    first = Attempt(graph)
    first.ask()
    keeps_question(monkeypatch, first.task.body, "ana", "bob")
    approvers(*map(repr, now))
    again = Attempt(graph, plan=first.plan, cleared=1, number=2)
    if may:
        assert again.ask() == ASKED
        return
    with pytest.raises(AirflowFailException, match=r"asking those who might approve before \(ana, bob\); nothing was"):
        again.ask()


def test_a_try_that_asks_again_says_that_an_earlier_answer_did_not_reach_the_graph(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Attempt(graph)
    with capture_logs() as logged:
        first.ask()
        keeps_question(monkeypatch, first.task.body)
        said = "An earlier try asked, and no answer reached the graph: one that was given does not count"
        assert said not in str(logged)
        Attempt(graph, plan=first.plan, number=2).ask()
    assert said in str(logged)


def test_a_question_of_a_release_that_kept_no_deadline_can_be_answered(graph: Graph) -> None:
    attempt = Attempt(graph)
    attempt.ask()
    kept = serde.to_json(attempt.asked())
    del kept["answer_by"]
    graph.storage.write(attempt.asked().question.path, json.dumps(kept).encode())
    attempt.answer("ana", at=datetime.now(UTC) + timedelta(days=1))
    assert attempt.allowed().decided_by == "ana by name (ana)"


def test_the_report_of_a_run_says_that_an_answer_came_too_late(
    dags: Any, graph: Graph, answer_hitl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the route of Airflow, with nobody who ends the question before the answer comes."""
    from airflow.providers.standard.operators.hitl import ApprovalOperator

    monkeypatch.undo()
    monkeypatch.delenv("OMNIGRAPH_GRAPHS_FILE", raising=False)
    real = ApprovalOperator.execute

    def hours_before(task: Any, context: Any) -> Any:
        question = decisions.question_of(context, task.task_id)
        kept = decisions.read_consent(graph.storage, question)
        assert kept is not None
        decisions.keep_consent(graph.storage, replace(kept, answer_by=datetime.now(UTC) - timedelta(hours=2)))
        return real(task, context)

    monkeypatch.setattr(ApprovalOperator, "execute", hours_before)
    answer_hitl(TASK, "Approve")
    before = {e.table_key: len(graph.open_head(e).versions()) for e in graph.state().entries}
    conf = {"graph": graph.uri, "confirm": True, "keep": 1, "older_than": None, "confirm_versions": 0}
    done = Finished(dags["omnigraph_cleanup"].test(run_conf=conf))
    assert {e.table_key: len(graph.open_head(e).versions()) for e in graph.state().entries} == before
    assert done.report["outcome"] == "unapproved"
    assert all("after " in line and line.endswith("counts as Reject") for line in done.report["unapproved"])
    assert "it does not count: " in done.report["markdown"]
    assert {run.outcome for run in history.read_runs(graph)} == {RunOutcome.UNAPPROVED}


def test_an_answer_is_about_the_digest_that_was_shown(graph: Graph) -> None:
    """The plan that an XCom names may be another one by the time of the answer, or of the removal."""
    attempt = Attempt(graph)
    attempt.ask()
    attempt.task.plan = Attempt(graph).task.plan
    attempt.answer("ana")
    attempt.allowed()
    attempt.plan = replace(attempt.plan, digest="sha256:" + "0" * 64)
    with pytest.raises(ApprovalMissing, match=r"approved another plan .*nothing was done; trigger a new run"):
        attempt.allowed()


def test_who_was_taken_from_the_list_after_the_question_may_not_answer_it(
    graph: Graph, approvers: Callable[..., None]
) -> None:
    approvers("ana", "bob")
    attempt = Attempt(graph)
    attempt.ask()
    approvers("ana")
    with capture_logs() as logged:
        attempt.answer("bob")
    assert "The answer does not count: bob is not among those who may approve any more" in str(logged)
    with pytest.raises(ApprovalMissing, match="bob is not among those who may approve any more"):
        attempt.allowed()
    assert told(graph) == [("rejected", "bob by name (bob)")]


def test_an_approver_is_told_by_the_id_and_not_by_the_name(graph: Graph, approvers: Callable[..., None]) -> None:
    approvers("bob by name")
    attempt = Attempt(graph)
    attempt.ask()
    attempt.answer("bob")
    with pytest.raises(ApprovalMissing, match="may approve"):
        attempt.allowed()


def test_what_a_form_confirmed_does_not_outlive_its_plan(graph: Graph) -> None:
    first = Attempt(graph, confirmed=True)
    assert first.ask() == APPROVED
    again = Attempt(graph, cleared=1, confirmed=True)
    assert again.ask() == ASKED
    with pytest.raises(ApprovalMissing, match="keeps no answer"):
        again.allowed()


def test_a_repeated_task_keeps_what_was_confirmed_about_the_same_plan_only(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a clear of the run that Airflow counts: a retry, or a clear that leaves the run's state as it is."""

    first = Attempt(graph, confirmed=True)
    assert first.ask() == APPROVED
    same = Attempt(graph, plan=first.plan, confirmed=True, number=2)
    assert same.ask() == APPROVED
    other = Attempt(graph, confirmed=True, number=2)
    keeps_question(monkeypatch)
    assert other.ask() == ASKED


def test_an_answer_does_not_outlive_a_clear(graph: Graph) -> None:
    attempt = Attempt(graph)
    attempt.ask()
    attempt.answer("ana")
    attempt.context["dag_run"].clear_number = 1
    with pytest.raises(ApprovalMissing, match="the run was cleared or made anew since approve_cleanup was answered"):
        attempt.allowed()


def test_the_standing_approval_of_the_file_is_no_answer_that_a_clear_repeats(graph: Graph) -> None:
    attempt = Attempt(graph, cleared=1, standing={"max_versions": 10_000, "max_bytes": 2**40})
    assert attempt.ask() == ASKED, "in a run that somebody started it is theirs"
    attempt.context["dag_run"].run_type = "scheduled"
    assert attempt.ask() == APPROVED


def test_nobody_is_asked_with_the_text_of_an_earlier_plan(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow keeps the text of a question when its task is cleared: seen in `tests/ui/test_consent.py`."""
    from airflow.sdk.exceptions import AirflowFailException

    first = Attempt(graph)
    first.ask()
    keeps_question(monkeypatch, first.task.body)
    with pytest.raises(AirflowFailException, match="nothing was done; trigger a new run to be asked"):
        Attempt(graph, cleared=1, number=2).ask()
    again = Attempt(graph, plan=first.plan, cleared=1, number=2)
    assert again.ask() == ASKED


def test_an_answer_to_an_attempt_that_is_over_counts_for_nothing(graph: Graph) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    old = Attempt(graph)
    old.ask()
    Attempt(graph, cleared=1).ask()
    with pytest.raises(AirflowFailException, match="not in the graph any more"):
        old.answer("ana")


def test_a_consent_that_is_damaged_or_of_another_question_allows_nothing(graph: Graph) -> None:
    attempt = Attempt(graph)
    question = QuestionId(dag_id=attempt.context["ti"].dag_id, run_id="a run", task_id=TASK)
    other = Consent(question=replace(question, run_id="other"), attempt="", digest="", expires_at_us=0)
    for content, why in ((b"{", "is damaged"), (serde.dumps(other).encode(), "about another question")):
        graph.storage.write(question.path, content)
        with pytest.raises(ApprovalMissing, match=why):
            attempt.allowed()


def test_a_damaged_consent_stops_the_removal_and_not_the_report(
    dags: Any, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    when_kept(monkeypatch, graph.storage, TASK, lambda path: graph.storage.write(path, b"{"))
    conf = {"graph": graph.uri, "confirm": True, "keep": 1, "older_than": None}
    done = Finished(dags["omnigraph_cleanup"].test(run_conf=conf))
    assert done.report["failed"]
    assert all(f.startswith("cleanup_table ") and "is damaged" in f for f in done.report["failed"])
    assert {run.outcome for run in history.read_runs(graph)} == {RunOutcome.FAILED}


def test_consents_of_long_ago_are_dropped(graph: Graph) -> None:
    young = decisions.consent_about(Attempt(graph).context, QuestionId(dag_id="d", run_id="young", task_id=TASK), "")
    old = replace(young, question=replace(young.question, run_id="old"))
    decisions.keep_consent(graph.storage, young)
    decisions.keep_consent(graph.storage, replace(old, expires_at_us=old.expires_at_us - 31 * 86_400 * 10**6))
    Attempt(graph)  # which plans
    assert decisions.read_consent(graph.storage, old.question) is None
    assert decisions.read_consent(graph.storage, young.question) is not None


def cleaning(attempt: Attempt) -> Any:
    """The task that removes what was approved, on one lot of all tables."""
    from omnigraph_airflow.operators.stages import ApplyPartsOperator

    tables = [t.table_key for t in attempt.plan.tables if t.versions]
    plan = attempt.task.plan
    return ApplyPartsOperator(
        task_id="cleanup_table", stage="cleanup", graph=attempt.graph.uri, lot=tables, plan=plan, approval=TASK
    ), len(tables)


def test_the_audit_log_has_a_start_before_anything_is_removed(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Attempt(graph, confirmed=True)
    attempt.ask()
    task, _ = cleaning(attempt)
    before = [len(graph.open_head(e).versions()) for e in graph.state().entries]
    real = Storage.write

    def full(storage: Storage, path: str, data: bytes) -> None:
        if path.startswith(AUDIT_DIR):
            raise StorageError(f"cannot write {path}: no space left")
        real(storage, path, data)

    with (
        monkeypatch.context() as patch,
        pytest.raises(Exception, match="could not be written, so nothing"),
    ):
        patch.setattr(Storage, "write", full)
        task.execute(attempt.context)
    assert [len(graph.open_head(e).versions()) for e in graph.state().entries] == before
    task.execute(attempt.context)
    assert [event for event, _ in told(graph)] == ["approved", "started", "applied"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_task_that_is_killed_half_way_says_what_it_removed(
    graph: Graph, stop: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:

    # One table after another: side by side each of them could be the first.
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "1")
    attempt = Attempt(graph, confirmed=True)
    attempt.ask()
    task, tables = cleaning(attempt)
    assert tables > 1
    when_asked(monkeypatch, LanceDataset, "cleanup_old_versions", raising(stop), skip=1, times=None)
    with pytest.raises(stop):
        task.execute(attempt.context)
    *_, start, end = audit_log.log_of(graph.storage, "").entries
    assert (str(start.event), str(end.event)) == ("started", "interrupted")
    assert re.search(r"[1-9]\d* versions of \S+ removed", end.detail), end.detail


def test_all_questions_of_a_run_share_one_deadline(graph: Graph) -> None:
    """Counted from the start of the run, so that together they cannot reach into the next night."""
    waits = []
    for minutes in (0, 50, 90):
        attempt = Attempt(graph)
        attempt.context["dag_run"].start_date = datetime.now(UTC) - timedelta(minutes=minutes)
        attempt.ask()
        waits.append(round(attempt.task.response_timeout.total_seconds() / 60))
    assert waits == [60, 10, 5]


@pytest.mark.parametrize("standing", [None, {"max_versions": 10_000, "max_bytes": 2**40}])
def test_a_plan_that_an_xcom_slips_in_is_not_the_runs(graph: Graph, standing: Any) -> None:
    """A preview with a harder policy keeps its plan in the graph, too."""
    from airflow.sdk.exceptions import AirflowFailException

    attempt = Attempt(graph, confirmed=True, standing=standing)
    attempt.context["dag_run"].run_type = "scheduled" if standing else "manual"
    hard = sealed.store(graph.storage, plan_cleanup(graph, RetentionPolicy(keep_versions=1), tables=(PERSON,)))
    attempt.task.plan = {**attempt.task.plan, **serde.to_json(hard)}
    with pytest.raises(AirflowFailException, match="was not made by this run; nothing was done"):
        attempt.ask()
    task, _ = cleaning(attempt)
    with pytest.raises(AirflowFailException, match="was not made by this run; nothing was done"):
        task.execute(attempt.context)


def test_a_run_of_the_same_id_inherits_no_answer(graph: Graph) -> None:
    attempt = Attempt(graph)
    attempt.ask()
    attempt.answer("ana")
    attempt.allowed()
    attempt.context["dag_run"].start_date += timedelta(seconds=1)
    with pytest.raises(ApprovalMissing, match="cleared or made anew since"):
        attempt.allowed()


def test_a_confirmation_that_names_a_digest_is_about_no_other_plan(graph: Graph) -> None:
    assert Attempt(graph, confirmed=True, digest="sha256:" + "0" * 64).ask() == ASKED
    attempt = Attempt(graph, confirmed=True)
    attempt.context["run_id"] = "another run"
    attempt.task.plan = planned(attempt.context, graph, attempt.plan)
    attempt.task.within, attempt.task.digest = None, f" {attempt.plan.digest} "
    assert attempt.ask() == APPROVED


def test_a_standing_repair_is_for_runs_that_nobody_starts(graph: Graph) -> None:
    from omnigraph_airflow.operators.stages import ApproveStageOperator

    preview = RepairPreview(uri=graph.uri, stamp=6, planned_at_us=0, expires_at_us=1, rows=(), digest="")
    task = ApproveStageOperator(
        task_id="approve_repair", stage="repair", plan=None, answer_within=timedelta(hours=1), standing=True
    )
    assert task.in_advance(preview, confirmed=False, by="eve") is None
    assert task.in_advance(preview, confirmed=False, by=None) == "the standing approval"


def test_an_answer_whose_form_airflow_refuses_is_none(graph: Graph) -> None:
    attempt = Attempt(graph)
    attempt.ask()
    with pytest.raises(Exception, match="not in"):
        attempt.answer("ana", "Approve everything")
    with pytest.raises(ApprovalMissing, match="keeps no answer"):
        attempt.allowed()

"""The last task: one report for the whole run, and the run's colour."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from omnigraph_airflow import decisions
from omnigraph_airflow.decisions import Consent, Decision, QuestionId, question_of, refusal, unanswered
from omnigraph_airflow.graphs import approvers_of
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_airflow.notify import emit_metrics, update_of
from omnigraph_airflow.operators.base import failures_handed
from omnigraph_airflow.run_report import Failure, RunFacts, RunReport, build, results_of
from omnigraph_airflow.task_run import airflow_errors, header_of, planners, run_id_of, stages_of, states_of
from omnigraph_ops import serde
from omnigraph_ops.coordination import sealed
from omnigraph_ops.errors import OpsError, TransientError, is_final
from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.outcomes.results import outcomes_of, redacted, with_value
from omnigraph_ops.stages.registry import BY_NAME, planned, tasks_by_stage
from omnigraph_ops.stages.stage import AnyPlanned, Effect, PartedStage
from omnigraph_ops.views.markdown import by_cause, cause_of, some

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.models.history import RunRecord
    from omnigraph_ops.models.outcomes import StageReport
    from omnigraph_ops.outcomes.task_journals import TaskJournals, TaskLeft

REPORT = "report"
_MOST_NAMED = 10
_log = logging.getLogger(__name__)


class ReportOperator(BaseOperator):
    """Collects what every stage left, logs it as Markdown, keeps it as XCom `report` and in the graph's history.

    Runs always (`all_done`) and is the only leaf of the DAG, so it decides the run's state: it fails when any task or
    table failed, when what somebody was asked about was rejected or not answered, and when the graph cannot be opened.

    :param graph: path or URI of the graph (templated).
    """

    template_fields: Sequence[str] = ("graph",)
    ui_color = "#f3e8fd"

    def __init__(self, *, graph: str = GRAPH, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.graph = graph

    def execute(self, context: Context) -> None:
        """Build, log and keep the report; fail if anything failed."""
        with airflow_errors():
            opened = self._graph()
            graph, unopened = (None, opened) if isinstance(opened, OpsError) else (opened, None)
            facts = _facts(context, graph, self._target())
            if unopened is not None:
                facts = _without_graph(facts, context["ti"].task_id, unopened)
            report = build(facts)
        for line in report.markdown.splitlines():
            self.log.info(line)
        context["ti"].xcom_push(key=REPORT, value=serde.to_json(report))
        if graph is not None:
            self._keep(context, graph, facts, report)
        if unopened is not None and unopened.retryable and not is_final(unopened):
            raise TransientError(_cannot_open(unopened)) from unopened
        if report.failed or report.unapproved:
            raise AirflowFailException("; ".join((*report.failed, *report.unapproved)))
        if graph is not None:
            self._update_assets(context, graph, facts, report)

    def _update_assets(self, context: Context, graph: Graph, facts: RunFacts, report: RunReport) -> None:
        """Put what the run did into the events of the task's assets. Reads the graph."""
        if self.outlets:
            said = update_of(facts, graph, run_id=context["run_id"], outcome=report.outcome)
            for asset in self.outlets:
                context["outlet_events"][asset].extra.update(said)

    def _graph(self) -> Graph | OpsError:
        """The graph, or why it cannot be opened: a report is due all the same. Reads."""
        try:
            return OmnigraphHook(self.graph).get_conn()
        except OpsError as error:
            return error

    def _target(self) -> str:
        """The graph for people; what the DAG calls it where its entry or its connection cannot be read. Reads."""
        try:
            return OmnigraphHook(self.graph).target()
        except OpsError:
            return self.graph or "a graph without a name"

    def _keep(self, context: Context, graph: Graph, facts: RunFacts, report: RunReport) -> None:
        """Write the record of the run and send its metrics; neither can fail the run. Writes."""
        from omnigraph_ops.outcomes import history
        from omnigraph_ops.outcomes.task_journals import mark_recorded
        from omnigraph_ops.stages.health.read import everything_now, look

        def make() -> RunRecord:
            results = results_of(facts, report.attention)
            header = header_of(context, facts.graph, stages=facts.stages, stamp=graph.stamp)
            # Airflow gives a run that is cleared a new start.
            header = replace(header, started_at_us=facts.began_us or header.started_at_us)
            return history.record_of(header, replace(results, after=look(everything_now, graph)))

        record, kept = history.keep(graph, make, warn=self.log.warning)
        if record is not None and kept:
            with suppress(OpsError):
                mark_recorded(graph.storage, record.header)
        if record is not None:
            emit_metrics(record, self.graph or graph.target)


def _cannot_open(error: OpsError) -> str:
    return (
        f"the graph cannot be opened, so this report does not know what the run did: {error}; the report changed "
        "nothing; what was done is in the rows of the tasks, and in the audit log of the graph; clear this task once "
        "the graph can be opened"
    )


def _without_graph(facts: RunFacts, task_id: str, error: OpsError) -> RunFacts:
    """The facts of a run whose graph cannot be opened, which is a failure of the task that reports. Pure.

    Unless the same kept every other task from its work, as a wrong name does: theirs says all that there is to say.
    """
    if "success" not in facts.states.values() and any(f.message == redacted(str(error)) for f in facts.failures):
        return facts
    failure = Failure(task_id=task_id, table_key=None, message=_cannot_open(error))
    return replace(facts, unopened=True, failures=(*facts.failures, failure))


def _facts(context: Context, graph: Graph | None, target: str) -> RunFacts:
    """Everything about the run: states from Airflow, the rest from what its tasks left in the graph. Writes.

    Who may write XComs, or mark tasks, changes nothing of it.
    """
    states = {name: state for name, state in states_of(context).items() if name != context["ti"].task_id}
    left = _left(context, graph)
    carried_out = tuple(dict.fromkeys(decision for one in left.left for decision in one.results.decisions))
    kept = {stage.name: _kept(context, graph, stage, states) for stage in BY_NAME.values()}
    plans = {name: plan for name, plan in kept.items() if plan is not None}
    decided = _decisions(context, graph, states, {decision.digest for decision in carried_out})
    damaged = (_left_out(context, BY_NAME[name], plan, decided.get(name)) for name, plan in plans.items())
    publishes = any(BY_NAME[name].effect is Effect.PUBLISHES for name in plans)
    facts = RunFacts(
        graph=target,
        stages=stages_of(context),
        began_us=_began(context, left),
        states=states,
        failures=_failures(context, left, states),
        retried=tuple(by_cause(("", *one) for one in _retried(left, states))),
        skipped=_skipped(left, states),
        decisions=decided,
        carried_out=carried_out,
        plans=plans,
        done=reduce(with_value, damaged, left.without_repeated(planners()).results()),
        approvers=_approvers(target),
        drift=_drift(graph) if publishes else None,
    )
    return replace(facts, undone=tuple(_undone(facts, left)))


def _approvers(target: str) -> tuple[str, ...]:
    """Who may answer about the graph; empty where a fault of the graphs file hides it, which its DAG tells. Reads."""
    try:
        return approvers_of(target)
    except OpsError:
        return ()


def _undone(facts: RunFacts, attempts: TaskJournals) -> Iterator[str]:
    """Of each approved stage in parts, which parts no task did: one may be marked a success by hand. Pure."""
    for name, plan in facts.plans.items():
        stage, decision, mine = planned(name), facts.decisions.get(name), _of_plan(attempts, plan.digest)
        last = mine.last()
        is_approved = decision is not None and refusal(decision, plan.digest) is None
        # Where every task came to its end, a part without a row had nothing left to do.
        if not isinstance(stage, PartedStage) or not is_approved or _all_ended(stage.tasks.apply, facts.states, last):
            continue
        its_own = [one.results.interruption for one in last.values() if one.task.task_id == stage.tasks.apply]
        cut_off = {key for cut in its_own if cut is not None for key in cut.tables}
        failed = {failure.table_key for failure in facts.failures if failure.task_id == stage.tasks.apply}
        report = mine.results().reports.get(name)
        done = set(stage.parts_in(report)) - cut_off if report is not None else set()
        left = [part for part in stage.parts(plan) if part not in done | failed]
        if left:
            yield (
                f"{name}: approved and not done, or not to its end: {some(left, _MOST_NAMED)}; no task reports it, as "
                f"where a task is marked a success by hand; nothing is harmed; run {name} again"
            )


def _of_plan(left: TaskJournals, digest: str) -> TaskJournals:
    """The attempts that carried out this plan: a run that is cleared has those of an earlier one, too. Pure."""
    attempts = (one for one in left.left if digest in {decision.digest for decision in one.results.decisions})
    return replace(left, left=tuple(attempts))


def _all_ended(task_id: str, states: Mapping[str, str | None], last: Mapping[str, TaskLeft]) -> bool:
    """Whether each instance of a task came to its end by itself, and did not fail. Pure."""
    found = [last.get(instance) for instance in states if instance.startswith(task_id)]
    return bool(found) and all(one and not one.results.interruption and not one.results.failures for one in found)


def _left_out(context: Context, stage: AnyPlanned, plan: Any, decision: Decision | None) -> StageReport | None:
    """The report on damaged tables that a plan left out, unless it was not to be carried out. Pure."""
    report = stage.left_out(plan)
    if decision is not None:
        return report if decision.approved else None
    if report is None or stage.nothing_to_do(plan) is None:
        return None
    asks = context["dag"].get_task(stage.tasks.approve)
    previews = getattr(asks, "only_confirmed", False) and context["params"].get("confirm") is not True
    return None if previews else report


def _left(context: Context, graph: Graph | None) -> TaskJournals:
    """What the tasks left, with what the graph tells of those that were killed: every other task is over. Writes."""
    from omnigraph_ops.outcomes.task_journals import TaskJournals, close, read_tasks

    if graph is None:
        return TaskJournals(left=(), open=())
    try:
        close(graph, run_id_of(context), is_over=lambda _task: True, warn=_log.warning)
        return read_tasks(graph.storage, run_id_of(context), warn=_log.warning)
    except OpsError as error:
        _log.warning("What the tasks left in the graph cannot be read: %s", error)
        return TaskJournals(left=(), open=())


def _began(context: Context, left: TaskJournals) -> int:
    """When a run began that was cleared since, by what its tasks left; 0: it was not, or nothing tells. Pure."""
    if not context["dag_run"].clear_number:
        return 0
    return min((one.header.started_at_us for one in left.left if one.header.started_at_us), default=0)


def _failures(context: Context, left: TaskJournals, states: Mapping[str, str | None]) -> tuple[Failure, ...]:
    """The sentence of the last try of every task that failed: from the graph, else what it gave to Airflow. Reads."""
    failed, last = {name for name, state in states.items() if state == "failed"}, left.last()
    told = [
        Failure(task_id=one.task.task_id, table_key=f.table_key, message=f.message, map_index=one.task.map_index)
        for one in last.values()
        for f in one.results.failures
    ]
    tries = {name: one.task.try_number for name, one in last.items() if one.results.failures}
    # A graph that cannot be opened takes no note, and sensors take none.
    handed = [f for task in context["dag"].task_ids for f in _handed(context, task)]
    newer = [f for f in handed if f.instance not in tries or f.try_number > tries[f.instance]]
    given = {f.instance for f in newer}
    return tuple(f for f in (*(f for f in told if f.instance not in given), *newer) if f.instance in failed)


def _retried(left: TaskJournals, states: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Each task that needed several tries since the run was last cleared, if it ended, and how they ended. Pure."""
    for name, last in left.last().items():
        end = {"success": "succeeded", "failed": "failed"}.get(states.get(name) or "")
        began = last.header.started_at_us
        mine = [one for one in left.left if one.task.instance == name]
        tries = [one for one in mine if one.header.started_at_us == began]
        known = {one.task.try_number for one in mine}
        # One that died before it noted anything left nothing there. Tries are counted on where a run is cleared.
        lost = [number for number in range(1, last.task.try_number) if number not in known]
        if end is None or len(tries) + len(lost) == 1:
            continue
        tables = {key for one in tries if one.results.interruption for key in one.results.interruption.tables}
        tables |= {f.table_key for one in tries for f in one.results.failures if f.table_key}
        tables = tables or {done.table_key for outcome in outcomes_of(last.results) for done in outcome.tables}
        subject = " ".join(filter(None, (last.task.task_id, some(sorted(tables), _MOST_NAMED)))) if tables else name
        ends = dict.fromkeys(lost, "was killed, or lost its worker or the API server, before it could say why")
        ends |= {one.task.try_number: _end_of(one) for one in tries[:-1]} | {last.task.try_number: end}
        causes = {number: cause_of(how) for number, how in ends.items()}
        told = [f"try {n} {'likewise' if causes[n] == causes.get(n - 1) else ends[n]}" for n in sorted(ends)]
        yield subject, "; ".join(told)


def _end_of(one: TaskLeft) -> str:
    """How a try that was repeated ended, as a phrase. Pure."""
    said = tuple(dict.fromkeys(failure.message for failure in one.results.failures))
    if one.results.interruption:
        return "was killed"
    # Airflow starts what ended well once more where somebody clears it, or where its worker was lost right after it.
    return f"failed: {some(said, _MOST_NAMED, '; ')}" if said else "ended well, and was cleared or repeated"


def _handed(context: Context, task_id: str) -> list[Failure]:
    """The sentences that a task handed to Airflow; none where they are no such, with a warning. Reads."""
    try:
        return failures_handed(context, task_id)
    except Exception as error:
        # Not only errors of ours: whoever may edit the run writes what they like, and a report is due all the same.
        _log.warning("What %s handed to Airflow about its failure cannot be read: %s", task_id, error)
        return []


def _drift(graph: Graph | None) -> tuple[DriftFinding, ...] | None:
    """Which tables are ahead of what is published at the end of the run. Reads."""
    from omnigraph_ops.stages.recovery.check import check

    if graph is None:
        return None
    try:
        return check(graph).drift
    except OpsError:
        return None


def _decisions(
    context: Context, graph: Graph | None, states: Mapping[str, str | None], carried_out: Collection[str]
) -> dict[str, Decision]:
    """What was answered to the last question of each stage, or about a plan that was carried out. Reads."""
    found: dict[str, Decision] = {}
    if graph is None:
        return found
    for stage in BY_NAME.values():
        if stage.name in stages_of(context):
            question, state = question_of(context, stage.tasks.approve), states.get(stage.tasks.approve)
            kept = _kept_consent(graph, question)
            if kept is None or not (kept.digest in carried_out or _is_last(kept.question, question, state)):
                continue
            if kept.decision is not None:
                found[stage.name] = kept.decision
            elif state != "failed":  # an answer may have come that did not count: the task says why
                found[stage.name] = unanswered(kept.digest)
    return found


def _is_last(kept: QuestionId, now: QuestionId, state: str | None) -> bool:
    """Whether nothing was asked after a kept question: a run may be cleared without the task that asked it. Pure.

    A task that is cleared and asks again replaces what is kept, and one that does not come to ask is no success.
    """
    return kept == now or (state == "success" and kept.cleared < now.cleared)


def _kept_consent(graph: Graph, question: QuestionId) -> Consent | None:
    """The consent to a question; None where it cannot be read, with a warning: a report is due all the same. Reads."""
    try:
        return decisions.read_consent(graph.storage, question)
    except OpsError as error:
        _log.warning("The report lacks the answer of %s: %s", question.task_id, error)
        return None


def _skipped(left: TaskJournals, states: Mapping[str, str | None]) -> dict[str, str]:
    """Why a stage was not planned, by its name. Pure."""
    last = left.last()
    planned = ((name, last.get(of.plan)) for name, of in tasks_by_stage().items() if states.get(of.plan) == "skipped")
    return {name: one.skipped for name, one in planned if one is not None and one.skipped}


def _kept(context: Context, graph: Graph | None, stage: AnyPlanned, states: Mapping[str, str | None]) -> Any:
    """The plan that a task of this run made; None when it made none, or the plan is gone. Reads."""
    if graph is None or states.get(stage.tasks.plan) != "success":
        return None
    made = _kept_consent(graph, question_of(context, stage.tasks.plan))
    try:
        return sealed.load(graph.storage, stage.plan_type, made.digest) if made is not None else None
    except OpsError:
        return None

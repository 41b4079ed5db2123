"""The last task: one report for the whole run, and the run's colour."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from omnigraph_airflow import consent
from omnigraph_airflow.consent import Consent, Question, question_of
from omnigraph_airflow.decisions import Decision, unanswered
from omnigraph_airflow.errors import airflow_errors
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_airflow.maintained import update_of
from omnigraph_airflow.metrics import emit
from omnigraph_airflow.operators.base import FAILURE, RETURNED, SKIPPED, pull_all, pull_list, pull_one
from omnigraph_airflow.operators.cleanup import PLAN
from omnigraph_airflow.operators.lots import DONE
from omnigraph_airflow.run_facts import Failure, RunFacts
from omnigraph_airflow.run_record import header_of, results_of
from omnigraph_airflow.run_report import RunReport, build
from omnigraph_airflow.stages import STAGES, Stage
from omnigraph_ops import serde
from omnigraph_ops.coordination import sealed
from omnigraph_ops.errors import OpsError
from omnigraph_ops.models import (
    CleanupPlan,
    CleanupStats,
    DriftFinding,
    OptimizePlan,
    OptimizeReport,
    OrphanedFork,
    OrphansPlan,
    OrphansReport,
    RepairPreview,
    RepairReport,
)
from omnigraph_ops.models.backup import BackupReport, VerifyReport
from omnigraph_ops.models.retention import RowRetentionPlan, RowRetentionReport

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph
    from omnigraph_ops.models.history import RunRecord

REPORT = "report"
_log = logging.getLogger(__name__)


class ReportOperator(BaseOperator):
    """Collects what every stage left, logs it as Markdown, keeps it as XCom `report` and in the graph's history.

    Runs always (`all_done`) and is the only leaf of the DAG, so it decides the run's state: it fails
    when any task or table failed, and when what somebody was asked about was rejected or not answered.

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
            graph = self._graph()
            facts = _facts(context, graph, OmnigraphHook(self.graph).target())
            report = build(facts)
        for line in report.markdown.splitlines():
            self.log.info(line)
        context["ti"].xcom_push(key=REPORT, value=serde.to_json(report))
        if graph is not None:
            self._keep(context, graph, facts, report)
        if report.failed or report.unapproved:
            raise AirflowFailException("; ".join((*report.failed, *report.unapproved)))
        self._update_assets(context, graph, facts, report)

    def _update_assets(self, context: Context, graph: Graph | None, facts: RunFacts, report: RunReport) -> None:
        """Put what the run did into the events of the task's assets. Reads the graph."""
        if self.outlets:
            said = update_of(facts, graph, run_id=context["run_id"], outcome=report.outcome)
            for asset in self.outlets:
                context["outlet_events"][asset].extra.update(said)

    def _graph(self) -> Graph | None:
        """The graph, to read its kept plans; a report is due even of one that cannot be opened. Reads."""
        try:
            return OmnigraphHook(self.graph).get_conn()
        except OpsError as error:
            self.log.warning("The kept plans cannot be read: %s", error)
            return None

    def _keep(self, context: Context, graph: Graph, facts: RunFacts, report: RunReport) -> None:
        """Write the record of the run and send its metrics; neither can fail the run. Writes."""
        from omnigraph_ops.outcomes import history
        from omnigraph_ops.outcomes.history.record import record_of
        from omnigraph_ops.stages.health.snapshot import everything_now, look

        def make() -> RunRecord:
            results = results_of(facts, report.attention)
            header = header_of(context, facts, stamp=graph.stamp)
            return record_of(header, replace(results, after=look(everything_now, graph)))

        record = history.keep(graph, make, days=graph.settings.history_days, warn=self.log.warning)
        if record is not None:
            emit(record, self.graph or graph.target)


def _facts(context: Context, graph: Graph | None, target: str) -> RunFacts:
    ti, tasks = context["ti"], context["dag"].task_ids
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
    states.pop(ti.task_id, None)
    stages = [stage for stage in STAGES if stage.plan_task in tasks]
    context = {**context, "ti": _OfThisAttempt(ti, states)}  # type: ignore[typeddict-item]
    removed = [*pull_list(context, "cleanup_table"), *pull_list(context, "cleanup_table", DONE)]
    failures = tuple(f for task in tasks for f in pull_all(context, Failure, task, FAILURE))
    preview = _kept(context, graph, RepairPreview, "preview_repair")
    return RunFacts(
        graph=target,
        stages=frozenset(stage.name for stage in stages),
        states=states,
        failures=failures,
        skipped=_skipped(context, stages),
        decisions=_decisions(context, graph, stages),
        optimize_plan=pull_one(context, OptimizePlan, "plan_optimize"),
        optimize=pull_one(context, OptimizeReport, "summarize"),
        preview=preview,
        drift=_drift(graph) if preview else None,
        repair=pull_one(context, RepairReport, "apply_repair"),
        cleanup_plan=_kept(context, graph, CleanupPlan, "plan_cleanup", PLAN),
        cleanup=tuple(serde.from_json(CleanupStats, s) for s in removed if isinstance(s, dict)),
        forks=tuple(serde.from_json(OrphanedFork, f) for s in removed if isinstance(s, list) for f in s),
        orphans_plan=_kept(context, graph, OrphansPlan, "plan_orphans"),
        orphans=pull_one(context, OrphansReport, "remove_orphans"),
        row_plan=_kept(context, graph, RowRetentionPlan, "plan_row_retention"),
        rows=pull_one(context, RowRetentionReport, "expire_rows"),
        backup=pull_one(context, BackupReport, "copy"),
        verified=pull_one(context, VerifyReport, "verify"),
    )


class _OfThisAttempt:
    """The XComs of tasks that ran: in a cleared run, those that did not run again keep what they left before."""

    def __init__(self, ti: Any, states: Mapping[str, str | None]) -> None:
        self._ti, self._states = ti, states
        self.dag_id = ti.dag_id

    def xcom_pull(self, *, task_ids: str, key: str = RETURNED) -> Any:
        wanted = {"skipped"} if key == SKIPPED else {"success", "failed"}
        found = {state for name, state in self._states.items() if re.fullmatch(rf"{re.escape(task_ids)}(_\d+)?", name)}
        return self._ti.xcom_pull(task_ids=task_ids, key=key) if found & wanted else None


def _drift(graph: Graph | None) -> tuple[DriftFinding, ...] | None:
    """Which tables are ahead of what is published at the end of the run. Reads."""
    from omnigraph_ops.stages.recovery import check

    if graph is None:
        return None
    try:
        return check(graph).drift
    except OpsError:
        return None


def _decisions(context: Context, graph: Graph | None, stages: Sequence[Stage]) -> dict[str, Decision]:
    """What was answered, by the name of the stage. Reads."""
    if graph is None:
        return {}
    found: dict[str, Decision] = {}
    for stage in stages:
        if stage.approval_task is not None:
            question = question_of(context, stage.approval_task)
            kept = _kept_consent(graph, question)
            if kept is not None and kept.question == question:
                found[stage.name] = kept.decision or unanswered(kept.digest)
    return found


def _kept_consent(graph: Graph, question: Question) -> Consent | None:
    """The consent to a question; None where it cannot be read, with a warning: a report is due all the same. Reads."""
    try:
        return consent.read(graph.storage, question)
    except OpsError as error:
        _log.warning("The report lacks the answer of %s: %s", question.task_id, error)
        return None


def _skipped(context: Context, stages: Sequence[Stage]) -> dict[str, str]:
    """Why a stage was not planned, by its name. Reads."""
    found = {stage.name: context["ti"].xcom_pull(task_ids=stage.plan_task, key=SKIPPED) for stage in stages}
    return {name: str(why) for name, why in found.items() if why is not None}


def _kept(
    context: Context, graph: Graph | None, cls: type[sealed.P], task_id: str, key: str = RETURNED
) -> sealed.P | None:
    """The kept plan that a task named; None when it named none, or the plan is gone. Reads."""
    ref = context["ti"].xcom_pull(task_ids=task_id, key=key)
    if ref is None or graph is None:
        return None
    try:
        return sealed.load(graph.storage, cls, serde.from_json(sealed.PlanRef, ref).digest)
    except OpsError:
        return None

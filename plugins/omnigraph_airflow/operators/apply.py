"""Carries out a kept plan that somebody approved, and leaves in the graph's audit log what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.audited import audited
from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.ask import approved
from omnigraph_airflow.operators.base import OmnigraphOperator, kept_plan, to_xcom
from omnigraph_airflow.operators.lots import LOT_LABEL, LotOperator
from omnigraph_airflow.task_run import run_of
from omnigraph_ops.errors import StorageError
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.stages.stage import PartedStage

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_airflow.operators.plan import PlanStageOperator
    from omnigraph_ops.graph import Graph


def apply_task(plan: PlanStageOperator) -> Any:
    """The task that carries out what that task planned, of a stage in parts the mapped one. Pure."""
    stage = planned(plan.stage)
    said: dict[str, Any] = {"stage": stage.name, "plan": plan.kept, "approval": stage.tasks.approve}
    if not isinstance(stage, PartedStage):
        return ApplyStageOperator(task_id=stage.tasks.apply, **said)
    mapped = ApplyPartsOperator.partial(task_id=stage.tasks.apply, map_index_template=LOT_LABEL, **said)
    return mapped.expand(lot=plan.output)


class ApplyStageOperator(OmnigraphOperator):
    """Checks the approval itself, carries out the plan, returns the stage's report.

    :param stage: name of the stage.
    :param plan: name of the kept plan that was shown (templated).
    :param approval: id of the approval task.
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "plan")

    def __init__(self, *, stage: str, plan: Any, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage = planned(stage).name
        self.plan = plan
        self.approval = approval

    def run_stage(self, graph: Graph, context: Context) -> Any:
        stage = planned(self.stage)
        plan = kept_plan(context, graph, stage.plan_type, self.plan)
        decision = approved(context, graph.storage, self.approval, plan.digest, what=stage.name)
        with audited(graph, stage.name, decision) as work:
            report = self._carried_out(graph, plan)
            if report is None:
                report = stage.apply(graph, plan, Lines(self.log.info), force=decision.force)
            outcome = stage.outcome(report)
            graph.run.notes(report)
            graph.run.notes(outcome)
            work.ends(AuditEvent.APPLIED if outcome.applied else AuditEvent.FAILED, outcome.detail)
        return to_xcom(report)

    def _carried_out(self, graph: Graph, plan: Any) -> Any:
        """The report of a killed attempt of this task, if that one did the whole plan; else None. Reads."""
        from omnigraph_ops.outcomes.task_journals import read_tasks

        run = run_of(graph)
        if run.task is None or run.task.try_number == 1:
            return None
        stage = planned(self.stage)
        done = stage.report_in(read_tasks(graph.storage, run.header.run_id).results(graph.uri, self.task_id))
        if done is None or not stage.is_carried_out(plan, done):
            return None
        self.log.info("A killed attempt of this task had carried it out: %s", stage.outcome(done).detail)
        return done


class ApplyPartsOperator(LotOperator):
    """Carries out the approved parts of a lot, after checking the approval itself; returns a report per part.

    :param stage: name of a stage that is carried out in parts: `cleanup`.
    :param lot: the parts (templated).
    :param plan: name of the kept plan that was shown (templated).
    :param approval: id of the approval task.
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = (*LotOperator.template_fields, "plan")

    def __init__(self, *, stage: str, plan: Any, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage = planned(stage).name
        self.plan = plan
        self.approval = approval

    def run_stage(self, graph: Graph, context: Context) -> list[Any]:
        stage = planned(self.stage)
        self._approved, self._done = kept_plan(context, graph, stage.plan_type, self.plan), list[Any]()
        what = f"{stage.name} of {self.label}"
        decision = approved(context, graph.storage, self.approval, self._approved.digest, what=what)
        with audited(graph, stage.name, decision) as work:
            rows = super().run_stage(graph, context)
            work.ends(AuditEvent.APPLIED, work.told)
        return rows

    def run_table(self, graph: Graph, table_key: str, context: Context) -> Any:
        stage = planned(self.stage)
        assert isinstance(stage, PartedStage), "no other stage is given to this operator"
        report = stage.apply_part(graph, self._approved, table_key)
        self._done.append(report)
        joined = stage.joined(self._done)
        graph.run.notes(joined)
        graph.run.notes(stage.outcome(joined))
        if failures := stage.failures(report):
            raise StorageError("; ".join(failures))
        return to_xcom(report)

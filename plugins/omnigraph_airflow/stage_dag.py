"""The manual DAG of a stage that plans first: look, ask, carry out exactly what was looked at, report."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, TriggerRule

from omnigraph_airflow.forms import FORCE, form_of, request_params, stage_params
from omnigraph_airflow.manual import ASKED_IN_FORM, manual_dag
from omnigraph_airflow.operators.apply import apply_task
from omnigraph_airflow.operators.approve import ApproveStageOperator
from omnigraph_airflow.operators.plan import PlanStageOperator
from omnigraph_airflow.operators.recovery import CheckRecoveryOperator
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.stage_text import stage_text
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.stages.stage import AnyPlanned


def stage_dag(name: str) -> DAG:
    """The DAG of that stage, started by hand. Reads the graphs file."""
    stage = planned(name)

    def tasks() -> None:
        recovery = CheckRecoveryOperator(task_id="check_recovery")
        plan = PlanStageOperator(
            task_id=stage.tasks.plan,
            stage=name,
            request={field: _of(field) for field in request_params(stage)},
            digest=_of("digest"),
        )
        approve = ApproveStageOperator(
            task_id=stage.tasks.approve,
            stage=name,
            params=form_of(stage),
            plan=plan.kept,
            **_bounds(stage),
            **ASKED_IN_FORM,
        )
        report = ReportOperator(task_id="report", trigger_rule=TriggerRule.ALL_DONE)

        recovery >> plan
        approve >> apply_task(plan) >> report

    dag: DAG = manual_dag(dag_id=stage.dag_id, params=stage_params(stage), doc_md=stage_text(stage))(tasks)()
    return dag


def _of(param: str) -> str:
    return f"{{{{ params.{param} }}}}"


def _bounds(stage: AnyPlanned) -> dict[str, Any]:
    """What the form says about an approval in advance. Pure."""
    said: dict[str, Any] = {FORCE: _of(FORCE)} if stage.switch else {}
    if stage.measure:
        said["within"] = {"count": _of(f"confirm_{stage.measure.noun}"), "size": _of("confirm_size")}
    return said

"""The nightly DAG: one body, for the deployment's graph and for every graph of a graphs file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, Asset, Param, TriggerRule
from airflow.sdk.definitions.deadline import DeadlineAlert

from omnigraph_airflow.decisions import ANSWER_WITHIN
from omnigraph_airflow.forms import bound_params, graph_param, request_params, switch_param, templated_request
from omnigraph_airflow.hooks.omnigraph import GRAPH
from omnigraph_airflow.notify import Told
from omnigraph_airflow.operators.base import LOT_LABEL, task_args
from omnigraph_airflow.operators.optimize import (
    OptimizeTablesOperator,
    PlanOptimizeOperator,
    SelectTablesOperator,
    SummarizeOptimizeOperator,
)
from omnigraph_airflow.operators.recovery import CheckRecoveryOperator
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.operators.spark_jobs import SubmitRewriteOperator
from omnigraph_airflow.operators.stages import PlanStageOperator, stage_tasks
from omnigraph_airflow.sensors.quiet_graph import Hours, QuietGraphSensor
from omnigraph_ops.config.graph_entries import NIGHTLY
from omnigraph_ops.models.optimize import Executor
from omnigraph_ops.stages.registry import UNASKED_BY_NAME, planned

ADVANCE = "Approve in advance"
_ASKED_ANYHOW = "Where the graph has approvers, one of them is asked all the same."
_ALL_TABLES = ("tables",)
"""A night is for the whole graph."""


def night_params() -> dict[str, Param]:
    """Everything that a person may say about one night. Pure."""
    return {
        "graph": graph_param(named=False),
        **stage_params(),
    }


def stage_params() -> dict[str, Param]:
    """The same without the graph, for a DAG that has its own. Pure."""
    return {
        **request_params(planned("cleanup"), but=_ALL_TABLES),
        "spark_threshold": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Spark from (bytes)",
            description_md="Rewrites of at least this many bytes run on Spark. Empty: the deployment's setting.",
        ),
        "quiet_seconds": Param(
            300,
            type="integer",
            minimum=0,
            title="Quiet seconds",
            description_md="Start only after nobody has published for this long.",
        ),
        **request_params(UNASKED_BY_NAME["optimize"], but=_ALL_TABLES),
        **request_params(planned("repair"), but=_ALL_TABLES),
        **_repair_params(),
        **_cleanup_params(),
    }


def _repair_params() -> dict[str, Param]:
    return {
        "force_repair": switch_param(
            "Force repair",
            "Where the switch of the repair approval starts: whether an approved repair also publishes drift that is "
            "**not** verified maintenance.",
        ),
        "confirm_repair": switch_param(
            "Confirm the repair now",
            f"Publish verified maintenance without asking. Other drift still waits for a person. {_ASKED_ANYHOW}",
            section=ADVANCE,
        ),
    }


def _cleanup_params() -> dict[str, Param]:
    return {
        "confirm_cleanup": switch_param(
            "Confirm the cleanup now",
            f"Remove without asking, up to the bounds below. {_ASKED_ANYHOW}",
            section=ADVANCE,
        ),
        **bound_params(planned("cleanup"), section=ADVANCE),
        "standing_approval": Param(
            None,
            type=["null", "object"],
            title="Standing approval of cleanups",
            section=ADVANCE,
            properties={
                "max_versions": {"type": "integer", "minimum": 0},
                "max_bytes": {"type": "integer", "minimum": 0},
            },
            additionalProperties=False,
            # Both or none: the form makes `{}` of an empty value.
            dependentRequired={"max_versions": ["max_bytes"], "max_bytes": ["max_versions"]},
            description_md='Bounds, as in `{"max_versions": 500, "max_bytes": 1000000000}`. '
            "A plan outside them waits for a person.",
        ),
    }


FINISH_WITHIN = timedelta(hours=3)
"""How long a run may go on after the last moment at which an approval is answered."""

NOT_AFTER = "{{ ti.xcom_pull(task_ids='plan_optimize', key='not_after') }}"
"""The deadline that the plan fixed; a table whose turn comes later waits for another night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What the nightly DAG of one graph has of its own."""

    dag_id: str = NIGHTLY
    graph: str = GRAPH
    """The operators' `graph`: a template, or the name of a graph in the graphs file."""
    schedule: Any = "0 1 * * *"
    params: Mapping[str, Param] = field(default_factory=night_params)
    doc_md: str | None = None
    owner: str = "omnigraph"
    tags: tuple[str, ...] = ()
    description: str | None = None
    hours: Hours | None = None
    """When a run that nobody triggered by hand may begin; None: at any hour."""
    wait_at_most: timedelta = timedelta(hours=3)
    """A run that found no quiet moment for this long fails."""
    answer_within: timedelta = ANSWER_WITHIN
    """Both approvals share this deadline, so that an unanswered one never reaches the next night."""
    approvers: tuple[str, ...] = ()
    """Who may answer; empty: everybody who may act on the DAG."""
    standing_repair: bool = False
    """Verified maintenance is published without asking."""
    told: tuple[Told, ...] = ()
    """Called when a question is asked."""
    task_args: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of every task: pool, timeout."""
    on_failure: tuple[Told, ...] = ()
    deadlines: tuple[DeadlineAlert, ...] = ()
    outlets: tuple[Asset, ...] = ()
    """Updated by a run that ends well."""


def nightly_dag(night: Night) -> DAG:
    """A nightly DAG. Pure."""
    with DAG(
        dag_id=night.dag_id,
        schedule=night.schedule,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        # After so long a run is over, whatever it waits for; by itself it ends before.
        dagrun_timeout=night.answer_within + FINISH_WITHIN + (timedelta(days=1) if night.hours else timedelta()),
        default_args=task_args(night.params, graph=night.graph, owner=night.owner, **night.task_args),
        render_template_as_native_obj=True,
        tags=["omnigraph", "maintenance", *night.tags],
        description=night.description,
        doc_md=night.doc_md,
        on_failure_callback=list(night.on_failure) or None,
        deadline=list(night.deadlines) or None,
    ) as dag:
        _stages(night)
    # Last: every task that finds them keeps a deep copy, in the serialised DAG too. They reach every run all the same.
    dag.params.update(night.params)
    return dag


def _stages(night: Night) -> None:
    """The night, stage by stage."""
    quiet = QuietGraphSensor(
        task_id="wait_for_quiet_graph",
        quiet_seconds="{{ params.quiet_seconds }}",
        hours=night.hours,
        requests={name: templated_request(planned(name), but=_ALL_TABLES) for name in ("repair", "cleanup")},
        timeout=night.wait_at_most + (timedelta(days=1) if night.hours else timedelta()),
    )
    recovery = CheckRecoveryOperator(task_id="check_recovery")
    summary = _optimize(recovery)
    preview, repair = _repair(night)
    cleanup = _cleanup(night, preview, repair)
    report = ReportOperator(
        task_id="report",
        trigger_rule=TriggerRule.ALL_DONE,
        outlets=list(night.outlets),
    )

    quiet >> recovery
    summary >> preview
    cleanup >> report


def _optimize(recovery: CheckRecoveryOperator) -> SummarizeOptimizeOperator:
    """Plan, split by executor, do the tables, sum up."""
    request = templated_request(UNASKED_BY_NAME["optimize"], but=_ALL_TABLES)
    plan = PlanOptimizeOperator(
        task_id="plan_optimize",
        spark_threshold="{{ params.spark_threshold }}",
        request=request,
    )
    light = SelectTablesOperator(task_id="light_tables", plan=plan.output, runs_on=Executor.IN_PROCESS)
    heavy = SelectTablesOperator(task_id="heavy_tables", plan=plan.output, runs_on=Executor.SPARK)
    optimize = OptimizeTablesOperator.partial(
        task_id="optimize_table", map_index_template=LOT_LABEL, not_after=NOT_AFTER, request=request
    ).expand(lot=light.output)
    rewrite = SubmitRewriteOperator.partial(
        task_id="submit_rewrite",
        not_after=NOT_AFTER,
        request=request,
        map_index_template=LOT_LABEL,
        name="omnigraph-rewrite",
    ).expand(lot=heavy.output)
    # all_done: neither an empty map nor a failing table keeps the rest from running.
    summary = SummarizeOptimizeOperator(
        task_id="summarize",
        plan=plan.output,
        table_tasks=("optimize_table", "submit_rewrite"),
        trigger_rule=TriggerRule.ALL_DONE,
    )
    recovery >> plan
    [optimize, rewrite] >> summary
    return summary


def _asking(night: Night) -> dict[str, Any]:
    """What both questions have in common. Pure."""
    return {
        "answer_within": night.answer_within,
        "approvers": night.approvers,
        "notifiers": list(night.told),
        # Waiting for a person is no execution: `answer_within` bounds it.
        "execution_timeout": None,
    }


def _repair(night: Night) -> tuple[PlanStageOperator, Any]:
    """Preview, ask, publish."""
    asking = {
        "force": "{{ params.force_repair }}",
        "confirmed": "{{ params.confirm_repair }}",
        "standing": night.standing_repair,
    }
    return stage_tasks("repair", but=_ALL_TABLES, asking={**asking, **_asking(night)})


def _cleanup(night: Night, preview: PlanStageOperator, repair: Any) -> Any:
    """Plan, ask, remove."""
    # all_done: a rejected, skipped or failed repair leaves its tables out of the plan, nothing more.
    planning = {"after": preview.output, "trigger_rule": TriggerRule.ALL_DONE}
    asking = {"standing": "{{ params.standing_approval }}", "confirmed": "{{ params.confirm_cleanup }}"}
    plan, cleanup = stage_tasks("cleanup", but=_ALL_TABLES, planning=planning, asking={**asking, **_asking(night)})
    repair >> plan
    return cleanup

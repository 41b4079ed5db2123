"""# Nightly maintenance of an Omnigraph graph

| Stage | What it does | Effect |
|---|---|---|
| `wait_for_quiet_graph` | waits until nobody has published for a while | reads |
| `check_recovery` | finishes what a crashed optimize left, or stops | publishes what was written |
| `plan_optimize` | decides per table what to do, and whether it needs Spark | reads |
| `optimize_table` | folds indexes, compacts; `submit_rewrite` does the heavy tables on Spark | writes |
| `summarize` | one row per table | compacts internal tables, only if exclusive |
| `preview_repair` | classifies drifted tables: evidence for a person | reads |
| `apply_repair` | after `approve_repair` | publishes existing versions |
| `plan_cleanup` | lists the old versions that may go | reads |
| `cleanup_table` | after `approve_cleanup` | **destroys** |
| `report` | what happened; red when anything failed | reads |

**Approvals** appear under *Required Actions*. Reject, or no answer within 20 hours of the run's start,
skips only that step. An approval covers exactly the plan that was shown: if the graph moved since, the
step refuses. To approve in advance, trigger by hand with `confirm_repair` or `confirm_cleanup`, or give
`standing_approval` its bounds; whatever is outside the bounds still waits for a person.

**Which graph**: the param `graph`, else the Airflow Variable `omnigraph_graph`, else the environment
variable `OMNIGRAPH_GRAPH`.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import Param, TriggerRule, dag
from omnigraph_airflow.operators.approve import REPAIR_FORM, ApproveCleanupOperator, ApproveRepairOperator
from omnigraph_airflow.operators.cleanup import CleanupTableOperator, PlanCleanupOperator
from omnigraph_airflow.operators.optimize import (
    OptimizeTableOperator,
    PlanOptimizeOperator,
    SelectTablesOperator,
    SummarizeOptimizeOperator,
)
from omnigraph_airflow.operators.recovery import CheckRecoveryOperator
from omnigraph_airflow.operators.repair import ApplyRepairOperator, PreviewRepairOperator
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.operators.rewrite import SubmitRewriteOperator
from omnigraph_airflow.params import budget_params, evidence_param, graph_param, keep_param, older_than_param
from omnigraph_airflow.sensors.quiet_graph import QuietGraphSensor

from omnigraph_ops.models import Executor

ANSWER_WITHIN = timedelta(hours=20)
"""Both approvals share this deadline, so that an unanswered one never reaches the next night."""

POLICY = {"policy": "{{ params.policy }}", "cutoff": "{{ params.cutoff }}", "auto": "{{ params.auto }}"}
NOT_AFTER = "{{ ti.xcom_pull(task_ids='plan_optimize', key='not_after') }}"
"""The deadline that the plan fixed; a table whose turn comes later waits for another night."""

ADVANCE = "Approve in advance"
PARAMS = {
    "graph": graph_param(),
    "keep": keep_param(),
    "older_than": older_than_param(),
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
    **budget_params(),
    "evidence": evidence_param(),
    "force_repair": Param(
        False,
        type="boolean",
        title="Force repair",
        description_md="Where the switch of the repair approval starts: whether an approved repair also "
        "publishes drift that is **not** verified maintenance.",
    ),
    "confirm_repair": Param(
        False,
        type="boolean",
        title="Confirm the repair now",
        section=ADVANCE,
        description_md="Publish verified maintenance without asking. Other drift still waits for a person.",
    ),
    "confirm_cleanup": Param(
        False,
        type="boolean",
        title="Confirm the cleanup now",
        section=ADVANCE,
        description_md="Remove without asking, up to the bounds below or 1000 versions and 10 GiB.",
    ),
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
        description_md='Bounds, as in `{"max_versions": 500, "max_bytes": 1000000000}`. '
        "A plan outside them waits for a person.",
    ),
}


@dag(
    dag_id="omnigraph_maintenance",
    schedule="0 1 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=23),
    # Only what may succeed later is raised as retryable (omnigraph_airflow.errors).
    default_args={"owner": "omnigraph", "retries": 2, "retry_delay": timedelta(minutes=2)},
    render_template_as_native_obj=True,
    params=PARAMS,
    tags=["omnigraph", "maintenance"],
    doc_md=__doc__,
)
def omnigraph_maintenance() -> None:
    """The night, stage by stage."""
    quiet = QuietGraphSensor(task_id="wait_for_quiet_graph", quiet_seconds="{{ params.quiet_seconds }}")
    recovery = CheckRecoveryOperator(task_id="check_recovery")

    plan = PlanOptimizeOperator(
        task_id="plan_optimize",
        spark_threshold="{{ params.spark_threshold }}",
        max_bytes="{{ params.max_bytes }}",
        max_tables="{{ params.max_tables }}",
        deadline="{{ params.deadline }}",
        **POLICY,
    )
    light = SelectTablesOperator(task_id="light_tables", plan=plan.output, runs_on=Executor.IN_PROCESS)
    heavy = SelectTablesOperator(task_id="heavy_tables", plan=plan.output, runs_on=Executor.SPARK)
    optimize = OptimizeTableOperator.partial(
        task_id="optimize_table", map_index_template="{{ task.table_key }}", not_after=NOT_AFTER, **POLICY
    ).expand(table_key=light.output)
    rewrite = SubmitRewriteOperator.partial(
        task_id="submit_rewrite",
        not_after=NOT_AFTER,
        **POLICY,
        map_index_template="{{ task.table_key }}",
        name="omnigraph-rewrite",
    ).expand(table_key=heavy.output)
    # all_done: neither an empty map nor a failing table keeps the rest from running.
    summary = SummarizeOptimizeOperator(
        task_id="summarize",
        plan=plan.output,
        table_tasks=("optimize_table", "submit_rewrite"),
        trigger_rule=TriggerRule.ALL_DONE,
    )

    preview = PreviewRepairOperator(task_id="preview_repair", evidence="{{ params.evidence }}")
    approve_repair = ApproveRepairOperator(
        task_id="approve_repair",
        params=REPAIR_FORM,
        plan=preview.output,
        answer_within=ANSWER_WITHIN,
        force="{{ params.force_repair }}",
        confirmed="{{ params.confirm_repair }}",
    )
    repair = ApplyRepairOperator(
        task_id="apply_repair",
        preview=preview.output,
        approval="approve_repair",
    )

    # all_done: a rejected, skipped or failed repair leaves its tables out of the plan, nothing more.
    plan_cleanup = PlanCleanupOperator(
        task_id="plan_cleanup",
        after=preview.output,
        trigger_rule=TriggerRule.ALL_DONE,
        keep="{{ params.keep }}",
        older_than="{{ params.older_than }}",
    )
    approve_cleanup = ApproveCleanupOperator(
        task_id="approve_cleanup",
        plan=plan_cleanup.output["plan"],
        answer_within=ANSWER_WITHIN,
        standing="{{ params.standing_approval }}",
        confirmed="{{ params.confirm_cleanup }}",
    )
    cleanup = CleanupTableOperator.partial(
        task_id="cleanup_table",
        map_index_template="{{ task.table_key }}",
        plan=plan_cleanup.output["plan"],
        approval="approve_cleanup",
    ).expand(table_key=plan_cleanup.output)
    report = ReportOperator(task_id="report", trigger_rule=TriggerRule.ALL_DONE)

    quiet >> recovery >> plan
    [optimize, rewrite] >> summary >> preview
    approve_repair >> repair >> plan_cleanup
    approve_cleanup >> cleanup >> report


omnigraph_maintenance()

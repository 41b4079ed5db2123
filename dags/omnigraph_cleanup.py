"""# Remove old versions of a graph's tables

| Task | What it does | Effect |
|---|---|---|
| `check_recovery` | finishes what a crashed optimize left, or stops | publishes what was written |
| `plan_cleanup` | lists the versions and files that may go, and what holds the others | reads |
| `approve_cleanup` | a run without **Confirm** stops here | |
| `cleanup_table` | removes exactly what was planned, table by table | **destroys** |
| `report` | what happened; red when anything failed | reads |

Trigger it once to look: the plan is in the log of `plan_cleanup`, with its digest. Trigger it again with
**Confirm** and that digest to remove exactly what you saw. With **Confirm** alone, as much as the form's bounds say
is removed, and a larger plan waits for an approval under *Required Actions*.
"""

from __future__ import annotations

from airflow.sdk import TriggerRule
from omnigraph_airflow.manual import ASKED_IN_FORM, manual_dag
from omnigraph_airflow.operators.approve import ApproveCleanupOperator
from omnigraph_airflow.operators.cleanup import CleanupTablesOperator, PlanCleanupOperator
from omnigraph_airflow.operators.lots import LOT_LABEL
from omnigraph_airflow.operators.recovery import CheckRecoveryOperator
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.params import (
    bound_params,
    confirm_param,
    digest_param,
    graph_param,
    keep_param,
    older_than_param,
    other_policy_params,
    tables_param,
)

PARAMS = {
    "graph": graph_param(),
    "tables": tables_param(),
    "keep": keep_param(),
    "older_than": older_than_param(),
    "confirm": confirm_param(),
    **bound_params("versions", 1000),
    "digest": digest_param(),
    **other_policy_params(),
}


@manual_dag(dag_id="omnigraph_cleanup", params=PARAMS, doc_md=__doc__)
def omnigraph_cleanup() -> None:
    """Plan, ask, remove."""
    recovery = CheckRecoveryOperator(task_id="check_recovery")
    plan = PlanCleanupOperator(
        task_id="plan_cleanup",
        after=recovery.output,
        keep="{{ params.keep }}",
        older_than="{{ params.older_than }}",
        expiry="{{ params.expiry }}",
        between_pins="{{ params.between_pins }}",
        tables="{{ params.tables }}",
        digest="{{ params.digest }}",
    )
    approve = ApproveCleanupOperator(
        task_id="approve_cleanup",
        plan=plan.kept,
        within={"count": "{{ params.confirm_versions }}", "size": "{{ params.confirm_size }}"},
        **ASKED_IN_FORM,
    )
    cleanup = CleanupTablesOperator.partial(
        task_id="cleanup_table",
        map_index_template=LOT_LABEL,
        plan=plan.kept,
        approval="approve_cleanup",
    ).expand(lot=plan.output)
    report = ReportOperator(task_id="report", trigger_rule=TriggerRule.ALL_DONE)

    approve >> cleanup >> report


dag = omnigraph_cleanup()

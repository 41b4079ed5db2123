"""# Remove files that nothing in a graph refers to

| Task | What it does | Effect |
|---|---|---|
| `check_recovery` | finishes what a crashed optimize left, or stops | publishes what was written |
| `plan_orphans` | lists the store and what no version, branch or tag refers to | reads |
| `approve_orphans` | a run without **Confirm** stops here | |
| `remove_orphans` | deletes, or moves to quarantine, exactly what was planned and is still an orphan | **destroys** |
| `report` | what happened; red when anything failed | reads |

Trigger it once to look: the plan is in the log of `plan_orphans`, with its digest. Trigger it again with
**Confirm** and that digest to remove exactly what you saw. With **Confirm** alone, as much as the form's bounds say is
removed, and a larger plan waits for an approval under *Required Actions*. With **Quarantine** the plan moves the files
below `__maintenance/quarantine/` of the graph, and `omnigraph-ops orphans --restore` brings them back; without it, the
plan deletes them for good. Which of the two is part of the plan and of its digest.
"""

from __future__ import annotations

from airflow.sdk import Param, TriggerRule
from omnigraph_airflow.manual import ASKED_IN_FORM, manual_dag
from omnigraph_airflow.operators.approve import ApproveOrphansOperator
from omnigraph_airflow.operators.orphans import PlanOrphansOperator, RemoveOrphansOperator
from omnigraph_airflow.operators.recovery import CheckRecoveryOperator
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.params import bound_params, confirm_param, digest_param, graph_param

from omnigraph_ops.durations import DURATION

PARAMS = {
    "graph": graph_param(),
    "older_than": Param(
        "7d",
        type="string",
        pattern=DURATION,
        title="Only files older than",
        description_md="As in `12h`, `7d`; at least an hour. A younger file may belong to a write at work.",
    ),
    "confirm": confirm_param(),
    **bound_params("files", 10_000),
    "digest": digest_param(),
    "quarantine": Param(
        True,
        type="boolean",
        title="Quarantine",
        description_md="Plan to move the files aside instead of deleting them. With a digest, its plan says which.",
    ),
}


@manual_dag(dag_id="omnigraph_orphans", params=PARAMS, doc_md=__doc__)
def omnigraph_orphans() -> None:
    """Plan, ask, remove."""
    recovery = CheckRecoveryOperator(task_id="check_recovery")
    plan = PlanOrphansOperator(
        task_id="plan_orphans",
        older_than="{{ params.older_than }}",
        quarantine="{{ params.quarantine }}",
        digest="{{ params.digest }}",
    )
    approve = ApproveOrphansOperator(
        task_id="approve_orphans",
        plan=plan.output,
        within={"count": "{{ params.confirm_files }}", "size": "{{ params.confirm_size }}"},
        **ASKED_IN_FORM,
    )
    remove = RemoveOrphansOperator(
        task_id="remove_orphans",
        plan=plan.output,
        approval="approve_orphans",
    )
    report = ReportOperator(task_id="report", trigger_rule=TriggerRule.ALL_DONE)

    recovery >> plan
    approve >> remove >> report


dag = omnigraph_orphans()

"""# Delete rows that are older than a policy allows

| Task | What it does | Effect |
|---|---|---|
| `check_recovery` | finishes what a crashed optimize left, or stops | publishes what was written |
| `plan_row_retention` | counts the rows that expire, and the edges that go with them | reads |
| `approve_row_retention` | a run without **Confirm** stops here | |
| `expire_rows` | deletes exactly what was planned and is still that old | **deletes rows** |
| `report` | what happened; red when anything failed | reads |

Trigger it once to look: the plan is in the log of `plan_row_retention`, with its digest. Trigger it again with
**Confirm** and that digest to delete exactly what you saw; with **Confirm** alone the run waits for an approval under
*Required Actions*. On a graph the engine deletes: `OMNIGRAPH_OPS_ENGINE` names its binary on the workers. The bytes
come back with optimize and cleanup.
"""

from __future__ import annotations

from airflow.sdk import Param, TriggerRule
from omnigraph_airflow.manual import ASKED_IN_FORM, manual_dag
from omnigraph_airflow.operators.recovery import CheckRecoveryOperator
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.operators.retention import (
    ApproveRowRetentionOperator,
    ExpireRowsOperator,
    PlanRowRetentionOperator,
)
from omnigraph_airflow.params import confirm_param, digest_param, graph_param

PARAMS = {
    "graph": graph_param(),
    "policies": Param(
        [],
        type="array",
        items={"type": "object"},
        title="Policies",
        description_md='As in `[{"table": "node:Event", "property": "happened_at", "older_than": "90d"}]`; an integer '
        'property also needs `"unit": "s"` or `"ms"`.',
    ),
    "max_share": Param(
        0.5,
        type="number",
        exclusiveMinimum=0,
        maximum=1,
        title="At most this share of a table",
        description_md="A table that would lose a larger share of its rows is refused.",
    ),
    "branch": Param(None, type=["null", "string"], title="Branch", description_md="Empty: main."),
    "confirm": confirm_param(alone="the run waits"),
    "digest": digest_param(),
}


@manual_dag(dag_id="omnigraph_row_retention", params=PARAMS, doc_md=__doc__)
def omnigraph_row_retention() -> None:
    """Plan, ask, delete."""
    recovery = CheckRecoveryOperator(task_id="check_recovery")
    plan = PlanRowRetentionOperator(
        task_id="plan_row_retention",
        policies="{{ params.policies }}",
        max_share="{{ params.max_share }}",
        branch="{{ params.branch }}",
        digest="{{ params.digest }}",
    )
    approve = ApproveRowRetentionOperator(
        task_id="approve_row_retention",
        plan=plan.output,
        **ASKED_IN_FORM,
    )
    expire = ExpireRowsOperator(task_id="expire_rows", plan=plan.output, approval="approve_row_retention")
    report = ReportOperator(task_id="report", trigger_rule=TriggerRule.ALL_DONE)

    recovery >> plan
    approve >> expire >> report


dag = omnigraph_row_retention()

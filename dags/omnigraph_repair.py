"""# Repair the drifted tables of a graph

| Task | What it does | Effect |
|---|---|---|
| `check_recovery` | finishes what a crashed optimize left, or stops | publishes what was written |
| `preview_repair` | classifies drifted tables and gathers evidence | reads |
| `approve_repair` | a run without **Confirm** stops here | |
| `apply_repair` | publishes existing versions, rewrites nothing | publishes |
| `report` | what happened; red when anything failed | reads |

Trigger it once to look: the preview is in the log of `preview_repair`, with its digest. Trigger it again with
**Confirm** and that digest to publish exactly what you saw. With **Confirm** alone, drift that is verified maintenance
is published, and any other waits for an approval under *Required Actions*.
"""

from __future__ import annotations

from airflow.sdk import Param, TriggerRule
from omnigraph_airflow.manual import ASKED_IN_FORM, manual_dag
from omnigraph_airflow.operators.approve import REPAIR_FORM, ApproveRepairOperator
from omnigraph_airflow.operators.recovery import CheckRecoveryOperator
from omnigraph_airflow.operators.repair import ApplyRepairOperator, PreviewRepairOperator
from omnigraph_airflow.operators.report import ReportOperator
from omnigraph_airflow.params import confirm_param, digest_param, evidence_param, graph_param, tables_param

PARAMS = {
    "graph": graph_param(),
    "tables": tables_param(),
    "evidence": evidence_param(),
    "confirm": confirm_param(alone="verified maintenance is published, and everything else waits"),
    "digest": digest_param(),
    "force": Param(
        False,
        type="boolean",
        title="Force",
        description_md="Where the switch of the approval starts: whether it also publishes drift that is **not** "
        "verified maintenance.",
    ),
}


@manual_dag(dag_id="omnigraph_repair", params=PARAMS, doc_md=__doc__)
def omnigraph_repair() -> None:
    """Preview, ask, publish."""
    recovery = CheckRecoveryOperator(task_id="check_recovery")
    preview = PreviewRepairOperator(
        task_id="preview_repair",
        tables="{{ params.tables }}",
        evidence="{{ params.evidence }}",
        digest="{{ params.digest }}",
    )
    approve = ApproveRepairOperator(
        task_id="approve_repair",
        params=REPAIR_FORM,
        plan=preview.output,
        force="{{ params.force }}",
        **ASKED_IN_FORM,
    )
    apply = ApplyRepairOperator(task_id="apply_repair", preview=preview.output, approval="approve_repair")
    report = ReportOperator(task_id="report", trigger_rule=TriggerRule.ALL_DONE)

    recovery >> preview
    approve >> apply >> report


dag = omnigraph_repair()

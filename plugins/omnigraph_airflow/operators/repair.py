"""Repair: preview the drift, publish what was approved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph_airflow import decisions
from omnigraph_airflow.operators.approve import DECISION
from omnigraph_airflow.operators.base import OmnigraphOperator, to_xcom
from omnigraph_ops import serde
from omnigraph_ops.errors import ApprovalMissing
from omnigraph_ops.models import RepairPreview

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph


class PreviewRepairOperator(OmnigraphOperator):
    """Classifies the drift of every table; writes nothing."""

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.repair import preview_repair

        preview = preview_repair(graph)
        for row in preview.drifted:
            self.log.info(
                "%s: %d -> %d, %s",
                row.table_key,
                row.manifest_version,
                row.lance_head_version,
                row.classification,
            )
        return to_xcom(preview)


class ApplyRepairOperator(OmnigraphOperator):
    """Publishes the heads that were approved, after checking the approval itself.

    :param preview: JSON of the preview that was shown (templated).
    :param approval: id of the approval task; its decision also says whether to force.
    """

    template_fields: Sequence[str] = ("graph", "preview")

    def __init__(self, *, preview: Any, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.preview = preview
        self.approval = approval

    def run_stage(self, graph: Graph, context: Context) -> Any:
        preview = serde.from_json(RepairPreview, self.preview)
        decision = decisions.decision_of(context["ti"].xcom_pull(task_ids=self.approval, key=DECISION))
        why = decisions.refusal(decision, preview.digest)
        if decision is None or why:
            raise ApprovalMissing(f"repair refused: {why}")
        from omnigraph_ops.repair import apply_repair

        return to_xcom(apply_repair(graph, preview, force=decision.force))

"""Repair: preview the drift, publish what was approved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.ask import approved
from omnigraph_airflow.operators.base import (
    OmnigraphOperator,
    approved_plan,
    keep_plan,
    kept_plan,
    note,
    to_xcom,
)
from omnigraph_ops import render
from omnigraph_ops.audit_log import AuditEvent
from omnigraph_ops.models import EvidenceTier, RepairAction, RepairPreview, RepairReport

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph


class PreviewRepairOperator(OmnigraphOperator):
    """Classifies the drift of every table and gathers the evidence; returns the name of the kept preview.

    :param tables: only these table keys (templated).
    :param evidence: `counts`, `sample` or `full`: how much to read (templated).
    :param digest: use the kept preview of this digest instead of making one (templated).
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "tables", "evidence", "digest")

    def __init__(
        self,
        *,
        tables: Sequence[str] | str | None = None,
        evidence: str = EvidenceTier.COUNTS,
        digest: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.evidence = evidence
        self.digest = digest

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.repair import preview_repair

        preview = approved_plan(graph, RepairPreview, self.digest) or preview_repair(
            graph, tables=tuple(self.tables or ()), evidence=EvidenceTier(self.evidence)
        )
        report = RepairReport(uri=preview.uri, confirm=False, force=False, manifest_version=None, tables=preview.rows)
        for line in render.repair_text(report).splitlines():
            self.log.info(line)
        return keep_plan(graph, preview)


class ApplyRepairOperator(OmnigraphOperator):
    """Publishes the heads that were approved, after checking the approval itself.

    :param preview: name of the kept preview that was shown (templated).
    :param approval: id of the approval task; its decision also says whether to force.
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "preview")

    def __init__(self, *, preview: Any, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.preview = preview
        self.approval = approval

    def run_stage(self, graph: Graph, context: Context) -> Any:
        preview = kept_plan(graph, RepairPreview, self.preview)
        decision = approved(context, self.approval, preview.digest, what="repair")
        from omnigraph_ops.repair import apply_repair

        report = apply_repair(graph, preview, force=decision.force)
        done = sum(row.action in {RepairAction.HEALED, RepairAction.FORCED} for row in report.tables)
        note(context, graph.storage, decision, AuditEvent.APPLIED, verb="repair", detail=f"{done} tables published")
        return to_xcom(report)

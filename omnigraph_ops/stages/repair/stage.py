"""Repair as a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_ops.models import RepairAction, RepairPreview, RepairReport
from omnigraph_ops.models.outcome import Outcome, TableOutcome
from omnigraph_ops.stages.repair.request import RepairRequest
from omnigraph_ops.stages.repair.view import plan_view, question, report_view
from omnigraph_ops.stages.stage import Effect, PlannedStage, Switch, TaskIds, Tell
from omnigraph_ops.views.details import repair_detail
from omnigraph_ops.views.view import Question, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

_PUBLISHED = frozenset({RepairAction.HEALED, RepairAction.FORCED})


class Repair(PlannedStage[RepairRequest, RepairPreview, RepairReport]):
    """Publishes the newest versions of drifted tables as they are."""

    name = "repair"
    effect = Effect.PUBLISHES
    summary = "Preview drifted tables, or publish their newest versions. Rewrites no data."
    does = "publishes the heads of drifted tables"
    unharmed = "nothing was published"
    request = RepairRequest
    plan_type = RepairPreview
    report_type = RepairReport
    tasks = TaskIds(plan="preview_repair", approve="approve_repair", apply="apply_repair")
    dag_id = "omnigraph_repair"
    switch = Switch(
        title="Also publish drift that is not verified maintenance",
        help="With --confirm: publish suspicious and unverifiable drift too.",
    )

    def plan(self, graph: Graph, request: RepairRequest, tell: Tell) -> RepairPreview:
        """Which tables are drifted, with evidence. Reads."""
        from omnigraph_ops.stages.repair.run import preview_repair

        return preview_repair(graph, tables=request.tables, evidence=request.evidence)

    def apply(self, graph: Graph, plan: RepairPreview, tell: Tell, *, force: bool = False) -> RepairReport:
        """Publish in one graph commit. Publishes."""
        from omnigraph_ops.stages.repair.run import apply_repair

        return apply_repair(graph, plan, force=force)

    def preview(self, plan: RepairPreview) -> RepairReport:
        """The engine prints a preview as a report that did nothing. Pure."""
        return RepairReport(
            uri=plan.uri, confirm=False, force=False, manifest_version=None, tables=plan.rows, digest=plan.digest
        )

    def nothing_to_do(self, plan: RepairPreview) -> str | None:
        return None if plan.drifted else "no table has drifted: nothing to repair"

    def view(self, value: RepairPreview | RepairReport) -> View:
        return plan_view(value) if isinstance(value, RepairPreview) else report_view(value)

    def question(self, plan: RepairPreview, *, force: bool = False) -> Question:
        return question(plan, force=force)

    def outcome(self, report: RepairReport) -> Outcome:
        refused = len(report.refused)
        return Outcome(
            stage=self.name,
            detail=repair_detail(report),
            applied=report.manifest_version is not None,
            changed=any(row.action in _PUBLISHED for row in report.tables),
            problem=f"repair refused {refused} suspicious or unverifiable table(s), they are as they were; review the "
            "preview and run again with --force --confirm only if publishing that drift is intended"
            if refused
            else "",
            tables=tuple(
                TableOutcome(table_key=row.table_key, changed=row.action in _PUBLISHED, error=row.error)
                for row in report.tables
            ),
        )

"""Repair as a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.repair import Classification, RepairPreview, RepairReport, RepairRow
from omnigraph_ops.models.runs import Outcome
from omnigraph_ops.outcomes.of_reports import of_repair
from omnigraph_ops.progress import Progress
from omnigraph_ops.stages.repair.request import RepairRequest
from omnigraph_ops.stages.repair.view import plan_view, question, report_view
from omnigraph_ops.stages.stage import Effect, FormField, PlannedStage, Submit, Switch, TaskIds
from omnigraph_ops.views.view import Question, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class Repair(PlannedStage[RepairRequest, RepairPreview, RepairReport]):
    """Publishes the newest versions of drifted tables as they are."""

    name = "repair"
    effect = Effect.PUBLISHES
    summary = "Preview drifted tables, or publish their newest versions. Rewrites no data."
    does = "publishes the heads of drifted tables"
    unharmed = "nothing was published"
    spark_help = "Compare the rows and values of `--evidence sample` and `full` on this Spark master."
    request = RepairRequest
    plan_type = RepairPreview
    report_type = RepairReport
    tasks = TaskIds(plan="preview_repair", approve="approve_repair", apply="apply_repair")
    dag_id = "omnigraph_repair"
    switch = Switch(
        title="Also publish drift that is not verified maintenance",
        help="With --confirm: publish suspicious and unverifiable drift too.",
    )

    routine = "verified maintenance is published"
    form = (FormField(name="evidence", title="Evidence of a repair", default="sample"),)
    button = "Repair drift"

    def plan(self, graph: Graph, request: RepairRequest, tell: Progress) -> RepairPreview:
        """Which tables are drifted, with evidence. Reads."""
        from omnigraph_ops.stages.repair.run import preview_repair

        return preview_repair(graph, tables=request.tables, evidence=request.evidence)

    def plan_on_spark(self, graph: Graph, request: RepairRequest, tell: Progress, submit: Submit) -> RepairPreview:
        """The same, rows and values of tables above the threshold compared by the job `evidence`. Reads."""
        from omnigraph_ops.stages.repair.comparison import OnSpark
        from omnigraph_ops.stages.repair.run import preview_repair

        least = graph.settings.spark_from(self.name) or 0
        comparison = OnSpark(submit=submit, check=graph.run.check, tier=request.evidence, from_bytes=least)
        return preview_repair(graph, tables=request.tables, evidence=request.evidence, comparison=comparison)

    def apply(self, graph: Graph, plan: RepairPreview, tell: Progress, *, force: bool = False) -> RepairReport:
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

    def is_routine(self, plan: RepairPreview) -> bool:
        """Verified maintenance only, and nothing in the evidence speaks against it. Pure."""
        return all(_nothing_against(row) for row in plan.drifted)

    def is_carried_out(self, plan: RepairPreview, report: RepairReport) -> bool:
        """A repair publishes all or nothing, and refuses a preview whose tables are published. Pure."""
        return report.digest == plan.digest and report.manifest_version is not None

    def attention(self, plan: RepairPreview, drift: Sequence[DriftFinding] | None) -> tuple[str, ...]:
        return tuple(_drifted(plan, drift))

    def failures(self, report: RepairReport) -> tuple[str, ...]:
        """None: a table that cannot be judged is refused, and stays as it is. Pure."""
        return ()

    def view(self, value: RepairPreview | RepairReport) -> View:
        return plan_view(value) if isinstance(value, RepairPreview) else report_view(value)

    def question(self, plan: RepairPreview, *, force: bool = False) -> Question:
        return question(plan, force=force)

    def outcome(self, report: RepairReport) -> Outcome:
        return of_repair(report)


def _nothing_against(row: RepairRow) -> bool:
    if row.classification is not Classification.VERIFIED_MAINTENANCE or row.error is not None or not row.readable:
        return False
    return row.evidence is None or (row.evidence.content_equal is not False and row.evidence.problem is None)


def _drifted(plan: RepairPreview, drift: Sequence[DriftFinding] | None) -> Iterator[str]:
    """What is drifted now, with what its preview called it; where nobody could look, what was. Pure."""
    previewed = {row.table_key: row for row in plan.drifted}
    if drift is None:
        for key, row in previewed.items():
            yield f"{key} was drifted when it was previewed ({row.manifest_version} → {row.lance_head_version})"
        return
    for table in drift:
        known = previewed.get(table.table_key)
        called = f", {known.classification}" if known and known.lance_head_version == table.lance_head_version else ""
        yield f"{table.table_key} is drifted ({table.manifest_version} → {table.lance_head_version}{called})"

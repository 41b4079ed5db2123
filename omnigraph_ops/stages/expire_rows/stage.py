"""Row expiry as a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph_ops.models.cleanup import RowBounds, RowRetentionPlan, RowRetentionReport
from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.runs import Outcome
from omnigraph_ops.outcomes.of_reports import of_rows
from omnigraph_ops.progress import Progress
from omnigraph_ops.stages.expire_rows.request import ExpireRowsRequest
from omnigraph_ops.stages.expire_rows.view import plan_view, question, report_view
from omnigraph_ops.stages.stage import Effect, FormField, PlannedStage, Submit, TaskIds
from omnigraph_ops.views.view import Question, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class ExpireRows(PlannedStage[ExpireRowsRequest, RowRetentionPlan, RowRetentionReport]):
    """Deletes rows that are older than a policy allows."""

    name = "expire-rows"
    effect = Effect.DESTROYS
    summary = "Delete rows that are older than a policy allows. Without --confirm it prints the plan."
    unharmed = "nothing was deleted"
    request = ExpireRowsRequest
    plan_type = RowRetentionPlan
    report_type = RowRetentionReport
    tasks = TaskIds(plan="plan_row_retention", approve="approve_row_retention", apply="expire_rows")
    dag_id = "omnigraph_row_retention"
    uses_engine = True
    applies_on_spark = True
    keeps_previews = True

    spark_help = "Delete in tasks on this Spark master; only of plain Lance, on a graph the engine deletes."
    about = (
        "On a graph the engine deletes: `OMNIGRAPH_OPS_ENGINE` names its binary on the workers. The bytes come back "
        "with optimize and cleanup."
    )
    form = (
        FormField(name="max_share", title="At most this share of a table"),
        FormField(name="max_rows", title="At most so many rows of a table"),
    )

    def plan(self, graph: Graph, request: ExpireRowsRequest, tell: Progress) -> RowRetentionPlan:
        """Which rows expire; with an engine named, also for what that release can delete. Reads."""
        from omnigraph_ops.stages.expire_rows.apply import engine_of
        from omnigraph_ops.stages.expire_rows.plan import plan_row_retention

        return plan_row_retention(
            graph,
            request.row_policies,
            bounds=RowBounds(max_share=request.max_share, max_rows=request.max_rows),
            branch=request.branch_name,
            engine=engine_of(graph, None) if graph.settings.engine else None,
        )

    def apply(self, graph: Graph, plan: RowRetentionPlan, tell: Progress, *, force: bool = False) -> RowRetentionReport:
        """Delete the planned rows that are still below the cuts. Destroys rows."""
        from omnigraph_ops.stages.expire_rows.apply import engine_of, expire_rows

        return expire_rows(graph, plan, engine=engine_of(graph, None), progress=tell)

    def apply_on_spark(
        self, graph: Graph, plan: RowRetentionPlan, tell: Progress, submit: Submit, *, force: bool = False
    ) -> RowRetentionReport:
        """The same; on plain Lance the job `expire` finds the rows of tables above the threshold. Destroys rows."""
        from omnigraph_ops.stages.expire_rows.apply import SubmittedDelete, engine_of, expire_rows

        delete = SubmittedDelete(
            submit=submit,
            root=graph.uri,
            storage=graph.storage,
            check=graph.run.check,
            from_rows=graph.settings.spark_from(self.name) or 0,
        )
        return expire_rows(graph, plan, engine=engine_of(graph, None), delete=delete, progress=tell)

    def check_ready(self, graph: Graph) -> None:
        from omnigraph_ops.stages.expire_rows.apply import engine_of

        engine_of(graph, None)

    def nothing_to_do(self, plan: RowRetentionPlan) -> str | None:
        return None if plan.total_rows else "no rows that are older than the policies and inside the bounds"

    def attention(self, plan: RowRetentionPlan, drift: Sequence[DriftFinding] | None) -> list[str]:
        return [f"{table.table_key} keeps its expired rows: {table.refused}" for table in plan.tables if table.refused]

    def size(self, plan: RowRetentionPlan) -> tuple[int, int]:
        return plan.total_rows, 0

    def view(self, value: RowRetentionPlan | RowRetentionReport) -> View:
        return plan_view(value) if isinstance(value, RowRetentionPlan) else report_view(value)

    def question(self, plan: RowRetentionPlan, *, force: bool = False) -> Question:
        return question(plan)

    def outcome(self, report: RowRetentionReport) -> Outcome:
        return of_rows(report)

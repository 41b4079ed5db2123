"""Optimize as a stage, and its plan as one that only reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.models.optimize import OptimizePlan, OptimizeReport, TableStats
from omnigraph_ops.progress import Progress
from omnigraph_ops.stages.optimize.request import OptimizeRequest, PlanRequest
from omnigraph_ops.stages.optimize.view import plan_view, report_view
from omnigraph_ops.stages.stage import WRITERS_REFUSED, Effect, FormField, RunStage, Submit, TaskIds
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class PlanOptimize(RunStage[PlanRequest, OptimizePlan]):
    """Looks at every table and decides what optimize would do."""

    name = "plan"
    effect = Effect.READS
    summary = "Show what optimize would do. Writes nothing."
    request = PlanRequest

    def settings(self, request: PlanRequest, settings: Settings) -> Settings:
        return request.settings(settings)

    def run(self, graph: Graph, request: PlanRequest, tell: Progress) -> OptimizePlan:
        """Plan. Reads."""
        from omnigraph_ops.stages.optimize.budget import budget_of
        from omnigraph_ops.stages.optimize.observe import left_on_branches
        from omnigraph_ops.stages.optimize.run import plan_optimize

        plan = plan_optimize(graph, tables=request.tables, budget=budget_of(request))
        return plan if request.tables else replace(plan, left=left_on_branches(graph))

    def view(self, value: OptimizePlan) -> View:
        return plan_view(value)


class OptimizeStage(RunStage[OptimizeRequest, OptimizeReport]):
    """Folds indexes, rewrites small fragments and publishes."""

    name = "optimize"
    effect = Effect.WRITES
    summary = "Fold indexes, rewrite small fragments and publish. Rows never change."
    request = OptimizeRequest
    fence_help = f"{WRITERS_REFUSED} (implies --exclusive)."
    spark_help = "Submit rewrites above OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES to this Spark master."
    tasks = TaskIds(plan="plan_optimize")
    form = (
        FormField(name="max_bytes", title="Write at most"),
        FormField(name="max_tables", title="At most so many tables"),
        FormField(name="deadline", title="Start no table later than"),
        FormField(name="auto", title="Only tables past a threshold"),
    )

    def settings(self, request: OptimizeRequest, settings: Settings) -> Settings:
        return request.settings(settings)

    def run(self, graph: Graph, request: OptimizeRequest, tell: Progress) -> OptimizeReport:
        """Optimize every table that the request names, then the internal tables. Writes."""
        from omnigraph_ops.stages.optimize.budget import budget_of
        from omnigraph_ops.stages.optimize.run import optimize_all

        return optimize_all(graph, tables=request.tables, budget=budget_of(request), progress=tell)

    def run_on_spark(self, graph: Graph, request: OptimizeRequest, tell: Progress, submit: Submit) -> OptimizeReport:
        """The same, the rewrites of heavy tables submitted. Writes."""
        from omnigraph_ops.stages.optimize.budget import budget_of
        from omnigraph_ops.stages.optimize.run import optimize_all

        def rewrite(table_key: str) -> TableStats:
            arguments = ("--graph", graph.target, "--table", table_key, "--request", request.said)
            (stats,) = submit("rewrite", arguments, OptimizeReport, graph.run.check).tables
            return stats

        return optimize_all(graph, tables=request.tables, budget=budget_of(request), progress=tell, heavy=rewrite)

    def view(self, value: OptimizeReport) -> View:
        return report_view(value)

    def problem(self, report: OptimizeReport) -> str:
        if not report.failed:
            return ""
        keys = ", ".join(t.table_key for t in report.failed)
        return (
            f"optimize failed for {len(report.failed)} table(s): {keys}; the others are done; "
            "run `omnigraph-ops check`, then optimize again"
        )

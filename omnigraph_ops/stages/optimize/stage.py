"""Optimize as a stage, and its plan as one that only reads; their views: the engine's words, ours beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import POLICY, BudgetTerms, RewriteTerms
from omnigraph_ops.models.optimize import (
    SKIP_TEXTS,
    BranchTable,
    OptimizeDecision,
    OptimizePlan,
    OptimizeReport,
    PendingIndex,
    SkipReason,
    TablePlan,
    TableStats,
)
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.progress import Progress
from omnigraph_ops.quantities import count, human_bytes
from omnigraph_ops.requests import Option, TablesRequest
from omnigraph_ops.stages.stage import WRITERS_REFUSED, Effect, FormField, RunStage, Submit, TaskIds, not_read
from omnigraph_ops.views.markdown import FailureRow, by_cause, causes, some
from omnigraph_ops.views.view import Section, View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

_MOST_LEFT = 200


class PlanRequest(RewriteTerms, BudgetTerms, TablesRequest):
    """Which tables are optimized, how far, and within which bounds."""

    defer_index_remap: Annotated[bool, Option(section=POLICY, form=False)] = False
    """Plain Lance without stable row ids: do not rewrite indexes during compaction; Lance records where rows moved."""

    def settings(self, settings: Settings) -> Settings:
        """The settings with what this run says otherwise: what it leaves out, or off, is the deployment's. Pure."""
        said = {name: value for name, value in self if name in type(settings).model_fields and value}
        return settings.model_copy(update=said)


class OptimizeRequest(PlanRequest):
    """Fold indexes, rewrite small fragments and publish."""

    exclusive: Annotated[bool, Option(form=False)] = False
    """Nobody else publishes meanwhile: compact the internal tables too."""


class PlanOptimize(RunStage[PlanRequest, OptimizePlan]):
    """Looks at every table and decides what optimize would do."""

    name = "plan"
    effect = Effect.READS
    summary = "Show what optimize would do. Writes nothing."
    examples = ("g.omni", "s3://bucket/g.omni --table node:Person")
    request = PlanRequest

    def settings(self, request: PlanRequest, settings: Settings) -> Settings:
        return request.settings(settings)

    def run(self, graph: Graph, request: PlanRequest, tell: Progress, submit: Submit | None = None) -> OptimizePlan:
        """Plan. Reads."""
        from omnigraph_ops.stages.optimize.observe import left_on_branches
        from omnigraph_ops.stages.optimize.run import plan_optimize

        plan = plan_optimize(graph, tables=request.tables, budget=request)
        return plan if request.tables else replace(plan, left=left_on_branches(graph))

    def view(self, value: OptimizePlan) -> View:
        return plan_view(value)

    def problem(self, report: OptimizePlan) -> str:
        return not_read([t.table_key for t in report.tables if t.decision is OptimizeDecision.FAILED])


class OptimizeStage(RunStage[OptimizeRequest, OptimizeReport]):
    """Folds indexes, rewrites small fragments and publishes."""

    name = "optimize"
    effect = Effect.WRITES
    summary = "Fold indexes, rewrite small fragments and publish. Rows never change."
    examples = ("g.omni", "s3://bucket/g.omni --max-bytes 20GiB --spark yarn")
    request = OptimizeRequest
    plan_type = OptimizePlan
    report_type = OptimizeReport
    fence_help = f"{WRITERS_REFUSED} (implies --exclusive)."
    spark_help = "Submit rewrites above OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES to this Spark master."
    tasks = TaskIds(plan="plan_optimize", others=("optimize_table", "submit_rewrite", "summarize"))
    form = (
        FormField(name="max_bytes", title="Write at most"),
        FormField(name="max_tables", title="At most so many tables"),
        FormField(name="deadline", title="Start no table later than"),
        FormField(name="auto", title="Only tables past a threshold"),
    )

    def settings(self, request: OptimizeRequest, settings: Settings) -> Settings:
        return request.settings(settings)

    def run(
        self, graph: Graph, request: OptimizeRequest, tell: Progress, submit: Submit | None = None
    ) -> OptimizeReport:
        """Optimize every table that the request names, then the internal tables. Writes.

        The rewrites of heavy tables are submitted as the job `rewrite`.
        """
        from omnigraph_ops.stages.optimize.run import optimize_all

        heavy = None if submit is None else partial(_rewritten, graph, request, submit)
        return optimize_all(graph, tables=request.tables, budget=request, progress=tell, heavy=heavy)

    def told(self, graph: Graph, unit: Unit) -> OptimizeReport:
        from omnigraph_ops.stages.optimize.units import optimized

        return OptimizeReport.of(graph.uri, (optimized(graph, unit),))

    def view(self, value: OptimizeReport) -> View:
        return report_view(value)

    def problem(self, report: OptimizeReport) -> str:
        if not report.failed:
            return ""
        keys = some([t.table_key for t in report.failed])
        others = "the others are done; " if any(t.committed and not t.error for t in report.tables) else ""
        return (
            f"optimize failed for {count(len(report.failed), 'table')}: {keys}; {others}"
            "do what the error of each in the report says, or `omnigraph-ops check` where it says nothing to do; "
            "then optimize again"
        )


def _rewritten(graph: Graph, request: OptimizeRequest, submit: Submit, table_key: str) -> TableStats:
    """Rewrite one table by the job. Writes."""
    arguments = ("--graph", graph.target, "--table", table_key, "--request", request.said)
    (stats,) = submit("rewrite", arguments, OptimizeReport, graph.run.check).tables
    return stats


def plan_view(plan: OptimizePlan) -> View:
    """What each table needs, and why. Pure."""
    waiting = f", {len(plan.deferred)} deferred" if plan.deferred else ""
    shared = _shared((t.table_key, t.error) for t in plan.tables)
    frozen = _shared((t.table_key, t.reason) for t in plan.tables if t.skipped is SkipReason.FROZEN)
    told = {key for _, key, _ in (*shared, *frozen)}
    rows = tuple(
        (t.table_key, t.decision.value, _planned(t), _pending(t.pending_indexes))
        for t in plan.tables
        if t.table_key not in told
    )
    return View.of(
        f"plan {plan.uri} — {count(len(plan.tables), 'table')}, {len(plan.productive())} to optimize{waiting}",
        Section.table("Tables", ("Table", "Decision", "What and why", "Indexes"), rows),
        _together("Frozen", frozen),
        _together("Failed for a shared cause", shared),
        Section.table(
            "Left as they are: optimize works on main",
            ("Branch", "Table", "Fragments", "Rows", "Own files", "Own size", "Problem"),
            map(_left, plan.left),
            most=_MOST_LEFT,
        ),
    )


def _shared(reasons: Iterable[tuple[str, str | None]]) -> list[FailureRow]:
    """The tables of which others were left for the same cause. Pure."""
    found = causes(("", key, reason) for key, reason in reasons if reason is not None)
    return [failure for those in found if len(those) > 1 for failure in those]


def _together(what: str, shared: Sequence[FailureRow]) -> Section:
    """A sentence for each cause that several tables share. Pure."""
    title = f"{what} ({count(len(shared), 'table')})"
    return Section(title=title, lines=tuple(by_cause(shared)))


def _left(table: BranchTable) -> tuple[str, ...]:
    if table.error is not None:
        return (table.branch, *[""] * 5, table.error)
    sizes = (f"{table.fragments:,}", f"{table.rows:,}", f"{table.own_files:,}", human_bytes(table.own_bytes))
    return (table.branch, table.table_key, *sizes, "")


def _planned(table: TablePlan) -> str:
    if table.decision is OptimizeDecision.OPTIMIZE:
        frags = f"frags {table.fragments} → {table.fragments_after}"
        return f"{frags}, about {human_bytes(table.cost_bytes)}, {table.executor.value}: {table.reason}"
    if table.decision is OptimizeDecision.FAILED:
        return table.error or table.reason
    if table.decision in {OptimizeDecision.SKIPPED, OptimizeDecision.DEFERRED}:
        return table.reason
    return "no-op" + table.reason.removeprefix("nothing to do")


def report_view(report: OptimizeReport) -> View:
    """What was done to each table, and what it cost. Pure."""
    shared = _shared((t.table_key, t.error) for t in report.tables)
    told = {key for _, key, _ in shared}
    rows = tuple(
        (t.table_key, done_text(t), _pending(t.pending_indexes)) for t in report.tables if t.table_key not in told
    )
    return View.of(
        f"optimize {report.uri} — {count(len(report.tables), 'table')}",
        Section.table("Tables", ("Table", "Done", "Indexes"), rows),
        _together("Failed for a shared cause", shared),
        facts=(("In all", written(report)),) if report.bytes_rewritten else (),
    )


def done_text(table: TableStats) -> str:
    """What was done to a table, or why nothing was. Pure."""
    if table.error is not None:
        return f"failed: {table.error}"
    if table.skipped is not None and not table.committed:
        return f"skipped ({SKIP_TEXTS[table.skipped]})"
    if table.committed:
        wrote = f", wrote {human_bytes(table.bytes_rewritten)}" if table.bytes_rewritten else ""
        times = f" ({table.write_amplification:g}x)" if table.write_amplification is not None else ""
        waits = ", rewrite waits for the next budget" if table.rewrite_deferred else ""
        waits += f"; the rest is left ({SKIP_TEXTS[table.skipped]})" if table.skipped is not None else ""
        rewrote = table.fragments_removed or table.fragments_added
        done = f"frags {table.fragments_removed} → {table.fragments_added}" if rewrote else "indexes"
        return f"{done} ✓{wrote}{times}{waits}"
    return "no-op"


def _pending(indexes: Iterable[PendingIndex]) -> str:
    return "; ".join(f"index pending on '{index.column}': {index.reason}" for index in indexes)


def written(report: OptimizeReport) -> str:
    """What the run wrote against what was loaded since the run before, in one sentence. Pure."""
    told = [t for t in report.tables if t.bytes_ingested is not None]
    unknown = sum(t.committed and t.bytes_ingested is None for t in report.tables)
    # A later attempt does not know what one before it planned.
    known = all(t.bytes_planned for t in report.tables if t.bytes_rewritten)
    planned = f", planned {human_bytes(report.bytes_planned)}" if known else ""
    text = f"rewrote {human_bytes(report.bytes_rewritten)} (data and indexes{planned})"
    if told and report.bytes_ingested is not None:
        text += f"; {human_bytes(report.bytes_ingested)} were loaded since the last run"
    if report.write_amplification is not None:
        text += f", write amplification {report.write_amplification:g}"
    return text + (f"; how much was loaded is not known for {count(unknown, 'table')}" if unknown else "")

"""Plans and reports of optimize as views: the engine's words, ours beside them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph_ops.models.optimize import (
    BranchTable,
    OptimizeDecision,
    OptimizePlan,
    OptimizeReport,
    PendingIndex,
    SkipReason,
    TablePlan,
    TableStats,
)
from omnigraph_ops.quantities import human_bytes
from omnigraph_ops.views.details import amplification
from omnigraph_ops.views.view import Section, View, filled

_SKIP_TEXT = {
    SkipReason.BLOBS: "blob columns — Lance compaction unsupported",
    SkipReason.DRIFT: "manifest/head drift — see omnigraph-ops check",
    SkipReason.NOT_EXCLUSIVE: "others may publish — needs OMNIGRAPH_OPS_EXCLUSIVE or --exclusive",
    SkipReason.DEFERRED_BUDGET: "no room in this run's budget — planned again next time",
    SkipReason.BELOW_THRESHOLDS: "below the thresholds of --auto",
    SkipReason.AUTO_OFF: "automatic optimisation is off",
    SkipReason.INTERRUPTED: "the run was stopped first — planned again next time",
    SkipReason.FROZEN: "frozen — omnigraph-ops holds says by whom",
}

_MOST_LEFT = 200


def plan_view(plan: OptimizePlan) -> View:
    """What each table needs, and why. Pure."""
    waiting = f", {len(plan.deferred)} deferred" if plan.deferred else ""
    rows = tuple((t.table_key, t.decision.value, _planned(t), _pending(t.pending_indexes)) for t in plan.tables)
    return View(
        title=f"plan {plan.uri} — {len(plan.tables)} tables, {len(plan.productive())} to optimize{waiting}",
        sections=filled(
            [
                Section(title="Tables", header=("Table", "Decision", "What and why", "Indexes"), rows=rows),
                Section(
                    title="Left as they are: optimize works on main",
                    header=("Branch", "Table", "Fragments", "Rows", "Own files", "Own size", "Problem"),
                    rows=tuple(map(_left, plan.left)),
                    most=_MOST_LEFT,
                ),
            ]
        ),
    )


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
    rows = tuple((table.table_key, _done(table), _pending(table.pending_indexes)) for table in report.tables)
    return View(
        title=f"optimize {report.uri} — {len(report.tables)} tables",
        facts=(("In all", amplification(report)),) if report.bytes_rewritten else (),
        sections=filled([Section(title="Tables", header=("Table", "Done", "Indexes"), rows=rows)]),
    )


def _done(table: TableStats) -> str:
    if table.error is not None:
        return f"failed: {table.error}"
    if table.skipped is not None:
        return f"skipped ({_SKIP_TEXT[table.skipped]})"
    if table.committed:
        wrote = f", wrote {human_bytes(table.bytes_rewritten)}" if table.bytes_rewritten else ""
        times = f" ({table.write_amplification:g}x)" if table.write_amplification is not None else ""
        waits = ", rewrite waits for the next budget" if table.rewrite_deferred else ""
        return f"frags {table.fragments_removed} → {table.fragments_added} ✓{wrote}{times}{waits}"
    return "no-op"


def _pending(indexes: Iterable[PendingIndex]) -> str:
    return "; ".join(f"index pending on '{index.column}': {index.reason}" for index in indexes)

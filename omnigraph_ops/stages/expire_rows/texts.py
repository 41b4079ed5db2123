"""Plans and reports of row retention as text for a terminal, and as the body of an approval. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph_ops.durations import moment
from omnigraph_ops.models.retention import (
    EdgeRows,
    RowPolicy,
    RowRetentionPlan,
    RowRetentionReport,
    TableRowPlan,
    TableRowStats,
)
from omnigraph_ops.views.markdown import code, count, digest_line, human_seconds, no_answer, prose, table

RECLAIM = (
    "The rows are marked as deleted and still stored: `optimize` rewrites their fragments without them, and `cleanup` "
    "removes the versions that hold them, after which no version can bring them back."
)


def plan_text(plan: RowRetentionPlan) -> str:
    """A plan for a terminal, two lines per table. Pure."""
    where = f" branch {plan.branch}" if plan.branch else ""
    lines = [
        f"expire-rows {plan.uri}{where} — {count(plan.total_rows, 'row')}, {count(plan.total_edges, 'edge')} go, "
        f"at most {100 * plan.max_share:g}% of a table"
    ]
    for planned in plan.tables:
        lines.append(f"  {planned.table_key:<40} {policy_text(planned.policy)}: {_numbers(planned)}")
        if planned.refused:
            lines.append(f"    refused: {planned.refused}")
        elif planned.expired:
            lines.append(f"    {_ends(planned)}, e.g. {', '.join(planned.sample)}{_edges(planned.edges)}")
    return "\n".join([*lines, f"  digest {plan.digest}"])


def report_text(report: RowRetentionReport) -> str:
    """A report for a terminal, a line per table, and what is still to do. Pure."""
    total = f"{count(report.rows_removed, 'row')} and {count(report.edges_removed, 'edge')} deleted"
    lines = [f"expire-rows {report.uri} — {total}", *(_stats(t) for t in report.tables)]
    return "\n".join([*lines, f"  {RECLAIM}"] if report.rows_removed else lines)


def policy_text(policy: RowPolicy) -> str:
    """A policy as a phrase. Pure."""
    return f"{policy.property} older than {human_seconds(policy.older_than_secs)}"


def retention_body(plan: RowRetentionPlan, *, answer_by: str | None = None, full_plan: str | None = None) -> str:
    """The body of an approval: what goes, between which moments, and what it means. Pure."""
    target = code(plan.uri) + (f", branch {code(plan.branch)}" if plan.branch else "")
    return "\n".join(
        [
            f"Row retention of {target} deletes **{count(plan.total_rows, 'row')}** and "
            f"**{count(plan.total_edges, 'edge')}** of theirs.",
            "",
            *table(("Table", "Rows", "Share", "Older than", "Oldest / newest", "Edges", "For example"), _rows(plan)),
            "",
            "Your answer:",
            "",
            "- **Approve**: rows below these cuts are deleted, judged again at that moment: a row that was updated "
            f"since stays, and if more rows than these are below a cut, none of that table goes. {RECLAIM}",
            "- **Reject**: nothing is deleted.",
            no_answer(answer_by),
            "",
            *([f"The plan is in {full_plan}.", ""] if full_plan else []),
            digest_line(plan.digest),
        ]
    )


def _rows(plan: RowRetentionPlan) -> Iterable[tuple[str, ...]]:
    for planned in plan.tables:
        yield (
            code(planned.table_key),
            f"none: {prose(planned.refused)}" if planned.refused else f"{planned.expired:,} of {planned.rows:,}",
            f"{planned.share:.1%}",
            f"{moment(planned.cut_at_us)} ({code(planned.policy.property)})",
            _span(planned),
            ", ".join(f"{code(e.table_key)} {e.rows:,}" for e in planned.edges) or "none",
            ", ".join(code(key) for key in planned.sample) or "none",
        )


def _numbers(planned: TableRowPlan) -> str:
    return f"{planned.expired:,} of {planned.rows:,} rows ({planned.share:.1%}) below {moment(planned.cut_at_us)}"


def _ends(planned: TableRowPlan) -> str:
    return f"from {_span(planned)}"


def _span(planned: TableRowPlan) -> str:
    if planned.oldest_us is None or planned.newest_us is None:
        return "none"
    return f"{moment(planned.oldest_us)} to {moment(planned.newest_us)}"


def _edges(edges: Iterable[EdgeRows]) -> str:
    found = ", ".join(f"{e.table_key} {e.rows:,}" for e in edges if e.rows)
    return f"; edges that go with them: {found}" if found else ""


def _stats(stats: TableRowStats) -> str:
    if stats.refused or stats.error:
        why = f"refused: {stats.refused}" if stats.refused else f"failed: {stats.error}"
        return f"  {stats.table_key:<40} {why}"
    left = f"; {count(stats.rows_left, 'row')} below the cut came meanwhile" if stats.rows_left else ""
    tries = f" in {stats.attempts} attempts" if stats.attempts > 1 else ""
    return f"  {stats.table_key:<40} {count(stats.rows_removed, 'row')} deleted{_edges(stats.edges)}{tries}{left}"

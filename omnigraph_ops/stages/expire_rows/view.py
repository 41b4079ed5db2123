"""Plans and reports of row retention as views. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph_ops.models.cleanup import (
    EdgeRows,
    RowRetentionPlan,
    RowRetentionReport,
    TableRowPlan,
    TableRowStats,
)
from omnigraph_ops.quantities import moment
from omnigraph_ops.views.markdown import count, human_seconds
from omnigraph_ops.views.question import counted, sealed_facts
from omnigraph_ops.views.view import Question, Section, View, filled

_RECLAIM = (
    "The rows are marked as deleted and still stored: optimize rewrites their fragments without them, and cleanup "
    "removes the versions that hold them, after which no version can bring them back."
)


def plan_view(plan: RowRetentionPlan) -> View:
    """Which rows expire, and what goes with them. Pure."""
    going = [t for t in plan.tables if t.refused is None]
    where = f" branch {plan.branch}" if plan.branch else ""
    header = ("Table", "Rows deleted", "Rows", "Share", "Rule", "Below", "Oldest", "Newest", "Never more than")
    edges = tuple((t.table_key, e.table_key, counted(e.rows)) for t in going for e in t.edges if e.rows)
    return View(
        title=f"expire-rows {plan.uri}{where} — {count(plan.total_rows, 'row')}, {count(plan.total_edges, 'edge')} "
        f"go, at most {100 * plan.max_share:g}% of a table",
        facts=(
            ("Deletes", f"{count(plan.total_rows, 'row')} and {plan.total_edges:,} of their edges"),
            ("Branch", plan.branch or "main"),
            *sealed_facts(plan),
        ),
        sections=filled(
            [
                Section(title="Tables", header=header, rows=tuple(_row_cells(t) for t in plan.tables)),
                Section(title="Edges that go with them", header=("Nodes", "Edges", "How many"), rows=edges),
                Section(
                    title="Some of the rows",
                    header=("Table", "Keys"),
                    rows=tuple((t.table_key, ", ".join(t.sample)) for t in going if t.sample),
                ),
            ]
        ),
    )


def _row_cells(table: TableRowPlan) -> tuple[str, ...]:
    return (
        table.table_key,
        f"refused: {table.refused}" if table.refused else counted(table.expired),
        counted(table.rows),
        f"{table.share:.1%}",
        f"{table.policy.property} older than {human_seconds(table.policy.older_than_secs)}",
        moment(table.cut_at_us),
        *("" if end is None else moment(end) for end in (table.oldest_us, table.newest_us)),
        counted(table.max_rows),
    )


def report_view(report: RowRetentionReport) -> View:
    """What was deleted, refused and failed, and what is still to do. Pure."""
    header = ("Table", "Outcome", "Edges that went with them", "Attempts", "Came below the cut meanwhile")
    return View(
        title=f"expire-rows {report.uri} — {count(report.rows_removed, 'row')} and "
        f"{count(report.edges_removed, 'edge')} deleted",
        sections=filled(
            [
                Section(title="Tables", header=header, rows=tuple(map(_stats, report.tables))),
                Section(title="Storage", lines=(_RECLAIM,) if report.rows_removed else ()),
            ]
        ),
    )


def _stats(stats: TableRowStats) -> tuple[str, ...]:
    if stats.refused or stats.error:
        why = f"refused: {stats.refused}" if stats.refused else f"failed: {stats.error}"
        return (stats.table_key, why, "", "", "")
    return (
        stats.table_key,
        f"{count(stats.rows_removed, 'row')} deleted",
        _edges(stats.edges),
        str(stats.attempts) if stats.attempts > 1 else "",
        count(stats.rows_left, "row") if stats.rows_left else "",
    )


def _edges(edges: Iterable[EdgeRows]) -> str:
    return ", ".join(f"{e.table_key} {e.rows:,}" for e in edges if e.rows)


def question(plan: RowRetentionPlan) -> Question:
    """What a person is asked about row expiry. Pure."""
    rows, edges = count(plan.total_rows, "row"), count(plan.total_edges, "edge")
    target = plan.uri + (f", branch {plan.branch}" if plan.branch else "")
    return Question(
        subject=f"Delete {plan.total_rows:,} expired rows and {plan.total_edges:,} of their edges?",
        intro=f"Row retention of {target} deletes {rows} and {edges} of theirs.",
        on_approve="rows below these cuts are deleted. They are counted again at that moment: a row that was updated "
        "since stays, and a table with more rows below its cut than planned keeps them all.",
        on_reject="nothing is deleted.",
        notes=(_RECLAIM,),
    )

"""Plans of row retention as a view. Pure."""

from __future__ import annotations

from omnigraph_ops.durations import moment
from omnigraph_ops.models.retention import RowRetentionPlan, RowRetentionReport, TableRowPlan
from omnigraph_ops.stages.expire_rows.texts import policy_text as rule_text
from omnigraph_ops.views.plan import counted, sealed_facts
from omnigraph_ops.views.view import Question, Section, View, filled


def plan_view(plan: RowRetentionPlan) -> View:
    """Which rows expire, and what goes with them. Pure."""
    going = [t for t in plan.tables if t.refused is None]
    header = ("Table", "Rows deleted", "Rows", "Share", "Rule", "Below", "Oldest", "Newest", "Never more than")
    edges = tuple((t.table_key, e.table_key, counted(e.rows)) for t in going for e in t.edges if e.rows)
    return View(
        title="Plan of a row retention",
        facts=(
            ("Deletes", f"{plan.total_rows:,} rows and {plan.total_edges:,} of their edges"),
            ("Branch", plan.branch or "main"),
            ("At most", f"{plan.max_share:.1%} of the rows of a table"),
            *sealed_facts(plan),
        ),
        sections=filled(
            [
                Section(title="Tables", header=header, rows=tuple(_row_cells(t) for t in plan.tables)),
                Section(title="Edges that go with them", header=("Nodes", "Edges", "How many"), rows=edges),
                Section(
                    title="Some of the rows",
                    header=("Table", "Key"),
                    rows=tuple((t.table_key, key) for t in going for key in t.sample),
                ),
            ]
        ),
    )


def _row_cells(table: TableRowPlan) -> tuple[str, ...]:
    return (
        table.table_key,
        f"none: {table.refused}" if table.refused else counted(table.expired),
        counted(table.rows),
        f"{table.share:.1%}",
        rule_text(table.policy),
        moment(table.cut_at_us),
        *("" if end is None else moment(end) for end in (table.oldest_us, table.newest_us)),
        counted(table.max_rows),
    )


def report_view(report: RowRetentionReport) -> View:
    """What was deleted, refused and failed. Pure."""
    rows = tuple((t.table_key, t.error or t.refused or "", counted(t.rows_removed)) for t in report.tables)
    return View(
        title=f"expire-rows {report.uri} — {report.rows_removed:,} rows and {report.edges_removed:,} edges deleted",
        sections=filled([Section(title="Tables", header=("Table", "Problem", "Rows deleted"), rows=rows)]),
    )


def question(plan: RowRetentionPlan) -> Question:
    """What a person is asked about row expiry. Pure."""
    return Question(
        subject=f"Delete {plan.total_rows:,} expired rows and {plan.total_edges:,} of their edges?",
        intro=f"Row expiry of {plan.uri} deletes {plan.total_rows:,} rows and {plan.total_edges:,} of their edges.",
        on_approve="rows below these cuts are deleted. They are counted again at that moment: a row that was updated "
        "since stays, and a table with more rows below its cut than planned keeps them all.",
        on_reject="nothing is deleted.",
    )

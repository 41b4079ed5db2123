"""Plans of cleanups as a view. Pure."""

from __future__ import annotations

from omnigraph_ops.models import CleanupPlan, CleanupReport, TableCleanupPlan
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.views.approval import policy_text, ranges
from omnigraph_ops.views.approval.cleanup import by_reasons
from omnigraph_ops.views.markdown import some
from omnigraph_ops.views.plan import counted, files_section, sealed_facts, size_of
from omnigraph_ops.views.view import Question, Section, View, filled

_MOST_REASONS = 10


def plan_view(plan: CleanupPlan) -> View:
    """What goes, and what holds the rest. Pure."""
    tables = sorted((t for t in plan.tables if t.versions or t.refused), key=lambda t: -t.estimated_bytes)
    header = ("Table", "Versions removed", "How many", "Files", "About", "Published", "Newest", "Stops at")
    held = ("Table", "Versions", "How many", "Why they stay")
    protected = tuple(
        (t.table_key, ranges(versions), counted(len(versions)), some(reasons, _MOST_REASONS, "; "))
        for t in plan.tables
        for reasons, versions in by_reasons(t.protected)
    )
    forks = tuple((f.table_key, f.branch, counted(len(f.files)), size_of(f.files)) for f in plan.orphaned_forks)
    kept = tuple((f.table_key, f.branch, f.error or "") for f in plan.kept_forks)
    files = [*(f for t in plan.tables for f in t.files), *(f for fork in plan.orphaned_forks for f in fork.files)]
    return View(
        title="Plan of a cleanup",
        facts=(
            ("Removes", f"{plan.total_versions:,} old versions and {plan.total_files:,} files"),
            ("About", human_bytes(plan.total_bytes)),
            ("Policy", policy_text(plan.policy)),
            *sealed_facts(plan),
        ),
        sections=filled(
            [
                Section(title="Tables", header=header, rows=tuple(_cleanup_cells(t) for t in tables)),
                Section(title="Protected versions", header=held, rows=protected),
                Section(title="Orphaned forks removed", header=("Table", "Fork", "Files", "About"), rows=forks),
                Section(title="Orphaned forks kept", header=("Table", "Fork", "Why it stays"), rows=kept),
                files_section((f.path, f.kind, human_bytes(f.size)) for f in files),
            ]
        ),
    )


def _cleanup_cells(table: TableCleanupPlan) -> tuple[str, ...]:
    return (
        table.table_key,
        f"none: {table.refused}" if table.refused else ranges(table.versions),
        counted(len(table.versions)),
        counted(len(table.files)),
        human_bytes(table.estimated_bytes),
        str(table.pinned_version),
        str(table.lance_head_version),
        table.blocked_by or "",
    )


def report_view(report: CleanupReport) -> View:
    """What was removed, and what failed. Pure."""
    rows = tuple(
        (t.table_key, t.error or ranges(t.versions), counted(t.old_versions_removed), human_bytes(t.bytes_removed))
        for t in report.tables
    )
    return View(
        title=f"cleanup {report.uri} — removed {report.versions_removed:,} versions",
        sections=filled([Section(title="Tables", header=("Table", "Versions", "How many", "Bytes"), rows=rows)]),
    )


def question(plan: CleanupPlan) -> Question:
    """What a person is asked about a cleanup. Pure."""
    size = human_bytes(plan.total_bytes)
    return Question(
        subject=f"Remove {plan.total_versions:,} old versions (about {size})?",
        intro=f"Cleanup of {plan.uri} removes {plan.total_versions:,} old versions and {plan.total_files:,} files.",
        on_approve="exactly these files are deleted. They cannot be brought back.",
        on_reject="nothing is deleted.",
    )

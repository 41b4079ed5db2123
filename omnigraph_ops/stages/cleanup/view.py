"""Plans and reports of cleanups as views. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from omnigraph_ops.models.cleanup import (
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    PlannedFile,
    ProtectedVersion,
    RetentionPolicy,
    SnapshotExpiry,
    TableCleanupPlan,
)
from omnigraph_ops.outcomes.of_reports import engine_policy
from omnigraph_ops.quantities import human_bytes
from omnigraph_ops.views.markdown import (
    count,
    counted,
    files_section,
    human_seconds,
    ranges,
    sealed_facts,
    size_of,
    some,
)
from omnigraph_ops.views.view import Question, Section, View, filled

_MOST_REASONS = 10
_MOST_ROWS = 200


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
    untouched = tuple(t.table_key for t in plan.tables if not t.versions and not t.refused)
    files = [*(f for t in plan.tables for f in t.files), *(f for fork in plan.orphaned_forks for f in fork.files)]
    return View(
        title=f"cleanup plan {plan.uri} ({engine_policy(plan.policy)}) — {plan.total_versions} versions, "
        f"{plan.total_files} files, {human_bytes(plan.total_bytes)} across {len(plan.tables)} tables",
        facts=(
            ("Removes", _total(plan)),
            ("Policy", policy_text(plan.policy)),
            *sealed_facts(plan),
        ),
        sections=filled(
            [
                Section(title="Tables", header=header, rows=tuple(_cleanup_cells(t) for t in tables)),
                Section(
                    title="Orphaned forks removed",
                    header=("Table", "Fork", "Files", "About"),
                    rows=forks,
                    most=_MOST_ROWS,
                ),
                Section(
                    title="Orphaned forks kept", header=("Table", "Fork", "Why it stays"), rows=kept, most=_MOST_ROWS
                ),
                Section(title="Protected versions", header=held, rows=protected, most=_MOST_ROWS),
                Section(title="Nothing to remove", lines=untouched),
                files_section((f.path, f.kind, human_bytes(f.size)) for f in files),
            ]
        ),
    )


def _total(plan: CleanupPlan) -> str:
    versions, files = count(plan.total_versions, "old version"), count(plan.total_files, "file")
    forks = f", {count(len(plan.orphaned_forks), 'orphaned fork')}" if plan.orphaned_forks else ""
    return f"{versions}{forks} and {files} (about {human_bytes(plan.total_bytes)})"


def _cleanup_cells(table: TableCleanupPlan) -> tuple[str, ...]:
    return (
        table.table_key,
        f"refused: {table.refused}" if table.refused else ranges(table.versions),
        counted(len(table.versions)),
        _kinds(table.files),
        human_bytes(table.estimated_bytes),
        str(table.pinned_version),
        str(table.lance_head_version),
        table.blocked_by or "",
    )


def _kinds(files: Sequence[PlannedFile]) -> str:
    """`3 data, 2 index` and so on. Pure."""
    found = Counter(f.kind for f in files)
    return ", ".join(f"{number:,} {kind}" for kind, number in sorted(found.items())) or "none"


def by_reasons(protected: Iterable[ProtectedVersion]) -> list[tuple[tuple[str, ...], list[int]]]:
    """Protected versions with the same reasons together, in the order of the first of them. Pure."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for held in protected:
        groups.setdefault(held.reasons, []).append(held.version)
    return list(groups.items())


def report_view(report: CleanupReport) -> View:
    """What was removed, and what failed. Pure."""
    done = [t for t in report.tables if t.error is None]
    removed, failed = report.orphaned_forks_removed, report.orphaned_forks_failed
    # Of a table that failed, too: its versions may be gone.
    versions = sum(t.old_versions_removed for t in report.tables)
    size = sum(t.bytes_removed for t in report.tables)
    return View(
        title=f"cleanup {report.uri} ({engine_policy(report.policy)}) — removed {versions} versions ({size} bytes) "
        f"across {sum(t.error is None or t.old_versions_removed > 0 for t in report.tables)} tables",
        sections=filled(
            [
                Section(
                    title="Tables",
                    header=("Table", "Versions removed", "How many", "Bytes", "Not removed"),
                    rows=tuple(_removed_cells(t) for t in done),
                ),
                Section(
                    title=f"{len(report.failed)} table(s) failed and will be retried on the next cleanup",
                    header=("Table", "Why"),
                    rows=tuple((t.table_key, t.error or "") for t in report.failed),
                ),
                Section(
                    title="Orphaned forks removed",
                    header=("Table", "Fork"),
                    rows=tuple((f.table_key, f.branch) for f in removed),
                ),
                Section(
                    title="Orphaned forks that could not be removed",
                    header=("Table", "Fork", "Why"),
                    rows=tuple((f.table_key, f.branch, f.error or "") for f in failed),
                ),
            ]
        ),
    )


def _removed_cells(table: CleanupStats) -> tuple[str, ...]:
    return (
        table.table_key,
        ranges(table.versions),
        counted(table.old_versions_removed),
        human_bytes(table.bytes_removed),
        table.not_removed,
    )


def question(plan: CleanupPlan) -> Question:
    """What a person is asked about a cleanup. Pure."""
    size = human_bytes(plan.total_bytes)
    return Question(
        subject=f"Remove {plan.total_versions:,} old versions (about {size})?",
        intro=f"Cleanup of {plan.uri} removes {_total(plan)}.",
        on_approve="exactly these versions and files are removed. They cannot be brought back. A version that became "
        "protected since is kept; if other files than these would go, nothing of that table is removed.",
        on_reject="nothing is removed.",
    )


def policy_text(policy: RetentionPolicy) -> str:
    """A retention policy as a phrase. Pure."""
    parts = []
    if policy.keep_versions is not None:
        parts.append(f"keep the newest {policy.keep_versions}")
    if policy.older_than_secs is not None:
        parts.append(f"keep what is younger than {human_seconds(policy.older_than_secs)}")
    if policy.expiry is not None:
        parts.append(_expiry_text(policy.expiry))
    if policy.between_pins:
        parts.append("remove between the pins of branches too")
    return " and ".join(parts) or "none"


def _expiry_text(expiry: SnapshotExpiry) -> str:
    most = "" if expiry.retain_max is None else f", at most {expiry.retain_max:,}"
    return (
        f"snapshot expiry: retain at least {expiry.retain_min:,}{most}, otherwise what is younger than "
        f"{human_seconds(expiry.time_retained_secs)}; expire at most {count(expiry.expire_limit, 'version')} per table"
    )

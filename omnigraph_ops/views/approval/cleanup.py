"""What a person reads before they approve a cleanup. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from omnigraph_ops.models import (
    CleanupPlan,
    OrphanedFork,
    PlannedFile,
    ProtectedVersion,
    RetentionPolicy,
    SnapshotExpiry,
    TableCleanupPlan,
)
from omnigraph_ops.views.markdown import (
    code,
    count,
    digest_line,
    human_bytes,
    human_seconds,
    no_answer,
    prose,
    ranges,
    some,
    table,
)

MAX_REASONS = 3
MAX_TABLES = 30
MAX_FORKS = 30


def cleanup_body(
    plan: CleanupPlan, *, note: str | None = None, answer_by: str | None = None, full_plan: str | None = None
) -> str:
    """The body of a cleanup approval: exactly what goes, what stays and why. Pure.

    Args:
        note: why an approval given in advance does not cover this plan.
        full_plan: Markdown that leads to the whole plan, for what is left out of a long one.
    """
    work = sorted((t for t in plan.tables if t.versions or t.refused), key=lambda t: -t.estimated_bytes)
    lines = [
        f"Cleanup of {code(plan.uri)} removes **{count(plan.total_versions, 'old version')}** and "
        f"{count(plan.total_files, 'file')} (about {human_bytes(plan.total_bytes)}){_forks_text(plan)}. "
        f"Policy: {policy_text(plan.policy)}.",
        *(["", f"Not covered by what was approved in advance: {note}."] if note else []),
        "",
        *table(
            ("Table", "Versions removed", "Files", "About", "Published / newest", "Held back"),
            (_cleanup_cells(t) for t in work[:MAX_TABLES]),
        ),
        *_left_out(work[MAX_TABLES:], full_plan),
        *_forks(plan.orphaned_forks),
        *_kept(plan.kept_forks),
        *_untouched(plan.tables),
        "",
        "Your answer:",
        "",
        "- **Approve**: exactly these versions and files are removed; a version that became protected since is "
        "kept, and if other files would go, nothing of that table does. **They cannot be brought back.**",
        "- **Reject**: nothing is removed.",
        no_answer(answer_by),
        "",
        *([f"Every file is listed in {full_plan}.", ""] if full_plan else []),
        digest_line(plan.digest),
    ]
    return "\n".join(lines)


def _left_out(tables: Sequence[TableCleanupPlan], full_plan: str | None) -> list[str]:
    if not tables:
        return []
    total = sum(len(t.versions) for t in tables)
    where = f", listed in {full_plan}" if full_plan else ""
    size = human_bytes(sum(t.estimated_bytes for t in tables))
    return ["", f"And {count(len(tables), 'more table')} with {count(total, 'version')} (about {size}){where}."]


def _kept(forks: Sequence[OrphanedFork]) -> list[str]:
    shown = forks[:MAX_FORKS]
    lines = [f"Orphaned fork {code(f.branch)} of {code(f.table_key)} stays: {prose(f.error or '')}." for f in shown]
    more = [f"And {count(len(forks) - MAX_FORKS, 'more fork')} that stay."] if len(forks) > MAX_FORKS else []
    return ["", *lines, *more] if forks else []


def _cleanup_cells(table: TableCleanupPlan) -> tuple[str, ...]:
    versions = ranges(table.versions) if table.versions else f"none: {prose(table.refused or '')}"
    return (
        code(table.table_key),
        versions + (f" ({len(table.versions)})" if len(table.versions) > 1 else ""),
        _kinds(table.files),
        human_bytes(table.estimated_bytes),
        f"{table.pinned_version} / {table.lance_head_version}",
        _held_back(table),
    )


def _kinds(files: Sequence[PlannedFile]) -> str:
    """`3 data, 2 index` and so on. Pure."""
    found = Counter(f.kind for f in files)
    return ", ".join(f"{number:,} {kind}" for kind, number in sorted(found.items())) or "none"


def _held_back(table: TableCleanupPlan) -> str:
    held = [f"stops at {prose(table.blocked_by)}"] if table.blocked_by else []
    groups = by_reasons(table.protected)
    held += [f"{ranges(versions)}: {prose(some(reasons, MAX_REASONS))}" for reasons, versions in groups[:MAX_REASONS]]
    if len(groups) > MAX_REASONS:
        held.append(f"and {len(groups) - MAX_REASONS} more reasons")
    return "; ".join(held) or "nothing"


def by_reasons(protected: Iterable[ProtectedVersion]) -> list[tuple[tuple[str, ...], list[int]]]:
    """Protected versions with the same reasons together, in the order of the first of them. Pure."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for held in protected:
        groups.setdefault(held.reasons, []).append(held.version)
    return list(groups.items())


def _forks(forks: Sequence[OrphanedFork]) -> list[str]:
    if not forks:
        return []
    rows = (
        (code(f.table_key), code(f.branch), f"{len(f.files):,}", human_bytes(sum(p.size for p in f.files)))
        for f in forks[:MAX_FORKS]
    )
    more = [f"And {count(len(forks) - MAX_FORKS, 'more fork')}."] if len(forks) > MAX_FORKS else []
    return ["", *table(("Table", "Orphaned fork removed", "Files", "About"), rows), *more]


def _forks_text(plan: CleanupPlan) -> str:
    return f" and {count(len(plan.orphaned_forks), 'orphaned fork')}" if plan.orphaned_forks else ""


def _untouched(tables: Iterable[TableCleanupPlan]) -> list[str]:
    keys = [code(t.table_key) for t in tables if not t.versions and not t.refused]
    more = f" and {len(keys) - MAX_TABLES:,} more" if len(keys) > MAX_TABLES else ""
    return ["", f"Nothing to remove in {', '.join(keys[:MAX_TABLES])}{more}."] if keys else []


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

"""What a person reads before they approve: Markdown bodies for a repair and for a cleanup. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph_ops.models import (
    Classification,
    CleanupPlan,
    OrphanedFork,
    RepairPreview,
    RepairRow,
    RetentionPolicy,
    TableCleanupPlan,
)

MEANING = {
    Classification.VERIFIED_MAINTENANCE: "verified maintenance",
    Classification.SUSPICIOUS: "**suspicious**",
    Classification.UNVERIFIABLE: "**unverifiable**",
    Classification.NO_DRIFT: "no drift",
}
NOT_SHOWN = "?"
MAX_REASONS = 3


def repair_body(preview: RepairPreview, *, force: bool = False, answer_by: str | None = None) -> str:
    """The body of a repair approval: one row per drifted table and what each answer does. Pure."""
    lines = [
        f"Tables of `{preview.uri}` hold versions that the graph does not publish. Repair publishes "
        "them as they are; it rewrites nothing.",
        "",
        *_table(
            ("Table", "Published → newest", "On Approve", "Rows", "Evidence", "Operations"),
            (_repair_cells(row, force) for row in preview.drifted),
        ),
        "",
        "Verified maintenance is compaction only: no row changed. Suspicious operations change rows or "
        "indexes; unverifiable ones cannot be read.",
        "",
        "- **Approve**: the tables marked *publish* are published at their newest version in one graph "
        "commit. If any of them moves before that, nothing is published.",
        "- **The switch** below also publishes the tables that are not verified maintenance. Use it only when "
        "you know who made those versions.",
        "- **Reject**: only the repair is skipped. The tables stay as they are, and the rest of the run "
        "goes on without them.",
        _no_answer(answer_by),
        "",
        f"Digest of what you see: `{preview.digest}`",
    ]
    return "\n".join(lines)


def _repair_cells(row: RepairRow, force: bool) -> tuple[str, ...]:
    verified = row.classification is Classification.VERIFIED_MAINTENANCE
    action = "publish" if verified else "publish (forced)" if force else "leave, unless the switch is on"
    return (
        f"`{row.table_key}`",
        f"{row.manifest_version} → {row.lance_head_version}",
        action,
        _rows(row.rows_before, row.rows_after),
        MEANING[row.classification] + (f" ({row.error})" if row.error else ""),
        ", ".join(row.operations) or NOT_SHOWN,
    )


def _rows(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return NOT_SHOWN
    if before == after:
        return f"{before:,} (unchanged)"
    return f"**{before:,} → {after:,}**"


def cleanup_body(plan: CleanupPlan, *, note: str | None = None, answer_by: str | None = None) -> str:
    """The body of a cleanup approval: exactly what goes, what stays and why. Pure."""
    lines = [
        f"Cleanup of `{plan.uri}` removes **{_count(plan.total_versions, 'old version')}** "
        f"(about {human_bytes(plan.total_bytes)}){_forks_text(plan)}. "
        f"Policy: {policy_text(plan.policy)}.",
        *(["", f"Not covered by the standing approval: {note}."] if note else []),
        "",
        *_table(
            ("Table", "Versions removed", "About", "Published / newest", "Held back"),
            (_cleanup_cells(table) for table in plan.tables if table.versions or table.refused),
        ),
        *_forks(plan.orphaned_forks),
        *_untouched(plan.tables),
        "",
        "- **Approve**: exactly these versions are removed; one that became protected since is kept. "
        "**They cannot be brought back.**",
        "- **Reject**: nothing is removed.",
        _no_answer(answer_by),
        "",
        f"Digest of what you see: `{plan.digest}`",
    ]
    return "\n".join(lines)


def _cleanup_cells(table: TableCleanupPlan) -> tuple[str, ...]:
    versions = ranges(table.versions) if table.versions else f"none: {table.refused}"
    return (
        f"`{table.table_key}`",
        versions + (f" ({len(table.versions)})" if len(table.versions) > 1 else ""),
        human_bytes(table.estimated_bytes),
        f"{table.pinned_version} / {table.lance_head_version}",
        _held_back(table),
    )


def _held_back(table: TableCleanupPlan) -> str:
    held = [f"stops at {table.blocked_by}"] if table.blocked_by else []
    by_reason: dict[str, list[int]] = {}
    for protected in table.protected:
        by_reason.setdefault(", ".join(protected.reasons), []).append(protected.version)
    shown = list(by_reason.items())[:MAX_REASONS]
    held += [f"{ranges(versions)}: {reason}" for reason, versions in shown]
    if len(by_reason) > MAX_REASONS:
        held.append(f"and {len(by_reason) - MAX_REASONS} more reasons")
    return "; ".join(held) or "nothing"


def _forks(forks: Sequence[OrphanedFork]) -> list[str]:
    if not forks:
        return []
    rows = ((f"`{fork.table_key}`", f"`{fork.branch}`", f"`{fork.table_path}`") for fork in forks)
    header = ("Table", "Orphaned fork removed", "Where")
    return ["", *_table(header, rows)]


def _forks_text(plan: CleanupPlan) -> str:
    return f" and {_count(len(plan.orphaned_forks), 'orphaned fork')}" if plan.orphaned_forks else ""


def _untouched(tables: Iterable[TableCleanupPlan]) -> list[str]:
    keys = [f"`{t.table_key}`" for t in tables if not t.versions and not t.refused]
    return ["", f"Nothing to remove in {', '.join(keys)}."] if keys else []


def _no_answer(answer_by: str | None) -> str:
    return f"- **No answer**{f' by {answer_by}' if answer_by else ' in time'}: counts as Reject."


def policy_text(policy: RetentionPolicy) -> str:
    """A retention policy as a phrase. Pure."""
    parts = []
    if policy.keep_versions is not None:
        parts.append(f"keep the newest {policy.keep_versions}")
    if policy.older_than_secs is not None:
        parts.append(f"keep what is younger than {human_seconds(policy.older_than_secs)}")
    return " and ".join(parts) or "none"


def ranges(versions: Iterable[int]) -> str:
    """Version numbers as ranges, `1-4, 7`. Pure."""
    spans: list[tuple[int, int]] = []
    for version in sorted(versions):
        if spans and version == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], version)
        else:
            spans.append((version, version))
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def human_bytes(count: int) -> str:
    """A byte count for a person, `3.4 MiB`. Pure."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_seconds(seconds: int) -> str:
    """A duration in its largest whole unit, `7 days`. Pure."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return _count(seconds // size, unit)
    return _count(seconds, "second")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [_line(header), _line(["---"] * len(header))]
    return lines + [_line(row) for row in rows]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

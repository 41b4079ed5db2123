"""What a person reads before they approve a repair. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph_ops.models import Classification, DriftEvidence, RepairPreview, RepairRow
from omnigraph_ops.views.approval.evidence import evidence_section
from omnigraph_ops.views.evidence_text import left_alone
from omnigraph_ops.views.markdown import code, count, digest_line, no_answer, prose, table

MEANING = {
    Classification.VERIFIED_MAINTENANCE: "verified maintenance",
    Classification.SUSPICIOUS: "**suspicious**",
    Classification.UNVERIFIABLE: "**unverifiable**",
    Classification.NO_DRIFT: "no drift",
}
NOT_SHOWN = "?"
MAX_TABLES = 30
MAX_OPERATIONS = 10
_HEADER = ("Table", "Published → newest", "On Approve", "Rows", "Classification", "Operations", "Content")
_CONTENT = {True: "equal", False: "**differs**", None: "not proven equal"}


def repair_body(
    preview: RepairPreview, *, force: bool = False, answer_by: str | None = None, full_plan: str | None = None
) -> str:
    """The body of a repair approval: totals, one row per drifted table, what each answer does, evidence. Pure.

    Args:
        full_plan: Markdown that leads to the whole preview, for what is left out of a long one.
    """
    drifted = by_weight(preview.drifted)
    lines = [
        f"Tables of {code(preview.uri)} hold versions that the graph does not publish. Repair publishes "
        "them as they are; it rewrites nothing.",
        "",
        totals(drifted),
        *_narrowed(preview),
        "",
        *table(_HEADER, (_repair_cells(row, force) for row in drifted[:MAX_TABLES])),
        *_left_out(drifted[MAX_TABLES:], full_plan),
        "",
        "Verified maintenance is compaction only: no row changed. Suspicious operations change rows or "
        "indexes; unverifiable ones cannot be read.",
        "",
        *_answers(answer_by),
        *_if_not_published(drifted),
        *evidence_section(drifted, full_plan),
        "",
        *([f"The whole preview is in {full_plan}.", ""] if full_plan else []),
        digest_line(preview.digest),
    ]
    return "\n".join(lines)


def by_weight(rows: Sequence[RepairRow]) -> tuple[RepairRow, ...]:
    """What needs a person most comes first: it must not be what a long body leaves out. Pure."""
    verified = Classification.VERIFIED_MAINTENANCE
    return tuple(sorted(rows, key=lambda row: (row.classification is verified, row.table_key)))


def totals(rows: Sequence[RepairRow]) -> str:
    """`**2 tables** with 3 versions ...` in one sentence. Pure."""
    versions = sum(max(row.lance_head_version - row.manifest_version, 0) for row in rows)
    text = f"**{count(len(rows), 'table')}** with {count(versions, 'version')} past the published ones: "
    kinds = (
        ("added", [e.rows_added for e in _evidence(rows)]),
        ("removed", [e.rows_removed for e in _evidence(rows)]),
        ("changed", [e.rows_changed for e in _evidence(rows)]),
    )
    text += ", ".join(f"{count(sum(n for n in known if n is not None), 'row')} {name}" for name, known in kinds)
    unknown = sum(1 for row in rows if not _counted(row))
    return text + (f"; not counted in {count(unknown, 'table')}." if unknown else ".")


def _evidence(rows: Sequence[RepairRow]) -> list[DriftEvidence]:
    return [row.evidence for row in rows if row.evidence is not None]


def _counted(row: RepairRow) -> bool:
    found = row.evidence
    return found is not None and None not in (found.rows_added, found.rows_removed, found.rows_changed)


def _narrowed(preview: RepairPreview) -> list[str]:
    if not preview.tables:
        return []
    return ["", f"Only these tables were looked at: {', '.join(code(key) for key in preview.tables)}."]


def _answers(answer_by: str | None) -> list[str]:
    return [
        "- **Approve**: the tables marked *publish* are published at their newest version in one graph "
        "commit. If any of them moves before that, nothing is published.",
        "- **The switch** below also publishes the tables that are not verified maintenance. Use it only when "
        "you know who made those versions.",
        "- **Reject**: only the repair is skipped. The tables stay as they are, and the rest of the run "
        "goes on without them.",
        no_answer(answer_by),
    ]


def _if_not_published(rows: Sequence[RepairRow]) -> list[str]:
    sentences = left_alone(rows)
    return ["", "If nothing is published:", "", *(f"- {prose(s)}" for s in sentences)] if sentences else []


def _left_out(rows: Sequence[RepairRow], full_plan: str | None) -> list[str]:
    if not rows:
        return []
    where = f", listed in {full_plan}" if full_plan else ""
    return ["", f"And {count(len(rows), 'more table')}{where}."]


def _repair_cells(row: RepairRow, force: bool) -> tuple[str, ...]:
    verified = row.classification is Classification.VERIFIED_MAINTENANCE
    action = "publish" if verified else "publish (forced)" if force else "leave, unless the switch is on"
    return (
        code(row.table_key),
        f"{row.manifest_version} → {row.lance_head_version}",
        action,
        _rows(row.rows_before, row.rows_after),
        MEANING[row.classification] + (f" ({prose(row.error)})" if row.error else ""),
        _operations(row.operations),
        _CONTENT[row.evidence.content_equal] if row.evidence else NOT_SHOWN,
    )


def _operations(operations: Sequence[str]) -> str:
    more = f" and {len(operations) - MAX_OPERATIONS} more" if len(operations) > MAX_OPERATIONS else ""
    return ", ".join(operations[:MAX_OPERATIONS]) + more or NOT_SHOWN


def _rows(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return NOT_SHOWN
    if before == after:
        return f"{before:,} (same number)"
    return f"**{before:,} → {after:,}**"

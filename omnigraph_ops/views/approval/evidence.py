"""The evidence part of a repair approval: a block per table, as many as a person can read. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph_ops.models import BranchEvidence, DriftEvidence, RepairRow, ShownRow
from omnigraph_ops.views.evidence_text import column_text, cost_text, rows_text, value_text, verdict_text, version_text
from omnigraph_ops.views.markdown import code, count, prose, table

MAX_CHARACTERS = 6000
MAX_VERSIONS = 5
MAX_BRANCHES = 5
MAX_VALUES = 8


def evidence_section(rows: Sequence[RepairRow], full_plan: str | None) -> list[str]:
    """Evidence of the tables in order, until it gets too long to read. Pure."""
    found = [(row.table_key, row.evidence) for row in rows if row.evidence is not None]
    if not found:
        return []
    lines, used, shown = ["", "### Evidence"], 0, 0
    for key, evidence in found:
        block = _fitting(key, evidence, MAX_CHARACTERS - used)
        if block is None:
            break
        lines += block
        used += _length(block)
        shown += 1
    if shown < len(found):
        where = f"; it is in {full_plan}" if full_plan else ""
        lines += ["", f"The evidence about {count(len(found) - shown, 'more table')} is left out{where}."]
    return lines


def _fitting(key: str, evidence: DriftEvidence, room: int) -> list[str] | None:
    """The block of one table, without its rows if they do not fit, None if nothing fits. Pure."""
    head, rows = _head(key, evidence), _shown(evidence.shown)
    if _length(head) + _length(rows) <= room:
        return head + rows
    if rows:
        head = [*head, "", f"The {count(len(evidence.shown), 'row')} looked at are left out here."]
    return head if _length(head) <= room else None


def _length(lines: Sequence[str]) -> int:
    return sum(len(text) + 1 for text in lines)


def _head(key: str, evidence: DriftEvidence) -> list[str]:
    facts = [rows_text(evidence), *(column_text(column) for column in evidence.columns)]
    facts += [f"version {version_text(version)}" for version in evidence.versions[:MAX_VERSIONS]]
    hidden = len(evidence.versions) - MAX_VERSIONS
    if hidden > 0 or evidence.versions_omitted:
        facts.append(f"and {count(max(hidden, 0) + evidence.versions_omitted, 'more version')}")
    facts += [*_branches(evidence.branches)]
    facts += [f"if published: {sentence}" for sentence in evidence.if_published]
    facts += [f"cost: {', '.join(cost_text(cost) for cost in evidence.costs)}"] if evidence.costs else []
    return [
        "",
        f"**{code(key)}** ({evidence.tier.value}): {prose(verdict_text(evidence))}",
        "",
        *([f"- **Could not be read**: {prose(evidence.problem)}"] if evidence.problem else []),
        *(f"- {prose(fact)}" for fact in facts if fact is not None),
    ]


def _branches(branches: Sequence[BranchEvidence]) -> list[str]:
    others = [b for b in branches if b.branch is not None]
    facts = [f"branch {b.branch} {b.note}" for b in others[:MAX_BRANCHES]]
    more = len(others) - MAX_BRANCHES
    return [*facts, f"and {more} more branches"] if more > 0 else facts


def _shown(rows: Sequence[ShownRow]) -> list[str]:
    if not rows:
        return []
    return ["", *table(("Row id", "Change", "Values"), ((str(r.row_id), r.change.value, _values(r)) for r in rows))]


def _values(row: ShownRow) -> str:
    # What differs comes first: a wide row is cut.
    values = sorted(row.values, key=lambda value: value.before == value.after)[:MAX_VALUES]
    hidden = len(row.values) - len(values) + row.columns_omitted
    more = [f"and {count(hidden, 'more column')}"] if hidden else []
    return ", ".join([*(code(f"{v.column}: {value_text(v)}") for v in values), *more])

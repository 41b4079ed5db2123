"""Evidence about drift as lines for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph_ops.models import BranchEvidence, DriftEvidence, ShownRow
from omnigraph_ops.views import evidence_text as text

MAX_VERSIONS = 10
MAX_BRANCHES = 10


def evidence_lines(evidence: DriftEvidence) -> list[str]:
    """What one tier found out about one table. Pure."""
    lines = [f"evidence ({evidence.tier.value}): {text.verdict_text(evidence)}"]
    if evidence.problem:
        lines.append(f"could not be read: {evidence.problem}")
    if (rows := text.rows_text(evidence)) is not None:
        lines.append(rows)
    lines += [line for column in evidence.columns if (line := text.column_text(column)) is not None]
    lines += [f"version {text.version_text(version)}" for version in evidence.versions[:MAX_VERSIONS]]
    hidden = len(evidence.versions) - MAX_VERSIONS
    if hidden > 0 or evidence.versions_omitted:
        lines.append(f"and {max(hidden, 0) + evidence.versions_omitted} more versions")
    lines += _branches(evidence.branches)
    for row in evidence.shown:
        lines += _shown(row)
    lines += [f"if published: {sentence}" for sentence in evidence.if_published]
    lines += [f"cost: {', '.join(text.cost_text(cost) for cost in evidence.costs)}"] if evidence.costs else []
    return lines


def _shown(row: ShownRow) -> Iterator[str]:
    yield f"row {row.row_id} {row.change.value}"
    for value in row.values:
        yield f"  {value.column}: {text.value_text(value)}"
    if row.columns_omitted:
        yield f"  and {row.columns_omitted} more columns"


def _branches(branches: tuple[BranchEvidence, ...]) -> Iterator[str]:
    others = [b for b in branches if b.branch is not None]
    for branch in others[:MAX_BRANCHES]:
        yield f"branch {branch.branch} {branch.note}"
    if len(others) > MAX_BRANCHES:
        yield f"and {len(others) - MAX_BRANCHES} more branches"

"""Evidence about drift as phrases, the same in a terminal and in an approval. Pure; imports no Lance."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph_ops.models import ColumnEvidence, DriftEvidence, RepairRow, ShownValue, TierCost, VersionEvidence
from omnigraph_ops.quantities import human_bytes, moment

_EQUAL = {True: "content equal", False: "content differs", None: "content not proven equal"}


def verdict_text(evidence: DriftEvidence) -> str:
    """`content equal: every fragment is the same`. Pure."""
    reason = f": {evidence.content_reason}" if evidence.content_reason else ""
    return _EQUAL[evidence.content_equal] + reason


def rows_text(evidence: DriftEvidence) -> str | None:
    """Rows and fragments of both sides, None when neither is known. Pure."""
    if evidence.rows_before is None or evidence.rows_after is None:
        return None
    counts = (("added", evidence.rows_added), ("removed", evidence.rows_removed), ("changed", evidence.rows_changed))
    known = [f"{number:,} {name}" for name, number in counts if number is not None]
    detail = f" ({', '.join(known)})" if known else ""
    fragments = f"fragments {evidence.fragments_before} → {evidence.fragments_after}"
    return (
        f"rows {evidence.rows_before:,} → {evidence.rows_after:,}{detail}; "
        f"{fragments}, {evidence.fragments_identical} identical"
    )


def column_text(column: ColumnEvidence) -> str | None:
    """One column that differs or was compared, None when nothing is known about it. Pure."""
    name = f"column {column.column}"
    if column.type_before is None:
        return f"{name}: added ({column.type_after})"
    if column.type_after is None:
        return f"{name}: dropped ({column.type_before})"
    if column.type_before != column.type_after:
        return f"{name}: type {column.type_before} → {column.type_after}"
    if column.digest_before is None or column.digest_after is None:
        return None
    digests = f"{column.digest_before[:12]} → {column.digest_after[:12]}"
    if column.equal:
        return f"{name}: equal ({column.digest_before[:12]})"
    if column.rows_changed:
        return f"{name}: {column.rows_changed:,} rows hold other values ({digests})"
    return f"{name}: equal where both have the row ({digests})"


def version_text(version: VersionEvidence) -> str:
    """`9 Delete at 2026-01-02 03:04:05 UTC by lance 7.0.0, read 8, where "id = 'x'"`. Pure."""
    if version.operation is None:
        return f"{version.version}: {version.problem}"
    parts = [f"{version.version} {version.operation}"]
    parts += [f"at {moment(version.committed_at_us)}"] if version.committed_at_us is not None else []
    parts += [f"by {version.writer}"] if version.writer else []
    text = " ".join(parts)
    text += f", read {version.read_version}" if version.read_version is not None else ""
    text += f", where {version.predicate}" if version.predicate else ""
    return text + "".join(f", {p.name}: {p.value}" for p in version.properties)


def cost_text(cost: TierCost) -> str:
    """`sample about 3.0 KiB`, or what was measured. Pure."""
    if cost.measured_bytes is not None:
        return f"{cost.tier.value} read {human_bytes(cost.measured_bytes)} in {cost.seconds:.2f} s"
    least = "at least" if cost.at_least else "about"
    return f"{cost.tier.value} {least} {human_bytes(cost.estimated_bytes)}"


def left_alone(rows: Iterable[RepairRow]) -> list[str]:
    """What goes on if nothing is published, each sentence once. Pure."""
    return list(dict.fromkeys(s for row in rows if row.evidence for s in row.evidence.if_not_published))


def value_text(value: ShownValue) -> str:
    """A value of a shown row, `old → new` where both sides have it and differ. Pure."""
    if value.before is None or value.after is None:
        return (value.after if value.before is None else value.before) or ""
    return value.before if value.before == value.after else f"{value.before} → {value.after}"

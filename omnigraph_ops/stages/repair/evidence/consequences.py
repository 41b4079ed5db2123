"""What publishing a drifted table changes for its readers, and what leaving it does, in plain sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph_ops.models import BranchEvidence, Coverage, DriftEvidence, IndexEvidence

MAX_NAMED = 5


def if_published(evidence: DriftEvidence) -> tuple[str, ...]:
    """What readers see change. Pure."""
    return (
        *_content(evidence),
        *_columns(evidence),
        *(sentence for index in evidence.indexes if (sentence := _index(index))),
        *_branches(evidence.branches),
    )


def if_not_published() -> tuple[str, ...]:
    """What goes on if nobody publishes it. Pure."""
    return (
        "Readers of main keep the published version.",
        "Optimize and cleanup leave this table out: it keeps its small fragments, uncovered rows and old versions.",
        "The engine's loads, updates, deletes and schema changes of this table refuse until it is repaired.",
        "The cleanup of engines before 0.9 does not look at drift and may remove the published version: do not run it.",
    )


def _content(evidence: DriftEvidence) -> Iterator[str]:
    if evidence.content_equal:
        yield "Readers of main see the same rows with the same values."
        return
    counts = (evidence.rows_added, evidence.rows_removed, evidence.rows_changed)
    if evidence.rows_added is None or evidence.rows_removed is None:
        yield _by_count(evidence)
        return
    verbs = ("gain {}", "lose {}", "see other values in {}")
    if evidence.rows_changed is not None and evidence.rows_changed and not _compared(evidence):
        verbs = (*verbs[:2], "see {} that were written again, their values not compared")
    parts = [verb.format(rows_text(n)) for verb, n in zip(verbs, counts, strict=True) if n]
    if parts:
        yield f"Readers of main {', '.join(parts)}."
    else:
        yield "Readers of main see the same row ids; the values were not all compared."


def _compared(evidence: DriftEvidence) -> bool:
    return any(column.digest_after is not None for column in evidence.columns)


def _by_count(evidence: DriftEvidence) -> str:
    if evidence.rows_before is None or evidence.rows_after is None:
        return "What readers of main would see is not known: a version could not be read."
    if evidence.rows_before == evidence.rows_after:
        return (
            f"Readers of main see as many rows as before ({evidence.rows_after:,}); which and their values are unread."
        )
    return f"Readers of main see {rows_text(evidence.rows_after)} instead of {evidence.rows_before:,}."


def _columns(evidence: DriftEvidence) -> Iterator[str]:
    for column in evidence.columns:
        if column.type_before is None:
            yield f"Column {column.column} ({column.type_after}) appears; the accepted schema may not declare it."
        elif column.type_after is None:
            yield f"Column {column.column} ({column.type_before}) disappears; the accepted schema may still declare it."
        elif column.type_before != column.type_after:
            yield f"Column {column.column} changes from {column.type_before} to {column.type_after}."


def _index(index: IndexEvidence) -> str | None:
    if index.after is None:
        return f"Index {index.name} is gone: queries on {', '.join(index.columns)} scan."
    if index.before is None:
        return f"Index {index.name} appears and covers {coverage_text(index.after)}."
    missing = index.after.rows - index.after.rows_covered
    missed = index.before.rows - index.before.rows_covered
    if missing == missed:
        return None
    how = "less" if missing > missed else "more"
    return f"Index {index.name} covers {how}: {coverage_text(index.after)} instead of {coverage_text(index.before)}."


def coverage_text(coverage: Coverage) -> str:
    """`90 of 120 rows in 2 of 3 fragments`. Pure."""
    return (
        f"{coverage.rows_covered:,} of {coverage.rows:,} rows in {coverage.fragments_covered} of "
        f"{coverage.fragments} fragments"
    )


def _branches(branches: tuple[BranchEvidence, ...]) -> Iterator[str]:
    unseen = [b.branch for b in branches if b.branch is not None and b.sees_change is False]
    unknown = [b.branch for b in branches if b.branch is not None and b.sees_change is None]
    if unseen:
        yield f"{_named(unseen)} see no change: each keeps the version it reads; branches made from main later see it."
    if unknown:
        yield f"What {_named(unknown)} read is not known."


def _named(branches: list[str]) -> str:
    more = f" and {len(branches) - MAX_NAMED} more" if len(branches) > MAX_NAMED else ""
    return (
        f"Branches {', '.join(branches[:MAX_NAMED])}{more}" if len(branches) > 1 else f"Readers of branch {branches[0]}"
    )


def rows_text(count: int) -> str:
    """`1 row`, `2,000 rows`. Pure."""
    return f"{count:,} row{'' if count == 1 else 's'}"

"""The tiers that look at rows: by id and recorded version, by value, and a handful of them in full."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from omnigraph_ops.lance.evidence import RowIds, column_hashes, row_versions, rows_by_id
from omnigraph_ops.models import ColumnEvidence, RowChange, ShownRow, ShownValue
from omnigraph_ops.stages.repair.evidence.compare import ColumnPair, RowDiff, diff_column, diff_rows
from omnigraph_ops.stages.repair.evidence.cost import SHOWN_PER_CHANGE
from omnigraph_ops.stages.repair.evidence.sides import Side, Sides
from omnigraph_ops.views.readable import is_blob_description, readable, short

MAX_COLUMNS = 20
_DIFFERS = " (differs further on)"


@dataclass(slots=True)
class BytesRead:
    """Bytes of data files read so far."""

    bytes_read: int = 0

    def count(self, number: int) -> None:
        self.bytes_read += number


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDiff:
    """Every column compared."""

    columns: tuple[ColumnEvidence, ...]
    changed: RowIds = field(default_factory=lambda: np.zeros(0, np.uint64))


def compare_rows(sides: Sides, meter: BytesRead) -> RowDiff:
    """Rows by id in the fragments that differ. Reads."""
    before = row_versions(sides.before.dataset, sides.differing_ids(sides.before))
    after = row_versions(sides.after.dataset, sides.differing_ids(sides.after))
    meter.count(before.bytes_read + after.bytes_read)
    return diff_rows(before, after)


def compare_values(sides: Sides, meter: BytesRead) -> ValueDiff:
    """Every value in the fragments that differ, one column at a time so that memory stays bounded. Reads."""
    columns: list[ColumnEvidence] = []
    changed = np.zeros(0, np.uint64)
    for pair in sides.columns:
        found, rows = _compare_column(sides, pair, meter)
        columns.append(found)
        changed = np.union1d(changed, rows)
    return ValueDiff(columns=tuple(columns), changed=changed)


def column_types(sides: Sides) -> tuple[ColumnEvidence, ...]:
    """The columns as far as metadata tells. Pure."""
    return tuple(
        _column(pair, equal=True if pair.comparable and sides.same_fragments else None) for pair in sides.columns
    )


def shown_rows(sides: Sides, diff: RowDiff, changed: RowIds | None, meter: BytesRead) -> tuple[ShownRow, ...]:
    """A handful of rows of each kind of change, in full. Reads."""
    added, removed = _first(diff.added), _first(diff.removed)
    both = _first(changed if changed is not None else np.zeros(0, np.uint64))
    before = rows_by_id(sides.before.dataset, sides.differing_ids(sides.before), removed + both)
    after = rows_by_id(sides.after.dataset, sides.differing_ids(sides.after), added + both)
    meter.count(before.bytes_read + after.bytes_read)
    kinds = ((RowChange.REMOVED, removed), (RowChange.ADDED, added), (RowChange.CHANGED, both))
    return tuple(_shown(i, kind, before.rows.get(i), after.rows.get(i), sides) for kind, ids in kinds for i in ids)


def _compare_column(sides: Sides, pair: ColumnPair, meter: BytesRead) -> tuple[ColumnEvidence, RowIds]:
    none = np.zeros(0, np.uint64)
    if pair.before is None or pair.after is None or not pair.comparable:
        return _column(pair, equal=False), none
    if sides.same_fragments:
        return _column(pair, equal=True, rows_changed=0), none
    before = column_hashes(sides.before.dataset, sides.differing_ids(sides.before), pair.before)
    after = column_hashes(sides.after.dataset, sides.differing_ids(sides.after), pair.after)
    meter.count(before.bytes_read + after.bytes_read)
    diff = diff_column(before, after)
    evidence = _column(
        pair,
        equal=diff.digest_before == diff.digest_after,
        rows_changed=len(diff.changed),
        digests=(diff.digest_before, diff.digest_after),
    )
    return evidence, diff.changed


def _column(
    pair: ColumnPair,
    *,
    equal: bool | None,
    rows_changed: int | None = None,
    digests: tuple[str, str] | None = None,
) -> ColumnEvidence:
    return ColumnEvidence(
        column=short(pair.name),
        type_before=None if pair.before is None else short(pair.before.type),
        type_after=None if pair.after is None else short(pair.after.type),
        digest_before=digests[0] if digests else None,
        digest_after=digests[1] if digests else None,
        equal=equal,
        rows_changed=rows_changed,
    )


def _first(ids: RowIds) -> list[int]:
    return [int(i) for i in ids[:SHOWN_PER_CHANGE]]


def _shown(
    row_id: int, change: RowChange, before: dict[str, object] | None, after: dict[str, object] | None, sides: Sides
) -> ShownRow:
    names = [pair.name for pair in sides.columns]
    return ShownRow(
        row_id=row_id,
        change=change,
        values=tuple(_value(name, before, after, sides) for name in names[:MAX_COLUMNS]),
        columns_omitted=max(len(names) - MAX_COLUMNS, 0),
    )


def _value(name: str, before: dict[str, object] | None, after: dict[str, object] | None, sides: Sides) -> ShownValue:
    old = _text(name, before, sides.before)
    new = _text(name, after, sides.after)
    if old is not None and old == new and before is not None and after is not None:
        a, b = before[name], after[name]
        # Two texts that are only equal because both were cut must not look equal; NaN equals itself here.
        if repr(a) != repr(b) and not is_blob_description(a):
            new += _DIFFERS
    return ShownValue(column=short(name), before=old, after=new)


def _text(name: str, row: dict[str, object] | None, side: Side) -> str | None:
    if row is None or all(c.name != name for c in side.columns):
        return None
    return readable(row[name])

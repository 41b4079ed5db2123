"""Which fragments, columns and rows differ between two versions of a table, tier by tier.

Rows are compared in this process, or in tasks of the job `evidence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from omnigraph_ops.errors import OpsError
from omnigraph_ops.lance.evidence import (
    ColumnFacts,
    FragmentPrint,
    RowIds,
    column_facts,
    column_hashes,
    fragment_prints,
    row_versions,
    rows_by_id,
)
from omnigraph_ops.lance.gateway import Dataset, live_rows
from omnigraph_ops.models.repair import ColumnEvidence, EvidenceTier, RowChange, ShownRow, ShownValue, TierCost
from omnigraph_ops.stages.repair.differences import (
    SHOWN_PER_CHANGE,
    ColumnDiff,
    Differences,
    RowDiff,
    Rows,
    diff_column,
    diff_rows,
)
from omnigraph_ops.stages.stage import Submit
from omnigraph_ops.views.view import is_blob_description, readable, short


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPair:
    """A column by name; a side is None where it does not exist."""

    name: str
    before: ColumnFacts | None
    after: ColumnFacts | None

    @property
    def comparable(self) -> bool:
        """Whether both sides have it with one type."""
        return self.before is not None and self.after is not None and self.before.type == self.after.type


def column_pairs(before: Sequence[ColumnFacts], after: Sequence[ColumnFacts]) -> tuple[ColumnPair, ...]:
    """Columns of both sides by name, those of the older side first. Pure."""
    old, new = {c.name: c for c in before}, {c.name: c for c in after}
    return tuple(ColumnPair(name=n, before=old.get(n), after=new.get(n)) for n in dict.fromkeys([*old, *new]))


def identical_fragments(
    before: Sequence[FragmentPrint], after: Sequence[FragmentPrint], columns: Sequence[ColumnPair]
) -> frozenset[int]:
    """Fragments that hold the same rows without a look at them: same id, files, deletions and row ids. Pure."""
    for pair in columns:
        if pair.before is not None and pair.after is not None and pair.before.field_id != pair.after.field_id:
            return frozenset()  # the same files are read as other columns
    prints = {f.fragment_id: f.print for f in before}
    return frozenset(f.fragment_id for f in after if prints.get(f.fragment_id) == f.print)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One version of the table."""

    dataset: Dataset
    fragments: tuple[FragmentPrint, ...]
    columns: tuple[ColumnFacts, ...]
    rows: int


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The published version and the Lance HEAD."""

    before: Side
    after: Side

    @cached_property
    def columns(self) -> tuple[ColumnPair, ...]:
        """Columns of both by name."""
        return column_pairs(self.before.columns, self.after.columns)

    @cached_property
    def identical(self) -> frozenset[int]:
        """Fragments that need no comparison."""
        return identical_fragments(self.before.fragments, self.after.fragments, self.columns)

    def differing(self, side: Side) -> tuple[FragmentPrint, ...]:
        """Fragments of a side that are not the same on the other. Pure."""
        return tuple(f for f in side.fragments if f.fragment_id not in self.identical)

    def differing_ids(self, side: Side) -> frozenset[int]:
        return frozenset(f.fragment_id for f in self.differing(side))

    @property
    def same_columns(self) -> bool:
        """Whether both have the same columns with the same types."""
        return all(pair.comparable for pair in self.columns)

    @property
    def same_fragments(self) -> bool:
        """Whether metadata alone proves that all rows are the same."""
        return not self.differing(self.before) and not self.differing(self.after)


def read_side(dataset: Dataset) -> Side:
    """The metadata of an open version. Reads."""
    return Side(
        dataset=dataset,
        fragments=fragment_prints(dataset),
        columns=column_facts(dataset),
        rows=live_rows(dataset),
    )


_ROW_READS = 4 * SHOWN_PER_CHANGE
"""Added and removed rows are read on one side, changed rows on both."""
_FOOTER = 2048
"""Metadata that Lance reads per data file and column."""
_PAGE = 4096
"""The least that reading one value of one column costs."""


def estimate(sides: Sides) -> tuple[TierCost, ...]:
    """The cost of every tier for one table, before any is run. Pure."""
    differing = (*sides.differing(sides.before), *sides.differing(sides.after))
    blobs = bool(differing) and any(c.is_blob for side in (sides.before, sides.after) for c in side.columns)
    columns = max(len(sides.columns), 1)
    stored = sum(f.data_bytes for f in differing)
    whole = stored + _FOOTER * columns * sum(f.files for f in differing)
    row = stored // max(sum(f.rows for f in differing), 1)
    sample = min(whole, _ROW_READS * (columns * _PAGE + row))
    return (
        TierCost(tier=EvidenceTier.COUNTS, estimated_bytes=0),
        TierCost(tier=EvidenceTier.SAMPLE, estimated_bytes=sample),
        TierCost(tier=EvidenceTier.FULL, estimated_bytes=whole + sample, at_least=blobs),
    )


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
    changed: Rows


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
    return ValueDiff(columns=tuple(columns), changed=Rows.of(changed))


def column_types(sides: Sides) -> tuple[ColumnEvidence, ...]:
    """The columns as far as metadata tells. Pure."""
    return tuple(
        _column(pair, equal=True if pair.comparable and sides.same_fragments else None) for pair in sides.columns
    )


def shown_rows(sides: Sides, diff: RowDiff, changed: Rows | None, meter: BytesRead) -> tuple[ShownRow, ...]:
    """A handful of rows of each kind of change, in full. Reads."""
    added, removed = diff.added.first, diff.removed.first
    both = changed.first if changed is not None else ()
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
    diff, changed = diff_column(before, after)
    return compared_column(pair, diff), changed


def compared_column(pair: ColumnPair, diff: ColumnDiff) -> ColumnEvidence:
    """A column whose values were compared. Pure."""
    return _column(
        pair,
        equal=diff.before == diff.after,
        rows_changed=diff.changed,
        digests=(diff.before.text, diff.after.text),
    )


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


def content_verdict(sides: Sides, diff: RowDiff | None, values: ValueDiff | None) -> tuple[bool | None, str]:
    """Equal, different or unknown (None), with the reason; `diff` and `values` as far as they were read. Pure."""
    if not sides.same_columns:
        return False, "the columns differ"
    if sides.same_fragments:
        return True, "every fragment is the same: its files, its deletions and its row ids"
    if sides.before.rows != sides.after.rows:
        return False, "the number of rows differs"
    if diff is None:
        return None, "no row was looked at"
    if len(diff.added) or len(diff.removed):
        return False, "rows were added or removed"
    return _by_values(diff, values)


def _by_values(diff: RowDiff, values: ValueDiff | None) -> tuple[bool | None, str]:
    if values is not None:
        if len(values.changed):
            return False, "values differ"
        return True, "every value of every row outside identical fragments was compared, by 64-bit hash"
    if diff.rewritten is not None and not len(diff.rewritten):
        return None, "the row ids are the same and no row is recorded as written again; values were not compared"
    return None, "the row ids are the same; values were not compared"


class Here:
    """Compares in this process, one column at a time."""

    rows = staticmethod(compare_rows)
    values = staticmethod(compare_values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What the job `evidence` found."""

    differences: Differences
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """Compares in tasks of the job `evidence`; what is estimated below `from_bytes` is compared in this process."""

    submit: Submit
    check: Callable[[], None]
    tier: EvidenceTier
    from_bytes: int = 0
    _found: dict[int, Compared] = field(default_factory=dict)
    """The values of the table that is at work, by the identity of its sides: one job reads rows and values."""

    def rows(self, sides: Sides, meter: BytesRead) -> RowDiff:
        """Submit, and keep the values for later. Reads."""
        self._found.clear()
        if not self._is_worth_it(sides):
            return compare_rows(sides, meter)
        found = self.submit("evidence", self._words(sides), Compared, self.check)
        meter.count(found.bytes_read)
        self._found[id(sides)] = found
        return found.differences.rows

    def values(self, sides: Sides, meter: BytesRead) -> ValueDiff:
        """What the job of `rows` found. Reads where that was not submitted."""
        if id(sides) in self._found:
            return value_diff(sides, self._found[id(sides)].differences)
        if self._is_worth_it(sides):
            raise OpsError("the values were not compared, because the job that reads them failed")
        return compare_values(sides, meter)

    def _is_worth_it(self, sides: Sides) -> bool:
        cost = next(c.estimated_bytes for c in estimate(sides) if c.tier is self.tier)
        return not sides.same_fragments and cost >= self.from_bytes

    def _words(self, sides: Sides) -> tuple[str, ...]:
        before, after = sides.before.dataset, sides.after.dataset
        versions = ("--before", str(int(before.version)), "--after", str(int(after.version)))
        values = ("--values",) if self.tier is EvidenceTier.FULL else ()
        return ("--dataset", str(after.uri), *versions, *values)


Comparison = Here | OnSpark
"""Compares the fragments of one table that differ: rows by id first, then every value."""


def value_diff(sides: Sides, found: Differences) -> ValueDiff:
    """The columns of both sides with what was found about those that can be compared. Pure."""
    compared = iter(found.columns)
    return ValueDiff(
        columns=tuple(
            compared_column(pair, next(compared)) if pair.comparable else _column(pair, equal=False)
            for pair in sides.columns
        ),
        changed=found.changed,
    )

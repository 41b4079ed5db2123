"""Differences of rows and values as sums: those of parts of a table add up to those of the whole.

The same functions compare a whole table in one process and a part of one in a Spark task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from omnigraph_ops.lance.evidence import ColumnHashes, RowIds, RowVersions, row_marks

SHOWN_PER_CHANGE = 5
"""Rows shown of each kind of change."""
_WRAP = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows: how many, and the lowest row ids."""

    count: int = 0
    first: tuple[int, ...] = ()

    @classmethod
    def of(cls, ids: RowIds) -> Rows:
        """Rows by their sorted ids. Pure."""
        return cls(count=len(ids), first=tuple(int(i) for i in ids[:SHOWN_PER_CHANGE]))

    def __len__(self) -> int:
        return self.count

    def __add__(self, other: Rows) -> Rows:
        """These and other rows, none of which are the same. Pure."""
        return Rows(count=self.count + other.count, first=tuple(sorted((*self.first, *other.first))[:SHOWN_PER_CHANGE]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDiff:
    """Rows by id."""

    added: Rows = Rows()
    removed: Rows = Rows()
    rewritten: Rows | None = Rows()
    """Rows of both sides that Lance records as created or written by another version; None if it does not record it."""

    def __add__(self, other: RowDiff) -> RowDiff:
        known = self.rewritten is not None and other.rewritten is not None
        return RowDiff(
            added=self.added + other.added,
            removed=self.removed + other.removed,
            rewritten=(self.rewritten or Rows()) + (other.rewritten or Rows()) if known else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSum:
    """A digest of a column that does not depend on the order of its rows: two sums over rows, modulo 2^64."""

    rows: int = 0
    one: int = 0
    two: int = 0

    @classmethod
    def of(cls, column: ColumnHashes) -> ColumnSum:
        """The digest of some rows. Pure."""
        one, two = row_marks(column.ids, column.hashes)
        return cls(rows=len(column.ids), one=int(one.sum(dtype=np.uint64)), two=int(two.sum(dtype=np.uint64)))

    def __add__(self, other: ColumnSum) -> ColumnSum:
        return ColumnSum(
            rows=self.rows + other.rows, one=(self.one + other.one) % _WRAP, two=(self.two + other.two) % _WRAP
        )

    @property
    def text(self) -> str:
        """As a person compares it. Pure."""
        return f"{self.rows:x}:{self.one:016x}{self.two:016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDiff:
    """One column on both sides, and how many rows of both have other values."""

    before: ColumnSum = ColumnSum()
    after: ColumnSum = ColumnSum()
    changed: int = 0

    def __add__(self, other: ColumnDiff) -> ColumnDiff:
        return ColumnDiff(
            before=self.before + other.before, after=self.after + other.after, changed=self.changed + other.changed
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What differs in some rows of a table, whole rows and column by column."""

    rows: RowDiff
    columns: tuple[ColumnDiff, ...]
    changed: Rows = Rows()
    """Rows of both sides with another value in any column."""

    def __add__(self, other: Differences) -> Differences:
        return Differences(
            rows=self.rows + other.rows,
            columns=tuple(a + b for a, b in zip(self.columns, other.columns, strict=True)),
            changed=self.changed + other.changed,
        )


def diff_rows(before: RowVersions, after: RowVersions) -> RowDiff:
    """Rows added, removed and rewritten, by stable row id. Pure."""
    common, old, new = np.intersect1d(before.ids, after.ids, assume_unique=True, return_indices=True)
    rewritten = _rewritten(common, list(_stamps(before, old)), list(_stamps(after, new)))
    return RowDiff(
        # `setdiff1d` keeps the order of ids that it may take for unique.
        added=Rows.of(np.sort(np.setdiff1d(after.ids, common, assume_unique=True))),
        removed=Rows.of(np.sort(np.setdiff1d(before.ids, common, assume_unique=True))),
        rewritten=None if rewritten is None else Rows.of(rewritten),
    )


def diff_column(before: ColumnHashes, after: ColumnHashes) -> tuple[ColumnDiff, RowIds]:
    """One column of two versions, row by row, and the rows that changed, sorted. Pure."""
    common, i, j = np.intersect1d(before.ids, after.ids, assume_unique=True, return_indices=True)
    changed = common[before.hashes[i] != after.hashes[j]]
    return ColumnDiff(before=ColumnSum.of(before), after=ColumnSum.of(after), changed=len(changed)), changed


def _stamps(rows: RowVersions, chosen: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> Iterator[RowIds]:
    yield rows.created[chosen]
    yield rows.updated[chosen]


def _rewritten(common: RowIds, before: list[RowIds], after: list[RowIds]) -> RowIds | None:
    if any((stamps == 0).any() for stamps in [*before, *after]):
        return None
    differs = np.zeros(len(common), bool)
    for old, new in zip(before, after, strict=True):
        differs |= old != new
    return common[differs]

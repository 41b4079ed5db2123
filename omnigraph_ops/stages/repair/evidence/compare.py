"""Which fragments, columns and rows differ between two versions of a table. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from omnigraph_ops.lance.evidence import ColumnFacts, ColumnHashes, FragmentPrint, RowIds, RowVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDiff:
    """Rows by id, each array sorted."""

    added: RowIds
    removed: RowIds
    common: RowIds
    rewritten: RowIds | None
    """Common rows that Lance records as created or written by another version; None if it does not record it."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDiff:
    """Digests of one column over its rows in id order, and the common rows whose values differ."""

    digest_before: str
    digest_after: str
    changed: RowIds


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


def diff_rows(before: RowVersions, after: RowVersions) -> RowDiff:
    """Rows added, removed and rewritten, by stable row id. Pure."""
    common, old, new = np.intersect1d(before.ids, after.ids, assume_unique=True, return_indices=True)
    return RowDiff(
        added=np.setdiff1d(after.ids, common, assume_unique=True),
        removed=np.setdiff1d(before.ids, common, assume_unique=True),
        common=common,
        rewritten=_rewritten(common, list(_stamps(before, old)), list(_stamps(after, new))),
    )


def diff_column(before: ColumnHashes, after: ColumnHashes) -> ColumnDiff:
    """One column of two versions, row by row. Pure."""
    old_ids, old = _by_id(before)
    new_ids, new = _by_id(after)
    common, i, j = np.intersect1d(old_ids, new_ids, assume_unique=True, return_indices=True)
    return ColumnDiff(
        digest_before=_digest(old_ids, old),
        digest_after=_digest(new_ids, new),
        changed=common[old[i] != new[j]],
    )


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


def _by_id(column: ColumnHashes) -> tuple[RowIds, RowIds]:
    order = np.argsort(column.ids)
    return column.ids[order], column.hashes[order]


def _digest(ids: RowIds, hashes: RowIds) -> str:
    text = hashlib.sha256(ids.tobytes())
    text.update(hashes.tobytes())
    return text.hexdigest()

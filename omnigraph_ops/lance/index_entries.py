"""Entries that indexes keep of rows that are gone, or that say something else by now; which indexes must drop them.

Rows are compared by their stable ids. Without such ids a rewrite writes every index anew, so nothing is looked for.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from lance.file import LanceFileReader

from omnigraph_ops.lance.gateway import Dataset, LanceFailure, described, lance_errors
from omnigraph_ops.lance.row_ids import Ids
from omnigraph_ops.lance.tables import (
    BTREE_DETAILS,
    TEXT_DETAILS,
    VECTOR_DETAILS,
    FragmentFacts,
    IndexFacts,
    TableFacts,
    index_type_of,
)

_BATCH_ROWS = 1_000_000
KINDS = (BTREE_DETAILS, TEXT_DETAILS, VECTOR_DETAILS)
"""The details of the kinds of indexes whose entries can be read, which are those that the engine builds."""


def stale_indexes(dataset: Dataset, facts: TableFacts) -> frozenset[str]:
    """The BTREE and text indexes with wrong entries of updated rows, by name; empty when none has. Reads.

    Before Lance 9 a fold keeps every entry whose row id is still in the metadata of a fragment that the index covered.
    An updated row keeps its id, and its old fragment keeps the id until a tenth of it is deleted. So the index gets a
    second entry of that row: every load by key fails from then on ("from_sorted_iter called with non-sorted input"),
    and a text search finds what a row no longer says. No later fold takes the old entries out, of whichever Lance.
    A fold also drops entries of rows that are there, where some fragment seems to say that they are gone (rewrites.py):
    searches do not find such a row, and a load by key inserts it a second time.

    A BTREE with two entries of one row tells, and so does one without an entry of a row that it covers. It is looked
    into only where rows were ever updated, or where it is folded anyway. The text indexes of the table were folded
    with it.
    """
    suspect = has_updated_rows(dataset)
    live = {f.fragment_id: f.live_rows for f in facts.fragments}
    trees = {i.name: i for i in facts.indexes if index_type_of(i) == "BTREE" and (suspect or _is_behind(i, live))}

    @functools.cache  # most indexes cover the same fragments
    def rows_of(fragments: frozenset[int]) -> Runs:
        return _rows(dataset, fragments)

    def is_stale(index: IndexFacts, entries: list[LanceFileReader]) -> bool:
        covered = index.covered.intersection(live)
        if sum(int(file.num_rows()) for file in entries) < sum(live[fragment] for fragment in covered):
            return True
        ids = np.sort(np.concatenate([np.zeros(0, np.uint64), *_ids(entries)]))
        return bool((ids[1:] == ids[:-1]).any()) or not rows_of(covered).are_in(ids)

    stale = {name for name, found in _judged(dataset, trees, is_stale) if found}
    return frozenset(stale | {i.name for i in facts.indexes if stale and index_type_of(i) == "INVERTED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEntries:
    """The indexes with entries of rows that are gone, by name."""

    found: frozenset[str] = frozenset()
    possible: frozenset[str] = frozenset()
    """Those that were found, and those that cannot be read."""


def limited_kinds(*, texts: bool) -> tuple[str, ...]:
    """The details of the kinds of indexes that Lance asks for a limited number of rows, text only if `texts`. Pure."""
    return (VECTOR_DETAILS, TEXT_DETAILS) if texts else (VECTOR_DETAILS,)


def with_dead_entries(dataset: Dataset, facts: TableFacts, kinds: Collection[str]) -> DeadEntries:
    """Look for entries of rows that are gone; only writing the index anew drops them. Reads the ids of all rows."""
    wanted = {i.name: i for i in facts.indexes if i.details in kinds}
    if not wanted or not dataset.has_stable_row_ids:
        return DeadEntries()
    there = _rows(dataset)

    def has_dead(_index: IndexFacts, entries: list[LanceFileReader]) -> bool:
        return not all(there.has(ids) for ids in _ids(entries))

    judged = dict(_judged(dataset, wanted, has_dead))
    return DeadEntries(
        found=frozenset(name for name, dead in judged.items() if dead),
        possible=frozenset(name for name, dead in judged.items() if dead is not False),
    )


def shown_dead_entries(facts: TableFacts, dead: Collection[str]) -> frozenset[str]:
    """Those of the indexes with dead entries whose queries meet these. Pure.

    Lance looks only for rows that are there while a fragment that the index covers has a deletion file, or is gone.
    When a compaction has dropped the last of these files, entries of rows that are gone take the places of the nearest
    or the most relevant: a query for ten rows finds fewer, or none (Lance 7 to 13).
    """
    whole = {f.fragment_id for f in facts.fragments if not f.deleted_rows}
    return frozenset(i.name for i in facts.indexes if i.name in dead and i.covered <= whole)


def deleted_since(
    before: Mapping[int, int], fragments: Iterable[FragmentFacts], indexes: Iterable[IndexFacts], kinds: Collection[str]
) -> frozenset[int]:
    """The fragments with deletions that were not looked at, and with entries of such an index. Pure.

    Args:
        before: deleted rows by fragment, when the index was looked at.
    """
    covered = frozenset[int]().union(*(i.covered for i in indexes if i.details in kinds))
    return frozenset(
        f.fragment_id for f in fragments if f.fragment_id in covered and f.deleted_rows > before.get(f.fragment_id, 0)
    )


@dataclass(frozen=True, slots=True)
class Runs:
    """Numbers as runs of neighbours, sorted and apart: few where numbers were counted up."""

    first: Ids
    last: Ids

    @classmethod
    def of(cls, batches: Iterable[Ids]) -> Runs:
        """The runs of numbers in any order, without repetitions. Pure."""
        none = np.zeros(0, np.uint64)
        firsts, lasts = [none], [none]
        for batch in batches:
            numbers = np.sort(batch)
            ends = np.flatnonzero(np.diff(numbers) != 1)
            firsts.append(numbers[np.concatenate([[0], ends + 1])] if len(numbers) else none)
            lasts.append(numbers[np.concatenate([ends, [-1]])] if len(numbers) else none)
        first, last = np.concatenate(firsts), np.concatenate(lasts)
        order = np.argsort(first)
        return cls(first[order], last[order])

    def has(self, numbers: Ids) -> bool:
        """Whether all of them are there. Pure."""
        at = np.searchsorted(self.first, numbers, side="right") - 1
        return bool((at >= 0).all() and (numbers <= self.last[at]).all())

    def are_in(self, numbers: Ids) -> bool:
        """Whether all of its numbers are among these, which are sorted and stand once. Pure."""
        found = np.searchsorted(numbers, self.last, side="right") - np.searchsorted(numbers, self.first)
        return bool((found == self.last - self.first + np.uint64(1)).all())


def has_updated_rows(dataset: Dataset) -> bool:
    """Whether there are rows that were updated after they were inserted, rewritten since or not. Reads."""
    with lance_errors(f"inspect the fragments of {dataset.uri}"):
        return any(_is_updated(fragment.metadata) for fragment in dataset.get_fragments())


def _is_updated(fragment: Any) -> bool:
    inserted, updated = fragment.created_at_version_meta, fragment.last_updated_at_version_meta
    return bool((inserted and inserted.json()) != (updated and updated.json()))


def _is_behind(index: IndexFacts, live: dict[int, int]) -> bool:
    return index.segments > 1 or not index.covered.issuperset(live)


def _judged(
    dataset: Dataset, wanted: Mapping[str, IndexFacts], is_true: Callable[[IndexFacts, list[LanceFileReader]], bool]
) -> Iterator[tuple[str, bool | None]]:
    """Each index by name with whether something is true of its entries; None where they cannot be read. Reads."""
    if not wanted:
        return
    with lance_errors(f"inspect the indexes of {dataset.uri}"):
        # The index of a clone may be its original's.
        roots = {None: str(dataset.uri)} | {number: str(base.path) for number, base in dataset.base_paths().items()}
        segments = [(i.name, segment) for i in described(dataset) if i.name in wanted for segment in i.segments]
    for name, index in wanted.items():
        folders = [f"{roots[s.base_id]}/_indices/{s.uuid}" for of, s in segments if of == name]
        try:
            with lance_errors(f"read index {name} of {dataset.uri}"):
                options = dataset.initial_storage_options
                entries = [file for folder in folders for file in _entry_files(folder, index, options)]
                yield name, is_true(index, entries)
        except LanceFailure:
            yield name, None


_ENTRIES = {BTREE_DETAILS: ("page_data.lance", "ids"), VECTOR_DETAILS: ("auxiliary.idx", "_rowid")}
"""Where an index has the row ids of its entries, by its details: file and column."""


def _entry_files(folder: str, index: IndexFacts, options: dict[str, str] | None) -> list[LanceFileReader]:
    """The files of one segment with its entries, opened for their row ids; `LanceFailure` without parts. Reads."""
    if index.details != TEXT_DETAILS:
        file, column = _ENTRIES[index.details]
        return [LanceFileReader(f"{folder}/{file}", options, columns=[column])]
    written = LanceFileReader(f"{folder}/metadata.lance", options).metadata().schema.metadata
    if b"partitions" not in written:
        raise LanceFailure(f"{folder} does not list its parts")
    parts = [f"part_{number}_docs.lance" for number in json.loads(written[b"partitions"])]
    return [LanceFileReader(f"{folder}/{part}", options, columns=["_rowid"]) for part in parts]


def _ids(files: Iterable[LanceFileReader]) -> Iterator[Ids]:
    for file in files:
        for batch in file.read_all(batch_size=_BATCH_ROWS).to_batches():
            yield batch.column(0).to_numpy()


def _rows(dataset: Dataset, fragments: Collection[int] | None = None) -> Runs:
    """The row ids of these fragments, or of all, less the deleted ones. Reads row ids alone."""
    with lance_errors(f"list the rows of {dataset.uri}"):
        wanted = None
        if fragments is not None:
            wanted = [f for f in dataset.get_fragments() if f.fragment_id in fragments]
        if wanted == []:
            return Runs.of(())
        scanner = dataset.scanner(columns=[], with_row_id=True, batch_size=_BATCH_ROWS, fragments=wanted)
        return Runs.of(batch.column("_rowid").to_numpy() for batch in scanner.to_batches())

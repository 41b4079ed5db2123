"""Entries of updated rows that the Lance of an engine left in the indexes of a table.

Before Lance 9 a fold keeps every entry whose row id is still in the metadata of a fragment that the index covered. An
updated row keeps its id, and its old fragment keeps the id until a tenth of it is deleted. So the index gets a second
entry of that row: every load by key fails from then on ("from_sorted_iter called with non-sorted input"), and a text
search finds what a row no longer says. No later fold takes the old entries out, of whichever Lance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from lance.file import LanceFileReader

from omnigraph_ops.lance.gateway import Dataset, LanceFailure, lance_errors
from omnigraph_ops.lance.tables import IndexFacts, TableFacts, described, index_type_of

_BATCH_ROWS = 1_000_000


def stale_indexes(dataset: Dataset, facts: TableFacts) -> frozenset[str]:
    """The BTREE and text indexes with such entries, by name; empty when there are none. Reads.

    A BTREE with two entries of one row tells, and is looked into only where rows were ever updated, or where it is
    folded anyway. The text indexes of the table were folded with it.
    """
    suspect = _has_updated_rows(dataset)
    live = {f.fragment_id: f.physical_rows - f.deleted_rows for f in facts.fragments}
    trees = {i.name: i for i in facts.indexes if index_type_of(i) == "BTREE" and (suspect or _is_behind(i, live))}
    stale = frozenset(name for name, files in _files(dataset, trees) if _is_stale(dataset, trees[name], files, live))
    return stale | frozenset(i.name for i in facts.indexes if stale and index_type_of(i) == "INVERTED")


def _has_updated_rows(dataset: Dataset) -> bool:
    """Whether there are rows that were updated after they were inserted, rewritten since or not. Reads."""
    with lance_errors(f"inspect the fragments of {dataset.uri}"):
        return any(_is_updated(fragment.metadata) for fragment in dataset.get_fragments())


def _is_updated(fragment: Any) -> bool:
    inserted, updated = fragment.created_at_version_meta, fragment.last_updated_at_version_meta
    return bool((inserted and inserted.json()) != (updated and updated.json()))


def _is_behind(index: IndexFacts, live: dict[int, int]) -> bool:
    return index.segments > 1 or not index.covered.issuperset(live)


def _files(dataset: Dataset, trees: dict[str, IndexFacts]) -> Iterator[tuple[str, list[str]]]:
    """Of each index the files with its entries. Reads."""
    if trees:
        with lance_errors(f"inspect the indexes of {dataset.uri}"):
            found = [(i.name, list(i.segments)) for i in described(dataset) if i.name in trees]
        for name, segments in found:
            # Those of a clone are its original's.
            if all(segment.base_id is None for segment in segments):
                yield name, [f"{dataset.uri}/_indices/{segment.uuid}/page_data.lance" for segment in segments]


def _is_stale(dataset: Dataset, index: IndexFacts, files: list[str], live: dict[int, int]) -> bool:
    """Whether one row has two entries. Reads the ids of all entries where there are more of them than live rows."""
    options = dataset.initial_storage_options
    try:
        with lance_errors(f"read index {index.name} of {dataset.uri}"):
            readers = [LanceFileReader(file, options, columns=["ids"]) for file in files]
            entries = sum(int(reader.num_rows()) for reader in readers)
            if entries <= sum(rows for fragment, rows in live.items() if fragment in index.covered):
                return False
            return _repeats(ids for reader in readers for ids in _ids(reader))
    except LanceFailure:
        return False  # its files are gone, perhaps: a fold finds that out and builds it anew


def _ids(reader: LanceFileReader) -> Iterator[npt.NDArray[np.uint64]]:
    for batch in reader.read_all(batch_size=_BATCH_ROWS).to_batches():
        yield batch.column(0).to_numpy()


def _repeats(batches: Iterator[npt.NDArray[np.uint64]]) -> bool:
    """Whether a number stands twice; a byte for each up to the largest, as row ids are counted up. Pure."""
    seen = np.zeros(0, dtype=bool)
    for ids in batches:
        if not len(ids):
            continue
        seen = np.concatenate([seen, np.zeros(max(0, int(ids.max()) + 1 - len(seen)), dtype=bool)])
        if len(np.unique(ids)) < len(ids) or seen[ids].any():
            return True
        seen[ids] = True
    return False

"""All rows of a small dataset that is read again and again while commits append to it, as a graph manifest is."""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

import lance
import numpy as np
import pyarrow as pa

from omnigraph_ops.lance.gateway import Dataset

_ADDRESS = "_rowaddr"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the last read found."""

    schema: pa.Schema
    by_fragment: Mapping[Hashable, pa.Table] = field(default_factory=dict)
    rows: pa.Table | None = None
    """Those of all fragments, one after the other."""
    manifest: bytes = b""
    """Of the version that was read, as it is stored."""


class FragmentRows:
    """Reads each fragment once. A fragment never changes: one with other rows has other files. For any thread."""

    def __init__(self, most_bytes: int = 64 * 1024 * 1024) -> None:
        self._most_bytes = most_bytes
        """Larger datasets are read anew each time."""
        self._kept = _Kept(pa.schema([]))

    def of(self, dataset: Dataset) -> pa.Table:
        """The rows of the version that is open, in its order. Reads the fragments that the last call did not see."""
        # Not by the number of the version: a branch may be made anew, and a graph may be restored in its place.
        kept, manifest = self._kept, pickle.dumps(dataset)
        if kept.rows is not None and kept.manifest == manifest:
            return kept.rows
        fragments = {_files(f.metadata): f for f in dataset.get_fragments()}
        if kept.schema != dataset.schema:
            kept = _Kept(dataset.schema)
        if kept.rows is not None and list(kept.by_fragment) == list(fragments):
            self._kept = replace(kept, manifest=manifest)
            return kept.rows
        new = {key: f for key, f in fragments.items() if key not in kept.by_fragment}
        read = _read(dataset, list(new.values()))
        found = {**kept.by_fragment, **{key: read[f.fragment_id] for key, f in new.items()}}
        by_fragment = {key: found[key] for key in fragments}
        rows = pa.concat_tables([kept.schema.empty_table(), *by_fragment.values()]).combine_chunks()
        self._kept = (
            _Kept(kept.schema, by_fragment, rows, manifest) if rows.nbytes <= self._most_bytes else _Kept(kept.schema)
        )
        return rows


def _files(fragment: lance.FragmentMetadata) -> Hashable:
    """What a fragment consists of: random names, which no other rows ever have. Pure."""
    deleted = fragment.deletion_file
    data = tuple((file.path, file.base_id, tuple(file.fields)) for file in fragment.files)
    return fragment.id, data, repr(fragment.overlays), deleted and tuple(deleted.asdict().values())


def _read(dataset: Dataset, fragments: list[lance.LanceFragment]) -> dict[int, pa.Table]:
    """The rows of some fragments by their ids, in one scan. Reads."""
    found = {f.fragment_id: dataset.schema.empty_table() for f in fragments}
    if not fragments:
        return found
    rows = dataset.scanner(fragments=fragments, with_row_address=True, scan_in_order=True).to_table()
    of = rows.column(_ADDRESS).to_numpy() >> np.uint64(32)
    starts = [0, *(np.flatnonzero(of[1:] != of[:-1]) + 1).tolist()] if len(of) else []
    rows = rows.drop_columns([_ADDRESS])
    for start, end in zip(starts, [*starts[1:], len(of)], strict=True):
        found[int(of[start])] = rows.slice(start, end - start)
    return found

"""All rows of a small dataset that is read again and again while commits append to it, as a graph manifest is."""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import lance
import numpy as np
import pyarrow as pa

from omnigraph_ops.lance.gateway import Dataset

_ADDRESS = "_rowaddr"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What the last read found."""

    schema: pa.Schema
    by_fragment: Mapping[Hashable, pa.Table]
    rows: pa.Table
    """Those of all fragments, one after the other."""
    manifest: bytes
    """Of the version that was read, as it is stored."""


class FragmentRows:
    """Reads each fragment of a branch once. A fragment never changes: one with other rows has other files.

    For any thread.
    """

    def __init__(self, most_bytes: int = 64 * 1024 * 1024) -> None:
        self._most_bytes = most_bytes
        """Of all chains together; what was read longest ago is read anew."""
        self._kept: dict[str | None, _Kept] = {}

    def of(self, dataset: Dataset, branch: str | None = None) -> pa.Table:
        """The rows of the version that is open, in its order. Reads the fragments that the last call did not see.

        Args:
            branch: whose version is open.
        """
        # Not by the number of the version: a branch may be made anew, and a graph may be restored in its place.
        kept, manifest = self._kept.get(branch), pickle.dumps(dataset)
        if kept is not None and kept.manifest == manifest:
            return kept.rows
        schema, fragments = dataset.schema, {_files(f.metadata): f for f in dataset.get_fragments()}
        if kept is not None and kept.schema == schema and list(kept.by_fragment) == list(fragments):
            return self._keep(branch, replace(kept, manifest=manifest))
        known = kept.by_fragment if kept is not None and kept.schema == schema else {}
        new = {key: f for key, f in fragments.items() if key not in known}
        read = _read(dataset, list(new.values()))
        found = {**known, **{key: read[f.fragment_id] for key, f in new.items()}}
        by_fragment = {key: found[key] for key in fragments}
        rows = pa.concat_tables([schema.empty_table(), *by_fragment.values()]).combine_chunks()
        return self._keep(branch, _Kept(schema=schema, by_fragment=by_fragment, rows=rows, manifest=manifest))

    def _keep(self, branch: str | None, read: _Kept) -> pa.Table:
        """Remember what was read last, as far as it is not too much; its rows."""
        others = [(name, kept) for name, kept in self._kept.items() if name != branch]
        left, kept = self._most_bytes, list[tuple[str | None, _Kept]]()
        for name, each in [(branch, read), *reversed(others)]:
            left -= each.rows.nbytes
            kept += [(name, each)] if left >= 0 else []
        self._kept = dict(reversed(kept))
        return read.rows


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

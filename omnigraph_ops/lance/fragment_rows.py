"""The rows of a small dataset, of which many versions are read: each fragment of it once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

import lance
import numpy as np
import pyarrow as pa

from omnigraph_ops.lance.gateway import Dataset, LanceFailure, manifest_of, message_fields

_FRAGMENT = 2
"""The number of a fragment in the message of a manifest."""
_ID = 1
"""The number of the id in the message of a fragment."""
_ADDRESS = "_rowaddr"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What the last read found."""

    schema: pa.Schema
    by_fragment: Mapping[bytes, pa.Table]
    """The rows of each fragment by what the manifest says of it."""
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
        # Not by the number of the version: a branch may be made anew, and a graph may be restored in its place. That a
        # version does not always look like itself costs a look at its fragments.
        kept, manifest = self._kept.get(branch), manifest_of(dataset)
        if kept is not None and kept.manifest == manifest:
            return kept.rows
        schema, fragments = dataset.schema, _fragments_of(dataset, manifest)
        if kept is None or kept.schema != schema:
            kept = _Kept(schema=schema, by_fragment={}, rows=schema.empty_table(), manifest=b"")
        known = kept.by_fragment
        if list(known) == fragments:
            return self._keep(branch, replace(kept, manifest=manifest))
        new = {key: fragment_id(key) for key in fragments if key not in known}
        read = _read(dataset, list(new.values()))
        by_fragment = {key: read[new[key]] if key in new else known[key] for key in fragments}
        # Most versions begin as the one before, and joining a thousand fragments takes longer than copying their rows.
        same = list(takewhile(lambda pair: pair[0] == pair[1], zip(known, fragments, strict=False)))
        begin = kept.rows.slice(0, sum(known[key].num_rows for key, _ in same))
        rows = pa.concat_tables([begin, *(by_fragment[key] for key in fragments[len(same) :])]).combine_chunks()
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


def _fragments_of(dataset: Dataset, manifest: bytes) -> list[bytes]:
    """Each fragment of the open version as its manifest describes it, with random names that no others ever have. Pure.

    Raises:
        LanceFailure: they are not as many as Lance says.
    """
    # Not by `get_fragments`: that makes Python objects of all fragments, of which a graph manifest has one more after
    # each publish, and in pylance 13 every access to the `path` of a data file defines a class.
    fragments = fragments_in(manifest)
    if len(fragments) != dataset._ds.count_fragments():
        raise LanceFailure(f"the manifest of {dataset.uri} lists other fragments than Lance finds in it")
    return fragments


def fragments_in(manifest: bytes) -> list[bytes]:
    """The message of each fragment, in their order. Pure."""
    return [field.data for field in message_fields(manifest) if field.field_number == _FRAGMENT]


def fragment_id(fragment: bytes) -> int:
    """The id in the message of a fragment, which leaves it out where it is zero. Pure."""
    return next((int(field.data) for field in message_fields(fragment) if field.field_number == _ID), 0)


def _read(dataset: Dataset, numbers: list[int]) -> dict[int, pa.Table]:
    """The rows of some fragments by their ids, in one scan. Reads."""
    found = {number: dataset.schema.empty_table() for number in numbers}
    if not numbers:
        return found
    fragments = [lance.LanceFragment(dataset, number) for number in numbers]
    rows = dataset.scanner(fragments=fragments, with_row_address=True, scan_in_order=True).to_table()
    of = rows.column(_ADDRESS).to_numpy() >> np.uint64(32)
    starts = [0, *(np.flatnonzero(of[1:] != of[:-1]) + 1).tolist()] if len(of) else []
    rows = rows.drop_columns([_ADDRESS])
    for start, end in zip(starts, [*starts[1:], len(of)], strict=True):
        found[int(of[start])] = rows.slice(start, end - start)
    return found

"""Rewrites that readers could not read: pages whose nulls take as much memory as their one value.

From format 2.2 on, Lance writes a page whose values are all the same as that value and the places of its nulls, and a
reader gets the value in place of each null as well (lance-encoding 7 to 13, `ConstantPageDecoder`). Fragments without
any value share a page with the one that has a value once they are merged: one note of 30 KB in 80,000 rows became
2.4 GB, and the engine, which joins what it read, failed with "Offset overflow error".
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph_ops.lance.gateway import Dataset, LanceFailure, lance_errors
from omnigraph_ops.lance.rewrites import RewriteResult, result_sources
from omnigraph_ops.lance.tables import fields_of

_FIRST_FORMAT = (2, 2)
_HEADER_BYTES = 20
"""What precedes a text of at most 2 GiB in its buffer: their count, their lengths and two offsets."""
_LEVEL_BYTES = 2
"""Of each row in the buffer that tells the nulls."""
_MOST_BYTES = 2**30
"""Half of what an array of text holds: the values of the other pages come on top."""
_LEAST_BYTES = 2**24
"""What new files may add without a look at the files that stay."""


def swollen(dataset: Dataset, results: Sequence[str]) -> dict[int, str]:
    """The results, by number, that would make readers fail, with the column. Reads footers, of new files mostly.

    Args:
        dataset: the table that the results are for; its fragments that no result replaces stay.
    """
    if not results:
        return {}
    with lance_errors(f"read the footers of {dataset.uri}"):
        groups = [RewriteResult.from_json(payload).new_fragments for payload in results]
        replaced = {number for payload in results for number, _ in result_sources(payload)}
        staying = [f.metadata for f in dataset.get_fragments() if f.fragment_id not in replaced]
        if sum(map(_bound, (*staying, *itertools.chain(*groups)))) <= _MOST_BYTES:
            return {}
        columns = _texts(dataset)
        made = [_sizes(dataset, fragments, columns) for fragments in groups]
        large = {field for field, size in sum(made, Counter[int]()).items() if size >= _LEAST_BYTES}
        total = _sizes(dataset, staying if large else (), {field: columns[field] for field in large})
    found: dict[int, str] = {}
    for number, sizes in sorted(enumerate(made), key=lambda each: each[1].total()):
        full = [field for field in large if sizes[field] and total[field] + sizes[field] > _MOST_BYTES]
        if full:
            found[number] = columns[full[0]]
        else:
            total += sizes
    return found


def refuse_swollen(dataset: Dataset, table_key: str, results: Sequence[str]) -> None:
    """Raise `LanceFailure` where committing these results would make readers fail. Reads footers."""
    for column in swollen(dataset, results).values():
        raise LanceFailure(
            f"{table_key} cannot be rewritten: as Lance stores merged rows, each null of {column} would take as much "
            "memory as its one long value, and readers would fail; nothing was committed, the table stays readable; "
            "shorten that value, then run again"
        )


def _bound(fragment: Any) -> float:
    """What such pages of a fragment take at most, by the size of its files: value and levels lie in them. Pure."""
    return sum(float(file.file_size_bytes or "inf") ** 2 for file in fragment.files) / (4 * _LEVEL_BYTES)


def _texts(dataset: Dataset) -> dict[int, str]:
    """The columns, nested ones too, whose values lie in arrays of at most 2 GiB; by field id. Reads the schema."""
    fields = [(top.name(), field) for top in dataset.lance_schema.fields() for field in fields_of(top)]
    kinds = ((name, int(field.id()), field.to_arrow().type) for name, field in fields)
    return {number: name for name, number, kind in kinds if pa.types.is_string(kind) or pa.types.is_binary(kind)}


def _sizes(dataset: Dataset, fragments: Iterable[Any], columns: Mapping[int, str]) -> Counter[int]:
    """What such pages of the columns take once they are read, by field id. Reads footers."""
    sizes = Counter[int]()
    for file in (file for fragment in fragments for file in fragment.files):
        listed = zip(file.fields, file.column_indices, strict=True)
        places = {field: place for field, place in listed if field in columns and place >= 0}
        is_older = (file.file_major_version, file.file_minor_version) < _FIRST_FORMAT
        # A file with a base is not below this dataset, and no rewrite made it.
        if not places or is_older or file.base_id is not None:
            continue
        found = LanceFileReader(f"{dataset.uri}/data/{file.path}", dataset.initial_storage_options).metadata().columns
        sizes.update({field: sum(map(_size, found[place].pages)) for field, place in places.items()})
    return sizes


def _size(page: Any) -> int:
    """What a page with one value and with nulls takes once it is read, 0 for every other page. Pure."""
    if len(page.buffers) != 3:
        return 0
    value, _, levels = (int(buffer.size) for buffer in page.buffers)
    size = (value - _HEADER_BYTES) * (levels // _LEVEL_BYTES)
    if size <= 0 or not (encoding := str(page.encoding)).startswith("PageLayout") or "ConstantLayout" not in encoding:
        return 0
    # The inner layers come first: a null list has no item.
    return size if "NullableItem" in encoding.partition("List")[0] else 0

"""What a table version holds: fragments, columns, row ids and hashes of values, and what they prove."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_ops.lance.gateway import Dataset, LanceFailure, fragment_print, is_blob, lance_errors, live_rows
from omnigraph_ops.lance.rewrites import sources_of, validate_rewrite
from omnigraph_ops.lance.tables import open_indexes

Hashes = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0x6E756C6C6E756C6C)


def hash_values(array: Any) -> Hashes:
    """One hash per value; equal values of one type hash equal, nulls unlike any value but a null. Pure."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    hashes = _hash_non_null(array)
    if array.null_count:
        hashes[np.asarray(pc.is_null(array))] = _NULL
    return hashes


def _hash_non_null(array: Any) -> Hashes:
    kind = array.type
    if len(array) == 0 or pa.types.is_null(kind):
        return np.zeros(len(array), dtype=np.uint64)
    if pa.types.is_boolean(kind):
        return _hash_fixed(array.cast(pa.uint8()), 1)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _hash_fixed(array, kind.bit_width // 8)
    if _is_plain_vector(array):
        return _hash_vectors(array)
    if _is_binary_like(kind):
        return _hash_bytes(array)
    return _hash_nested(array)


def _hash_nested(array: Any) -> Hashes:
    kind = array.type
    if pa.types.is_struct(kind):
        return _hash_structs(array)
    if pa.types.is_map(kind):
        pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        # With a mask pyarrow takes no slice of offsets.
        starts = pa.array(np.array(array.offsets))
        return _hash_nested(pa.ListArray.from_arrays(starts, pairs, mask=pc.is_null(array)))
    if pa.types.is_fixed_size_list(kind):
        sizes: Any = kind.list_size
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        sizes = np.diff(np.asarray(array.offsets).astype(np.int64))
    else:
        return np.fromiter((_digest(repr(value).encode("utf-8", "replace")) for value in array.to_pylist()), np.uint64)
    return _hash_lists(hash_values(array.flatten()), np.where(np.asarray(pc.is_valid(array)), sizes, 0))


def _hash_structs(array: Any) -> Hashes:
    hashes = np.full(len(array), array.type.num_fields, np.uint64)
    for field in array.flatten():
        with np.errstate(over="ignore"):
            hashes = _mix((hashes + _GOLDEN) ^ hash_values(field))
    return hashes


def _hash_lists(elements: Hashes, lengths: npt.NDArray[np.int64]) -> Hashes:
    """The elements of each list, marked with their places and added up; they lie one list behind the other."""
    ends = np.cumsum(lengths)
    places = (np.arange(len(elements)) - np.repeat(ends - lengths, lengths)).astype(np.uint64)
    with np.errstate(over="ignore"):
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mix(_mix(places + _GOLDEN) ^ elements))])
        return _mix(sums[ends] - sums[ends - lengths] + lengths.astype(np.uint64) * _M2)


def _is_binary_like(kind: Any) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(bool(check(kind)) for check in checks)


def _is_plain_vector(array: Any) -> bool:
    kind = array.type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_primitive(kind.value_type):
        return False
    return bool(kind.list_size > 0 and kind.value_type.bit_width % 8 == 0)


def _hash_fixed(array: Any, width: int) -> Hashes:
    raw = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    return _fold(raw.reshape(len(array), width))


def _hash_vectors(array: Any) -> Hashes:
    size = array.type.list_size
    values = array.values.slice(array.offset * size, len(array) * size)
    width = array.type.value_type.bit_width // 8
    raw = np.frombuffer(values.buffers()[1], np.uint8, len(values) * width, values.offset * width)
    if not values.null_count:
        return _fold(raw.reshape(len(array), size * width))
    # Whether a batch has a null element anywhere depends on the layout: the other rows hash as without it.
    valid = np.asarray(pc.is_valid(values))
    filled = np.where(valid[:, None], raw.reshape(len(values), width), np.uint8(0))
    hashes = _fold(filled.reshape(len(array), size * width))
    elements = valid.reshape(len(array), size)
    partial = ~elements.all(axis=1)
    hashes[partial] = _mix(hashes[partial] ^ _fold(elements[partial].astype(np.uint8)))
    return hashes


def _fold(rows: npt.NDArray[np.uint8]) -> Hashes:
    """Mix the bytes of each row, eight at a time."""
    width = rows.shape[1]
    padded = np.zeros((len(rows), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = rows
    words = padded.view(np.uint64)
    hashes = np.full(len(rows), width, np.uint64)
    with np.errstate(over="ignore"):
        for column in range(words.shape[1]):
            hashes = _mix((hashes + _GOLDEN) ^ words[:, column])
    return hashes


def _mix(value: Hashes) -> Hashes:
    value = (value ^ (value >> np.uint64(30))) * _M1
    value = (value ^ (value >> np.uint64(27))) * _M2
    return value ^ (value >> np.uint64(31))


def row_marks(ids: Hashes, hashes: Hashes) -> tuple[Hashes, Hashes]:
    """Two numbers per row, made of its id and the hash of its value, that may be added up. Pure."""
    with np.errstate(over="ignore"):
        return _mix(_mix(ids + _GOLDEN) ^ hashes), _mix(_mix(ids ^ _M2) + hashes)


def _hash_bytes(array: Any) -> Hashes:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    kind = np.int64 if large else np.int32
    bounds = np.frombuffer(offsets, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize).tolist()
    view = memoryview(data) if data is not None else memoryview(b"")
    return np.fromiter((_digest(view[a:b]) for a, b in itertools.pairwise(bounds)), np.uint64, len(array))


def _digest(data: Any) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


RowIds = npt.NDArray[np.uint64]
_CREATED, _UPDATED = "_row_created_at_version", "_row_last_updated_at_version"
_UNKNOWN_VERSION = 0
"""No Lance version has this number."""
_BATCH_ROWS = 4096
_BLOB_BATCH_ROWS = 16
_READAHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentPrint:
    """One fragment, with a digest of everything that its Lance manifest says about it."""

    fragment_id: int
    print: str
    rows: int
    """Live rows."""
    data_bytes: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """One top-level column."""

    name: str
    field_id: int
    type: str
    is_blob: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowVersions:
    """Row ids with the versions that created and last wrote them; 0 where Lance does not know."""

    ids: RowIds
    created: RowIds
    updated: RowIds
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnHashes:
    """One hash per row of one column."""

    ids: RowIds
    hashes: Hashes
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValues:
    """Rows in full, by row id."""

    rows: dict[int, dict[str, object]]
    bytes_read: int


def fragment_prints(dataset: Dataset) -> tuple[FragmentPrint, ...]:
    """The fragments of the open version; no data file is read. Reads."""
    with lance_errors(f"list the fragments of {dataset.uri}"):
        return tuple(_print(f.metadata) for f in dataset.get_fragments())


def column_facts(dataset: Dataset) -> tuple[ColumnFacts, ...]:
    """The columns of the open version. Reads."""
    with lance_errors(f"read the schema of {dataset.uri}"):
        ids = {f.name(): int(f.id()) for f in dataset.lance_schema.fields()}
        return tuple(
            ColumnFacts(name=f.name, field_id=ids.get(f.name, -1), type=str(f.type), is_blob=is_blob(f))
            for f in dataset.schema
        )


def row_versions(dataset: Dataset, fragment_ids: Collection[int]) -> RowVersions:
    """Ids of the live rows of some fragments; data files stay closed. Reads."""
    parts: list[tuple[RowIds, RowIds, RowIds]] = []
    scan = _Scan(dataset, fragment_ids)
    with lance_errors(f"read the row ids of {dataset.uri}"):
        for batch in scan.batches(["_rowid", _CREATED, _UPDATED]):
            parts.append((_numbers(batch, "_rowid"), _numbers(batch, _CREATED), _numbers(batch, _UPDATED)))
    ids, created, updated = (_joined([part[n] for part in parts]) for n in range(3))
    return RowVersions(ids=ids, created=created, updated=updated, bytes_read=scan.bytes_read)


def column_hashes(dataset: Dataset, fragment_ids: Collection[int], column: ColumnFacts) -> ColumnHashes:
    """Hashes of one column of some fragments, streamed. Reads."""
    scan = _Scan(dataset, fragment_ids, batch_rows=_BLOB_BATCH_ROWS if column.is_blob else _BATCH_ROWS)
    ids: list[RowIds] = []
    hashes: list[Hashes] = []
    blobs = 0
    with lance_errors(f"read column {column.name} of {dataset.uri}"):
        for batch in scan.batches([column.name, "_rowid"], blob_handling="all_binary"):
            values = batch.column(column.name)
            blobs += values.nbytes if column.is_blob else 0
            ids.append(_numbers(batch, "_rowid"))
            hashes.append(hash_values(values))
    return ColumnHashes(ids=_joined(ids), hashes=_joined(hashes), bytes_read=scan.bytes_read + blobs)


def rows_by_id(dataset: Dataset, fragment_ids: Collection[int], row_ids: Collection[int]) -> RowValues:
    """A few rows in full; blobs as their descriptions. Reads."""
    if not row_ids:
        return RowValues(rows={}, bytes_read=0)
    columns = [f.name for f in dataset.schema]
    wanted = ", ".join(str(int(i)) for i in sorted(row_ids))
    scan = _Scan(dataset, fragment_ids)
    rows: dict[int, dict[str, object]] = {}
    with lance_errors(f"read rows of {dataset.uri}"):
        for batch in scan.batches([*columns, "_rowid"], filter=f"_rowid IN ({wanted})"):
            values = {name: _shown(batch.column(name)) for name in columns}
            for n, row_id in enumerate(batch.column("_rowid").to_pylist()):
                rows[int(row_id)] = {name: values[name][n] for name in columns}
    return RowValues(rows=rows, bytes_read=scan.bytes_read)


def _shown(column: Any) -> list[object]:
    """The values for a person: as text where Python has none, as of nanoseconds or of the year 20000. Pure."""
    is_of_nanoseconds = pa.types.is_temporal(column.type) and getattr(column.type, "unit", "") == "ns"
    try:
        if not is_of_nanoseconds:
            values: list[object] = column.to_pylist()
            return values
    except (ValueError, OverflowError, KeyError):  # a time zone that is not known is a KeyError
        pass
    try:
        texts: list[object] = column.cast(pa.string()).to_pylist()
    except pa.ArrowException:
        return [f"a {column.type} that cannot be shown"] * len(column)
    return texts


class _Scan:
    """One scan over some fragments, with the bytes that Lance says it read."""

    def __init__(self, dataset: Dataset, fragment_ids: Collection[int], batch_rows: int = _BATCH_ROWS) -> None:
        self.dataset = dataset
        self.fragment_ids = frozenset(fragment_ids)
        self.batch_rows = batch_rows
        self.bytes_read = 0

    def batches(self, columns: list[str], **options: Any) -> Iterator[pa.RecordBatch]:
        fragments = [f for f in self.dataset.get_fragments() if f.fragment_id in self.fragment_ids]
        if not fragments:  # Lance may take no fragments for all of them
            return

        def count(statistics: Any) -> None:
            self.bytes_read += int(statistics.bytes_read)

        # Lance copies the arguments of a scanner. A method would bring this object, whose dataset is opened to copy it.
        scanner = self.dataset.scanner(
            columns=columns,
            fragments=fragments,
            batch_size=self.batch_rows,
            batch_readahead=_READAHEAD,
            fragment_readahead=_READAHEAD,
            scan_stats_callback=count,
            **options,
        )
        yield from scanner.to_batches()


def _print(metadata: Any) -> FragmentPrint:
    return FragmentPrint(
        fragment_id=int(metadata.id),
        print=fragment_print(metadata),
        rows=int(metadata.physical_rows) - int(metadata.num_deletions or 0),
        data_bytes=sum(int(f.file_size_bytes or 0) for f in metadata.files),
        files=len(metadata.files),
    )


def _numbers(batch: Any, name: str) -> RowIds:
    filled = batch.column(name).fill_null(_UNKNOWN_VERSION)
    numbers: RowIds = filled.to_numpy(zero_copy_only=False).astype(np.uint64)
    return numbers


def _joined(parts: list[RowIds]) -> RowIds:
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def wrong_content(before: Dataset, after: Dataset) -> str | None:
    """What speaks against `after` having the rows of `before`, to end a sentence; None when nothing does. Reads.

    The number of live rows, the stable row ids and `unreadable` are compared. Values are not: see `evidence`.
    """
    return other_rows(before, after) or unreadable(before, after)


def other_rows(before: Dataset, after: Dataset) -> str | None:
    """Why `after` does not have the rows of `before`, to end a sentence; None when it has. Reads no data file."""
    try:
        had, has = live_rows(before), live_rows(after)
        if had != has:
            return f"has {has} rows instead of {had}"
        if before.has_stable_row_ids and not _same_row_ids(before, after):
            return "does not have the rows that it had"
    except LanceFailure as error:
        return f"cannot be read ({error})"
    return None


def unreadable(before: Dataset | None, after: Dataset) -> str | None:
    """Why readers of `after` would fail where those of `before` do not, to end a sentence; None if none would. Reads.

    Every data file that `before` did not have must hold what its fragment says, and every new index must open; all
    of them where there is no `before`.
    """
    try:
        validate_rewrite(after, before)
        open_indexes(after, besides=before)
    except LanceFailure as error:
        return f"cannot be read ({error})"
    return None


def _same_row_ids(before: Dataset, after: Dataset) -> bool:
    """Whether the fragments that are not the same on both sides hold the same rows. Reads row ids, no column."""
    old, new = sources_of(before), sources_of(after)
    gone, made = ([number for number, _ in only] for only in (old - new, new - old))
    return np.array_equal(np.sort(_row_ids(before, gone)), np.sort(_row_ids(after, made)))


def _row_ids(dataset: Dataset, fragment_ids: Collection[int]) -> RowIds:
    with lance_errors(f"read the row ids of {dataset.uri}"):
        return _joined([_numbers(batch, "_rowid") for batch in _Scan(dataset, fragment_ids).batches(["_rowid"])])

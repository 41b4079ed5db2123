"""What evidence reads from Lance: fragments and columns as metadata, row ids, hashes and rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_ops.lance.errors import lance_errors
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.value_hash import Hashes, hash_values

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
            ColumnFacts(name=f.name, field_id=ids.get(f.name, -1), type=str(f.type), is_blob=_is_blob(f))
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
            for row in batch.to_pylist():
                rows[int(row.pop("_rowid"))] = row
    return RowValues(rows=rows, bytes_read=scan.bytes_read)


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
        scanner = self.dataset.scanner(
            columns=columns,
            fragments=fragments,
            batch_size=self.batch_rows,
            batch_readahead=_READAHEAD,
            fragment_readahead=_READAHEAD,
            scan_stats_callback=self._count,
            **options,
        )
        yield from scanner.to_batches()

    def _count(self, statistics: Any) -> None:
        self.bytes_read += int(statistics.bytes_read)


def _print(metadata: Any) -> FragmentPrint:
    text = json.dumps(metadata.to_json(), sort_keys=True, default=str)
    deletion = metadata.deletion_file
    deleted = int(getattr(deletion, "num_deleted_rows", 0) or 0) if deletion else 0
    return FragmentPrint(
        fragment_id=int(metadata.id),
        print=hashlib.sha256(text.encode()).hexdigest(),
        rows=int(metadata.physical_rows) - deleted,
        data_bytes=sum(int(f.file_size_bytes or 0) for f in metadata.files),
        files=len(metadata.files),
    )


def _is_blob(field: Any) -> bool:
    metadata = field.metadata or {}
    return metadata.get(b"lance-encoding:blob") == b"true" or "blob" in str(field.type).lower()


def _numbers(batch: Any, name: str) -> RowIds:
    filled = batch.column(name).fill_null(_UNKNOWN_VERSION)
    numbers: RowIds = filled.to_numpy(zero_copy_only=False).astype(np.uint64)
    return numbers


def _joined(parts: list[RowIds]) -> RowIds:
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)

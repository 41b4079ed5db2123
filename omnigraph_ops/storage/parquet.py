"""Parquet files: an inventory that somebody else wrote, and small files of our own."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph_ops.errors import InvalidInput

_BATCH = 4096


def parquet_rows(path: str, names: Collection[str], groups: Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
    """Every row as a dictionary of the columns with these names, batch by batch. Reads.

    Args:
        groups: numbers of the row groups to read; None: all.

    Raises:
        InvalidInput: it is not Parquet, is damaged, or holds what Python has no value for.
    """
    try:
        file = pq.ParquetFile(path)
        columns = [name for name in file.schema_arrow.names if name.strip().lower() in names]
        for batch in file.iter_batches(batch_size=_BATCH, columns=columns, row_groups=groups):
            yield from batch.to_pylist()
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        raise _damaged(path, error) from None


def parquet_groups(path: str) -> tuple[int, ...]:
    """The rows of each row group; `InvalidInput` where it is not Parquet. Reads."""
    try:
        metadata = pq.ParquetFile(path).metadata
        return tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _damaged(path, error) from None


def _damaged(path: str, error: Exception) -> InvalidInput:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return InvalidInput(f"cannot read the inventory {path}: {reason}; nothing was deleted")


def to_parquet(types: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> bytes:
    """A Parquet file of these rows. Pure.

    Args:
        types: the columns, with the names of their Arrow types.
    """
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    arrays = [pa.array(column, pa.type_for_alias(name)) for column, name in zip(columns, types.values(), strict=True)]
    out = io.BytesIO()
    pq.write_table(pa.table(arrays, names=list(types)), out, compression="zstd")
    return out.getvalue()


def from_parquet(data: bytes) -> Iterator[dict[str, Any]]:
    """The rows of a file that `to_parquet` made, batch by batch. Pure."""
    for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(batch_size=_BATCH):
        yield from batch.to_pylist()

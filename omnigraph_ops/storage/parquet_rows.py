"""Rows of a Parquet file, for inventories of buckets that are too large to list."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph_ops.errors import InvalidInput

_BATCH = 4096


def parquet_rows(path: str, names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Every row as a dictionary of the columns with these names, batch by batch. Reads.

    Raises:
        InvalidInput: it is not Parquet, is damaged, or holds what Python has no value for.
    """
    try:
        file = pq.ParquetFile(path)
        columns = [name for name in file.schema_arrow.names if name.strip().lower() in names]
        for batch in file.iter_batches(batch_size=_BATCH, columns=columns):
            yield from batch.to_pylist()
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InvalidInput(f"cannot read the inventory {path}: {reason}; nothing was deleted") from None

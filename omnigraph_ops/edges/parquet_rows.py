"""Rows of a Parquet file, for inventories of buckets that are too large to list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph_ops.errors import InvalidInput


def parquet_rows(path: str) -> Iterator[dict[str, Any]]:
    """Every row as a dictionary, batch by batch; `InvalidInput` for anything that is not Parquet. Reads."""
    try:
        for batch in pq.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(f"cannot read the inventory {path}: {str(error).splitlines()[0]}") from None

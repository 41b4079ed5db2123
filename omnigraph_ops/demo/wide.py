"""A plain Lance dataset of wide rows, written in no time: what a rewrite is measured on."""

from __future__ import annotations

import os

import lance
import numpy as np
import pyarrow as pa

_DIMENSION = 128
_TEXT_LETTERS = 100


def write_wide_table(uri: str, *, fragments: int, rows: int, seed: int = 7) -> None:
    """Write so many fragments of so many rows: a key, a text and an embedding, about 0.6 kB each. Writes."""
    os.makedirs(os.path.dirname(uri), exist_ok=True)
    draw = np.random.default_rng(seed)
    for number in range(fragments):
        lance.write_dataset(
            _rows(draw, number * rows, rows),
            uri,
            mode="append" if number else "create",
            max_rows_per_file=rows,
            # As the tables of a graph are.
            data_storage_version="2.2",
            enable_stable_row_ids=True,
        )


def _rows(draw: np.random.Generator, first: int, rows: int) -> pa.Table:
    letters = draw.integers(ord("a"), ord("z") + 1, size=(rows, _TEXT_LETTERS), dtype=np.uint8)
    vectors = pa.array(draw.random(rows * _DIMENSION, dtype=np.float32))
    return pa.table(
        {
            "id": pa.array([f"n{number}" for number in range(first, first + rows)]),
            "text": pa.array([bytes(row).decode() for row in letters]),
            "embedding": pa.FixedSizeListArray.from_arrays(vectors, _DIMENSION),
        }
    )

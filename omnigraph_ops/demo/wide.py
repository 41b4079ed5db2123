"""A plain Lance dataset of wide rows, written in no time: what a rewrite is measured on."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa

from omnigraph_ops.demo.tables import append, create

_DIMENSION = 128
_TEXT_LETTERS = 100


def write_wide_table(uri: str, *, fragments: int, rows: int, seed: int = 7) -> None:
    """Write so many fragments of so many rows: a key, a text and an embedding, about 0.6 kB each. Writes."""
    os.makedirs(os.path.dirname(uri), exist_ok=True)
    draw = np.random.default_rng(seed)
    dataset = create(uri, _rows(draw, 0, rows))
    for number in range(1, fragments):
        dataset = append(dataset, _rows(draw, number * rows, rows))


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

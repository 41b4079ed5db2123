"""Vectors as embeddings may lie: in clusters, or all the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Vectors = npt.NDArray[np.float32]


def clustered(rows: int, dimension: int, clusters: int, *, spread: float = 0.02, first: int = 0) -> Vectors:
    """Rows of equal clusters that lie apart, the same for the same number."""
    centres = np.random.default_rng(7).normal(size=(clusters, dimension))
    noise = np.random.default_rng(8 + first).normal(size=(rows, dimension)) * spread
    found: Vectors = (centres[(first + np.arange(rows)) * 7919 % clusters] + noise).astype(np.float32)
    return found


def column_of(vectors: Vectors) -> pa.FixedSizeListArray:
    """The vectors as a column."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])


def exact(vectors: Vectors, query: Vectors, neighbours: int = 10) -> list[int]:
    """The nearest by squared distance."""
    distances = ((vectors.astype(np.float64) - query) ** 2).sum(axis=1)
    return [int(n) for n in np.argsort(distances, kind="stable")[:neighbours]]

"""An index that several workers make, each of some fragments, and that is joined to one segment (docs/adr/0023)."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph_ops.lance.gateway import Dataset, lance_errors
from omnigraph_ops.lance.vector_indexes import Vectors, refine, with_centroids

Fragments = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewIndex:
    """An index to make anew, of whose fragments each worker may take some."""

    name: str
    column: str
    index_type: str
    """`BTREE`, `INVERTED` or `IVF_FLAT`."""
    release: str | None = None
    """The release of pylance that writes a text index."""
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Of a text index; empty for those of the engine."""
    metric: str = "L2"
    centroids: Vectors | None = None
    """Of a vector index, in rows: parts with centroids of their own do not join."""


def groups_of(dataset: Dataset, *, most: int) -> tuple[Fragments, ...]:
    """All fragments in groups of about as many rows, at most so many. Pure."""
    fragments = sorted(dataset.get_fragments(), key=lambda f: (-int(f.metadata.physical_rows), int(f.fragment_id)))
    ids, number = [int(f.fragment_id) for f in fragments], max(1, min(most, len(fragments)))
    return tuple(tuple(sorted(ids[start::number])) for start in range(number))


def write_part(dataset: Any, index: NewIndex, fragments: Fragments) -> str:
    """Make a scalar or vector index of these fragments, which nothing refers to; its description. Writes files."""
    trained = with_centroids(index.metric, index.centroids) if index.centroids is not None else {}
    with lance_errors(f"build a part of index {index.name} of {dataset.uri}"):
        part = dataset.create_index_uncommitted(
            index.column, index.index_type, name=index.name, replace=True, fragment_ids=list(fragments), **trained
        )
    return base64.b64encode(pickle.dumps(part)).decode()


def join_parts(dataset: Any, index: NewIndex, parts: Sequence[str]) -> None:
    """Join the parts, of all fragments together, to one segment in place of the index; a few commits at most. Writes.

    Raises:
        LanceFailure: they do not join, or somebody else committed.
    """
    found = [pickle.loads(base64.b64decode(part)) for part in parts]
    with lance_errors(f"join the parts of index {index.name} of {dataset.uri}"):
        joined = dataset.merge_existing_index_segments(found)
        dataset.commit_existing_index_segments(index.name, index.column, [joined])
        dataset.checkout_latest()
    if index.centroids is not None:
        refine(dataset, index.name, index.centroids)

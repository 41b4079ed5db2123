"""Which files the versions of a Lance dataset refer to, as Lance itself reads its manifests."""

from __future__ import annotations

import pyarrow.compute as pc

from omnigraph_ops.edges.lance_errors import lance_errors
from omnigraph_ops.edges.lance_gateway import Dataset

Tracked = dict[str, set[str]]
"""Root of a dataset as a manifest spells it, to paths below it."""


def tracked_files(dataset: Dataset) -> Tracked:
    """Files that any version of the open chain (main or one branch) refers to, by the root they are under. Reads.

    Lance leaves out blob side files, index files that a branch inherits, and detached versions: the
    caller must treat these itself. A manifest that cannot be read raises.
    """
    found: Tracked = {}
    with lance_errors(f"read the references of {dataset.uri}"):
        for batch in dataset.tracked_files():
            bases = batch.column("base_uri").dictionary_decode()
            for base in pc.unique(bases).to_pylist():
                paths = pc.unique(batch.column("path").filter(pc.equal(bases, base)))
                found.setdefault(base, set()).update(paths.to_pylist())
    return found

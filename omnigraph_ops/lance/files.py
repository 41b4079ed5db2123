"""Which files the versions of a Lance dataset refer to, as Lance itself reads its manifests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow.compute as pc

from omnigraph_ops.lance.errors import lance_errors
from omnigraph_ops.lance.gateway import Dataset

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedFile:
    """A file that a version of a chain refers to."""

    version: int
    base: str
    """Root as the manifest spells it."""
    path: str
    kind: str
    """Lance's word: `manifest`, `data file`, `deletion file`, `transaction file` or `index file`."""


def files_of_versions(dataset: Dataset, versions: Collection[int]) -> frozenset[TrackedFile]:
    """Files that exactly these versions of the open chain refer to. Reads the manifests from the oldest on.

    Index files that a branch inherits and blob side files are left out, as in `tracked_files`.
    """
    found: set[TrackedFile] = set()
    with lance_errors(f"read the files of {dataset.uri}"):
        for batch in dataset.tracked_files(min_version=min(versions)):
            for row in batch.to_pylist():
                if row["version"] in versions:
                    file = TrackedFile(version=row["version"], base=row["base_uri"], path=row["path"], kind=row["type"])
                    found.add(file)
    return frozenset(found)

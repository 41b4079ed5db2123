"""Lance tags: names that keep versions from everybody's version cleanup."""

from __future__ import annotations

import contextlib

from omnigraph_ops.lance.errors import DatasetMissing, lance_errors
from omnigraph_ops.lance.gateway import Dataset


def create_tag(dataset: Dataset, name: str, *, branch: str | None, version: int) -> None:
    """Tag a version of the main chain or of a branch; `DatasetMissing` when that version is gone. Writes."""
    with lance_errors(f"tag version {version} of {dataset.uri}"):
        dataset.tags.create(name, (branch, version) if branch is not None else version)


def delete_tag(dataset: Dataset, name: str) -> bool:
    """Remove a tag, also one whose branch is gone; False when there is none. Destroys only the tag."""
    with contextlib.suppress(DatasetMissing), lance_errors(f"remove tag {name} of {dataset.uri}"):
        dataset.tags.delete(name)
        return True
    return False

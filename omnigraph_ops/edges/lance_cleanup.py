"""Version cleanup and branch removal through Lance: an exact list of versions, never a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph_ops.edges.lance_errors import lance_errors
from omnigraph_ops.edges.lance_gateway import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """One existing version of a main chain and its commit time in seconds since the epoch."""

    version: int
    committed_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a cleanup freed."""

    bytes_removed: int
    old_versions: int


def existing_versions(dataset: Dataset) -> tuple[VersionFacts, ...]:
    """Every version that can still be opened, ascending. Reads."""
    with lance_errors(f"list the versions of {dataset.uri}"):
        listed: list[Any] = list(dataset.versions())
    # pylance gives naive local times; `timestamp()` reads them as local again.
    facts = [VersionFacts(version=int(v["version"]), committed_at=v["timestamp"].timestamp()) for v in listed]
    return tuple(sorted(facts, key=lambda f: f.version))


def explain_removal(dataset: Dataset, versions: Sequence[int]) -> int:
    """Bytes that removing exactly these versions would free. Reads."""
    if not versions:
        return 0
    with lance_errors(f"explain the cleanup of {dataset.uri}"):
        explained = dataset.explain_cleanup_old_versions(versions=list(versions), error_if_tagged_old_versions=False)
    return int(explained.stats.bytes_removed)


def remove_versions(dataset: Dataset, versions: Sequence[int]) -> Removed:
    """Remove exactly these versions and the files only they reference. Destroys.

    Unverified files younger than seven days stay: they may belong to a write in progress.
    """
    with lance_errors(f"clean up {dataset.uri}"):
        stats = dataset.cleanup_old_versions(
            versions=list(versions), delete_unverified=False, error_if_tagged_old_versions=False
        )
    return Removed(bytes_removed=int(stats.bytes_removed), old_versions=int(stats.old_versions))


def branch_base_paths(dataset: Dataset, branch: str) -> tuple[str, ...]:
    """The dataset roots that a branch records as the place of its inherited files. Reads."""
    with lance_errors(f"read branch {branch} of {dataset.uri}"):
        bases = dataset.checkout_version((branch, None)).base_paths()
    return tuple(str(base.path) for base in bases.values() if base.is_dataset_root)

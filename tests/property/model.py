"""What must stay, kept by hand: every published version of every branch, every tag, every hold, with its rows.

The model never asks the product. It opens versions through Lance and remembers what it was told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import lance

from omnigraph_ops.graph.layout import MAINTENANCE_DIR
from tests.support.rows import digest_of, scan

FileStamps = dict[str, tuple[int, int]]
"""Graph-relative path of a file to its size and modification time."""


@dataclass(frozen=True)
class Place:
    """One version of one table: of its main chain, or of a Lance branch."""

    path: str
    branch: str | None
    version: int


Pins = dict[str, Place]
"""Table key to the place that a graph branch publishes."""


@dataclass
class Model:
    """Everything that has to open and scan, and with which rows."""

    home: str
    pins: dict[str | None, Pins] = field(default_factory=dict)
    """By graph branch, None for main."""
    tags: dict[str, Place] = field(default_factory=dict)
    holds: dict[str, Place] = field(default_factory=dict)
    published: dict[str | None, list[tuple[int, Pins]]] = field(default_factory=dict)
    """By graph branch: every publish as the version of the graph manifest and the pins of that time."""
    digests: dict[Place, str] = field(default_factory=dict)

    def open(self, place: Place) -> lance.LanceDataset:
        """That version, straight through Lance. Reads."""
        dataset = lance.dataset(os.path.join(self.home, place.path))
        return dataset.checkout_version((place.branch, place.version))

    def digest(self, place: Place) -> str:
        """The rows of that version right now. Reads."""
        return digest_of(scan(self.open(place)))

    def is_readable(self, place: Place) -> bool:
        """Whether the version is still there: old ones may have been collected. Reads."""
        try:
            self.digest(place)
        except (ValueError, OSError):
            return False
        return True

    def publish(self, branch: str | None, manifest_version: int, pins: Pins) -> None:
        """Remember what a branch publishes from now on. Reads."""
        for place in pins.values():
            self._remember(place)
        self.pins[branch] = dict(pins)
        self.published.setdefault(branch, []).append((manifest_version, dict(pins)))

    def tag(self, name: str, place: Place) -> None:
        """Remember a tag. Reads."""
        self._remember(place)
        self.tags[name] = place

    def hold(self, hold_id: str, place: Place) -> None:
        """Remember a hold. Reads."""
        self._remember(place)
        self.holds[hold_id] = place

    def forget_branch(self, name: str) -> None:
        """A graph branch is gone; its forks are another matter. Pure."""
        del self.pins[name], self.published[name]

    def forget_fork(self, path: str, branch: str) -> None:
        """A table fork is gone, so its version numbers may come back with other rows. Pure."""
        self.digests = {p: d for p, d in self.digests.items() if (p.path, p.branch) != (path, branch)}

    def wanted(self, path: str, branch: str) -> bool:
        """Whether a tag, a hold or a branch needs that fork. Pure."""
        return any((p.path, p.branch) == (path, branch) for _, p in self.required())

    def required(self) -> Iterator[tuple[str, Place]]:
        """Everything that has to open, with who wants it. Pure."""
        for branch, pins in self.pins.items():
            for key, place in pins.items():
                yield f"branch {branch or 'main'} reads {key}", place
        yield from ((f"tag {name}", place) for name, place in self.tags.items())
        yield from ((f"hold {name}", place) for name, place in self.holds.items())

    def check(self) -> None:
        """Fail unless everything opens and scans with the rows it had. Reads."""
        lost = []
        for who, place in self.required():
            try:
                found = self.digest(place)
            except Exception as error:  # whatever Lance raises, it is the finding
                lost.append(f"{who}: {place} does not open or scan: {error}")
                continue
            if found != self.digests[place]:
                lost.append(f"{who}: {place} has other rows than before")
        assert not lost, "\n".join(lost)

    def _remember(self, place: Place) -> None:
        if place not in self.digests:
            self.digests[place] = self.digest(place)


def files_below(root: str) -> FileStamps:
    """Every file of a graph but our own bookkeeping; holds and plans count. Reads."""
    found: FileStamps = {}
    for folder, _, names in os.walk(root):
        for name in names:
            full = os.path.join(folder, name)
            relative = os.path.relpath(full, root)
            if not relative.startswith(MAINTENANCE_DIR) or relative.startswith(f"{MAINTENANCE_DIR}/holds/"):
                info = os.stat(full)
                found[relative] = (info.st_size, info.st_mtime_ns)
    return found


def outside(gone: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """What is gone without having been allowed to. Pure."""
    return sorted(set(gone) - set(allowed))

"""The files of a graph: put back between kills, and watched during a run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.leases import is_lease

Contents = Mapping[str, object]
"""What is there by its name; a value that differs means that it was written."""


class Quiet:
    """Notes what changes outside of the recorded calls; called right before and right after each of them."""

    def __init__(self, look: Callable[[], Contents]) -> None:
        self._look = look
        self._seen, self._since = self._now(), "the start"
        self.broken: list[str] = []

    def __call__(self, moment: str) -> None:
        now = self._now()
        if moment.startswith("before") and now != self._seen:
            changed = sorted({name for name, _ in now.items() ^ self._seen.items()})
            self.broken.append(f"between {self._since} and {moment}: {changed[:3]}")
        self._seen, self._since = now, moment

    def _now(self) -> dict[str, object]:
        # A thread renews the leases, of the graph and of a table, whenever it likes.
        return {name: value for name, value in self._look().items() if not is_lease(name)}


def files_in(root: str | Path) -> dict[str, tuple[int, int] | None]:
    """Every file below `root` with its time and size, every folder with None; parents come first. Reads."""
    found: dict[str, tuple[int, int] | None] = {}
    start = len(str(root)) + 1
    for folder, _, names in os.walk(root):
        found[folder[start:]] = None
        for name in names:
            path = os.path.join(folder, name)
            status = os.stat(path)
            found[path[start:]] = (status.st_mtime_ns, status.st_size)
    return found


def restore(root: Path, pristine: Path, saved: Mapping[str, tuple[int, int] | None]) -> None:
    """Make `root` what `pristine` is, whose `files_in` is `saved`; only differences are touched. Writes."""
    now = files_in(root)
    # Deepest first, so that folders are empty when their turn comes.
    for name in sorted(now.keys() - saved.keys(), reverse=True):
        (root / name).rmdir() if now[name] is None else (root / name).unlink()
    for name, status in saved.items():
        if status is None:
            (root / name).mkdir(exist_ok=True)
        elif now.get(name) != status:
            shutil.copy2(pristine / name, root / name)

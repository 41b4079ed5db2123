"""The files of a graph as they were at a moment, and put back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

State = Mapping[str, object]
"""What is there by its name; a value that differs means that it was written."""


class Place(Protocol):
    """Where a graph lies."""

    def look(self) -> State:
        """What is there, which can be put back from now on. Reads."""
        ...

    def put(self, state: State, spared: Callable[[str], bool] = ...) -> None:
        """Make it what it was; of names that are spared nothing is touched. Writes."""
        ...


def none(_name: str) -> bool:
    """Of no name."""
    return False


class Folder:
    """A graph in a folder. A file is its time and size, a folder None."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._contents: dict[tuple[str, object], bytes] = {}

    def look(self) -> State:
        """What is there, which can be put back from now on. Reads."""
        found = files_in(self._root)
        for name, status in found.items():
            if status is not None and (name, status) not in self._contents:
                try:
                    self._contents[name, status] = (self._root / name).read_bytes()
                except FileNotFoundError:
                    # The temporary file of a lease that is being renewed.
                    self._contents[name, status] = b""
        return found

    def put(self, state: State, spared: Callable[[str], bool] = none) -> None:
        """Make it what it was; only differences are touched. Writes."""
        now = files_in(self._root)
        # Deepest first, so that folders are empty when their turn comes.
        for name in sorted((n for n in now.keys() - state.keys() if not spared(n)), reverse=True):
            (self._root / name).rmdir() if now[name] is None else (self._root / name).unlink()
        for name, status in state.items():
            if spared(name):
                continue
            if status is None:
                (self._root / name).mkdir(exist_ok=True)
            elif now.get(name) != status:
                self._write(name, status)

    def _write(self, name: str, status: object) -> None:
        path = self._root / name
        path.write_bytes(self._contents[name, status])
        assert isinstance(status, tuple)
        os.utime(path, ns=(status[0], status[0]))


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

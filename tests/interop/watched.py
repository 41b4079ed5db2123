"""The sidecars that a process of the engine writes, as they were while it was at work."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph_ops.graph.layout import RECOVERY_DIR
from tests.interop.engine import Engine

Write = Callable[[Engine, Path], None]


@dataclass(frozen=True)
class Seen:
    """The sidecars of a write, by name."""

    armed: dict[str, bytes] = field(default_factory=dict)
    confirmed: dict[str, bytes] = field(default_factory=dict)
    first: dict[str, bytes] = field(default_factory=dict)
    """Whatever the phase; those of stamp 3 say none."""

    def look(self, root: Path) -> None:
        for file in root.joinpath(RECOVERY_DIR).glob("*.json"):
            with suppress(FileNotFoundError):
                content = file.read_bytes()
                for phase, found in (
                    (b'"Armed"', self.armed),
                    (b'"EffectsConfirmed"', self.confirmed),
                    (b"", self.first),
                ):
                    if phase in content:
                        found.setdefault(file.name, content)


def put(root: Path, sidecars: dict[str, bytes]) -> None:
    assert sidecars, "no sidecar was seen"
    for name, content in sidecars.items():
        root.joinpath(RECOVERY_DIR, name).write_bytes(content)


@contextmanager
def sidecars_of(root: Path) -> Iterator[Seen]:
    """What the block's writer announced."""
    seen, done = Seen(), threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.look(root)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def watched(oracle: Engine, root: Path, write: Write) -> Seen:
    """Write, and what it announced; again on the graph as it was where a busy machine missed that. Writes."""
    aside = root.with_suffix(".aside")
    for _ in range(10):
        shutil.copytree(root, aside)
        with sidecars_of(root) as seen:
            write(oracle, root)
        if seen.armed and seen.confirmed:
            break
        shutil.rmtree(root)
        aside.rename(root)
    shutil.rmtree(aside, ignore_errors=True)
    return seen

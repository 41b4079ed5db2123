"""Tasks on Spark that stop in the middle of a job, so that a test can lose a worker or a driver exactly there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HELD_APPLICATION = Path(__file__).with_name("held_application.py")
FILES_OF_PART = 5
"""Of a copy. Where two parts' worth of files has passed, two workers have at least so many at the gate."""
_LONGEST_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A gate before one moment of the tasks of a job; every task that comes to it leaves a mark."""

    folder: Path
    """Of the marks, on a disk that all workers share."""
    moment: str
    """`rewrite`, `index`, `read`, `source`, `judge`, `delete`, `copy` or `restore`."""
    free: int = 0
    """How many pass before the gate is shut."""

    @classmethod
    def at(cls, moment: str, folder: Path, *, free: int = 0) -> Held:
        """A shut gate with its marks in a new folder. Writes it."""
        folder.mkdir()
        return cls(folder=folder, moment=moment, free=free)

    @property
    def environment(self) -> dict[str, str]:
        """What the application is told."""
        return {
            "MARKS": str(self.folder),
            "HELD": self.moment,
            "FREE": str(self.free),
            "FILES_OF_PART": str(FILES_OF_PART),
        }

    def came(self) -> int:
        """How many have come to the moment. Reads."""
        return len(list(self.folder.glob(f"{self.moment}-*")))

    def wait_for(self, waiting: int, ended: Callable[[], object], said: Callable[[], str]) -> None:
        """Until so many wait at the gate. Sleeps.

        Args:
            ended: whether the job is over, so that nobody comes any more.
            said: what a failure shows.
        """
        deadline = time.monotonic() + _LONGEST_SECONDS
        while self.came() < self.free + waiting:
            assert not ended(), said()
            assert time.monotonic() < deadline, said()
            time.sleep(0.02)

    def open(self) -> None:
        """Let everybody go on, those who come later, too. Writes."""
        (self.folder / "open").touch()

"""How work at hand tells how far it is, whoever shows it; the units that it does, and the wish to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal, Protocol

from omnigraph_ops.models.outcomes import StageReport
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.quantities import human_bytes

_SECONDS_BETWEEN_LINES = 5.0
Counted = Literal["bytes", "files", "tables", "rows"]


class Progress(Protocol):
    """Takes what a stage says while it is at work."""

    def __call__(self, text: str, /) -> None:
        """A sentence about what was done or is about to begin."""

    def at(self, what: str, done: int, total: int | None, unit: Counted) -> None:
        """How much of a piece of work is done.

        Args:
            what: names the piece: `copying`; of no other that is shown at the same time.
            total: None while that is not known.
        """


class Silent:
    """Shows nothing."""

    def __call__(self, text: str, /) -> None:
        """Drop the sentence."""

    def at(self, what: str, done: int, total: int | None, unit: Counted) -> None:
        """Drop the figure."""


SILENT: Progress = Silent()


class Lines:
    """A line for each sentence; figures at most every few seconds, and at the end of a piece of work."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._pieces: dict[str, tuple[float, float]] = {}
        """When each piece of work began, and when its last line was written."""

    def __call__(self, text: str, /) -> None:
        """Write the sentence."""
        with self._lock:  # a line of another thread must not begin in the middle of this one
            self._write(text)

    def at(self, what: str, done: int, total: int | None, unit: Counted) -> None:
        """Write the figure if it is due."""
        now = time.monotonic()
        with self._lock:
            began, told = self._pieces.setdefault(what, (now, now))
            if not (now - told >= _SECONDS_BETWEEN_LINES or done == total):
                return
            self._pieces[what] = (began, now)
            self._write(f"{what}: {figure(done, total, unit)}{_rate(done, total, unit, now - began)}")


def _rate(done: int, total: int | None, unit: Counted, seconds: float) -> str:
    """How fast it goes, and for how long it will; nothing of what took no time. Pure."""
    if not (done and seconds >= 1):
        return ""
    rate = done / seconds
    fast = f", {human_bytes(int(rate))}/s" if unit == "bytes" else ""
    return fast if total is None or done >= total else f"{fast}, {(total - done) / rate:,.0f} s left"


def figure(done: int, total: int | None, unit: Counted) -> str:
    """`3 of 12 files`, `1.5 MiB of 2.0 GiB`. Pure."""
    if unit == "bytes":
        return human_bytes(done) + ("" if total is None else f" of {human_bytes(total)}")
    return f"{done:,}" + ("" if total is None else f" of {total:,}") + f" {unit}"


class About:
    """Progress of one thing among several: its name stands before every sentence."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress, self._name = progress, name

    def __call__(self, text: str, /) -> None:
        """Pass the sentence on."""
        self._progress(f"{self._name}: {text}")

    def at(self, what: str, done: int, total: int | None, unit: Counted) -> None:
        """Pass the figure on."""
        self._progress.at(f"{self._name}: {what}", done, total, unit)


class Meter:
    """Counts what all threads have done of one piece of work, and tells it."""

    def __init__(self, progress: Progress, what: str, total: int, unit: Counted) -> None:
        self._progress, self._what, self._total, self._unit = progress, what, total, unit
        self._done = 0
        self._lock = threading.Lock()

    def add(self, amount: int) -> None:
        """Note that so much more is done; nothing is told of a piece without size. Tells the progress."""
        with self._lock:
            told, self._done = self._done, min(self._done + amount, self._total)
            if self._done > told:
                self._progress.at(self._what, self._done, self._total, self._unit)


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and does so where nothing is half done."""


class Run:
    """A run that nobody records and nobody stops: what a graph has unless its opener gives it another one."""

    @property
    def stopping(self) -> bool:
        """Whether no further unit may begin."""
        return False

    def begins(self, unit: Unit) -> None:
        """Called right before the first effect of a unit.

        Raises:
            StorageError: it could not be written down; the unit must not begin.
            Stopped: the run was asked to stop.
        """

    def restates(self, unit: Unit, known: Unit) -> None:
        """Called where more is known of a unit at work, before the effect that it is about.

        Raises:
            StorageError: it could not be written down; the unit must not go on.
        """

    def ended(self, unit: Unit, did: StageReport | None) -> None:
        """Called right after its last effect, with what came of it; None: nothing."""

    def notes(self, value: object) -> None:
        """Called with a plan, a report or an outcome, for whoever tells of the run."""

    def check(self) -> None:
        """Raise `Stopped` if the run was asked to stop."""
        if self.stopping:
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Wait so long; raise `Stopped` as soon as the run is asked to stop."""
        time.sleep(seconds)

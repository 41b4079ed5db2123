"""Progress on stderr: bars on a terminal, plain lines elsewhere, nothing with `--quiet` or `--json`."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from omnigraph_ops.progress import Progress, Silent, Unit
from omnigraph_ops.sizes import human_bytes

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

_SECONDS_BETWEEN_LINES = 5.0


class ShownProgress(Progress, Protocol):
    """Progress that is taken down at the end."""

    def close(self) -> None:
        """Take down what is still shown. Writes to stderr."""


def progress_for(*, quiet: bool, json: bool) -> ShownProgress:
    """What shows the progress of this call. Reads the environment."""
    if quiet:
        return NoProgress()
    on_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return BarProgress() if on_terminal and not json else LineProgress(figures=not json)


class NoProgress(Silent):
    """Nothing was shown, and nothing is taken down."""

    def close(self) -> None:
        """Do nothing."""


class LineProgress:
    """A line for each sentence; figures at most every few seconds, and at the end of a piece."""

    def __init__(self, *, figures: bool) -> None:
        self._figures = figures
        self._lock = threading.Lock()
        self._told_at: dict[str, float] = {}

    def __call__(self, text: str, /) -> None:
        """Print the sentence. Writes to stderr."""
        print(f"  {text}", file=sys.stderr, flush=True)

    def at(self, what: str, done: int, total: int | None, unit: Unit) -> None:
        """Print the figure if it is due. Writes to stderr."""
        now = time.monotonic()
        with self._lock:
            due = now - self._told_at.setdefault(what, now) >= _SECONDS_BETWEEN_LINES
            if not self._figures or not (due or done == total):
                return
            self._told_at[what] = now
        print(f"  {what}: {_figure(done, total, unit)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Lines stay."""


class BarProgress:
    """Bars with what is done, how much there is, and the time left; sentences above them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bars: Bars | None = None
        self._tasks: dict[str, Any] = {}

    def __call__(self, text: str, /) -> None:
        """Print the sentence above the bars. Writes to stderr."""
        with self._lock:
            if self._bars is not None:
                self._bars.console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)
                return
        print(f"  {text}", file=sys.stderr, flush=True)

    def at(self, what: str, done: int, total: int | None, unit: Unit) -> None:
        """Move the bar of a piece of work; one that is done goes. Writes to stderr."""
        with self._lock:
            bars = self._bars or self._begin()
            if what not in self._tasks:
                self._tasks[what] = bars.add_task(what, total=total, figure="")
            bars.update(self._tasks[what], completed=done, total=total, figure=_figure(done, total, unit))
            if total is not None and done >= total:
                bars.remove_task(self._tasks.pop(what))
                if not self._tasks:
                    bars.stop()
                    self._bars = None

    def close(self) -> None:
        """Remove the bars of what did not get to its end. Writes to stderr."""
        with self._lock:
            if self._bars is not None:
                self._bars.stop()
                self._bars = None

    def _begin(self) -> Bars:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("  {task.description}"), BarColumn(), TextColumn("{task.fields[figure]}"))
        bars = Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
        bars.start()
        self._bars = bars
        return bars


def _figure(done: int, total: int | None, unit: Unit) -> str:
    """`3 of 12 files`, `1.5 MiB of 2.0 GiB`. Pure."""
    if unit == "bytes":
        return human_bytes(done) + ("" if total is None else f" of {human_bytes(total)}")
    return f"{done:,}" + ("" if total is None else f" of {total:,}") + f" {unit}"

"""Progress on stderr: bars on a terminal, plain lines elsewhere, nothing with `--quiet`."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from omnigraph_ops.progress import Lines, Progress, Silent, Unit, figure

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


class ShownProgress(Progress, Protocol):
    """Progress that is taken down at the end."""

    def close(self) -> None:
        """Take down what is still shown. Writes to stderr."""


def progress_for(*, quiet: bool) -> ShownProgress:
    """What shows the progress of this call. Reads the environment."""
    if quiet:
        return NoProgress()
    on_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return BarProgress() if on_terminal else LineProgress()


class NoProgress(Silent):
    """Nothing was shown, and nothing is taken down."""

    def close(self) -> None:
        """Do nothing."""


class LineProgress(Lines):
    """Plain lines; they stay."""

    def __init__(self) -> None:
        super().__init__(lambda text: print(f"  {text}", file=sys.stderr, flush=True))

    def close(self) -> None:
        """Do nothing."""


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
            bars.update(self._tasks[what], completed=done, total=total, figure=figure(done, total, unit))
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

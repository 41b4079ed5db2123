"""Fences of runs that were killed behind them, and fences whose time comes when a test says so."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

_KILLED = """
import sys, time
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.graph import open_graph
with fenced(open_graph(sys.argv[1]), at_most_seconds=600):
    print("fenced", flush=True)
    time.sleep(600)
"""


def killed_behind_its_fence(root: str) -> None:
    """Another process raises the fence of the graph at `root` and gets SIGKILL. Writes."""
    process = subprocess.Popen([sys.executable, "-c", _KILLED, root], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "fenced\n"
    process.kill()
    process.wait()


class TimerOf(threading.Thread):
    """A timer whose time comes with an event."""

    def __init__(self, event: threading.Event, _seconds: float, function: Callable[..., None], args: Any) -> None:
        super().__init__(daemon=True)
        self._event, self._function, self._args_of = event, function, args

    def run(self) -> None:
        self._event.wait()
        self._function(*self._args_of)

    def cancel(self) -> None:
        """Its time has come, or never does."""

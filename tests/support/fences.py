"""Fences of runs that were killed behind them, and fences whose time comes when a test says so."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination.fence import FenceNote, fenced, notes
from omnigraph_ops.graph import Graph

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


def noted(graph: Graph) -> FenceNote | None:
    """The only note of a fence that is there, None when there is none. Reads."""
    found = [note for _, note in notes(graph)]
    assert len(found) <= 1, found
    return next(iter(found), None)


def note_changed(graph: Graph, **fields: Any) -> None:
    """Give the only note of a fence other values. Writes it."""
    ((path, note),) = notes(graph)
    graph.storage.write(path, serde.dumps(replace(note, **fields)).encode())


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


@contextlib.contextmanager
def fenced_until_told(graph: Graph, lifted: threading.Event) -> Iterator[tuple[Graph, threading.Event]]:
    """The graph behind a fence, and the event with which the time of that is over; `lifted` is set after it. Writes.

    On a busy machine a time of moments would be over before the fence is raised.
    """
    lift_now = threading.Event()
    with contextlib.ExitStack() as fences:
        with pytest.MonkeyPatch.context() as timers:
            timers.setattr(threading, "Timer", partial(TimerOf, lift_now))
            behind_fence = fences.enter_context(fenced(graph, on_lift=lifted.set))
        yield behind_fence, lift_now

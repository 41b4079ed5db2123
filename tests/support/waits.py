"""The waits of a test's own thread, without the waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from omnigraph_ops.progress import Run

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", 7)


def instead_of_sleep(monkeypatch: pytest.MonkeyPatch, act: Callable[[float], object]) -> None:
    """Call `act` where this thread would sleep; what other tests left in this process sleeps on."""
    real, own = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        (act if threading.get_ident() == own else real)(seconds)

    monkeypatch.setattr("time.sleep", sleep)


def shorten_waits(monkeypatch: pytest.MonkeyPatch, longest: float = 0.01) -> None:
    """Let this thread sleep no longer than that at a time."""
    real = time.sleep
    instead_of_sleep(monkeypatch, lambda seconds: real(min(seconds, longest)))


class StoppedClock:
    """The clock that leases are measured by; it stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0


def stop_lease_clock(monkeypatch: pytest.MonkeyPatch) -> StoppedClock:
    """Let leases last by a clock that stands still; that of everything else goes on."""
    clock, real = StoppedClock(), getattr(time, "clock_gettime", None)
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", _BOOTTIME, raising=False)

    def gettime(which: int) -> float:
        return clock.seconds if which == _BOOTTIME or real is None else real(which)

    monkeypatch.setattr(time, "clock_gettime", gettime, raising=False)
    return clock


class Hurried(Run):
    """A run whose pauses are over at once, in whatever thread."""

    def pause(self, seconds: float) -> None:
        """Wait for nothing. Pure."""

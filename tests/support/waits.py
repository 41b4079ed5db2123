"""The waits of a test's own thread, without the waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def instead_of_sleep(monkeypatch: pytest.MonkeyPatch, act: Callable[[float], object]) -> None:
    """Call `act` where this thread would sleep; what other tests left in this process sleeps on."""
    real, own = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        (act if threading.get_ident() == own else real)(seconds)

    monkeypatch.setattr("time.sleep", sleep)

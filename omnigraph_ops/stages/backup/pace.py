"""How fast a copy may go, over all of its threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from omnigraph_ops.errors import OpsError

_CHUNK = 4 * 1024 * 1024
_SMALLEST_CHUNK = 64 * 1024
_PIECES_PER_SECOND = 4
_POLL_SECONDS = 0.2


class CopyPace:
    """A ceiling on bytes per second over everything that asks it; None is no ceiling."""

    def __init__(self, bytes_per_second: int | None, check: Callable[[], None] | None = None) -> None:
        self._rate, self._check = bytes_per_second, check
        self._next = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @property
    def chunk(self) -> int:
        """How many bytes to ask for at once. Pure."""
        if self._rate is None:
            return _CHUNK
        return min(max(self._rate // _PIECES_PER_SECOND, _SMALLEST_CHUNK), _CHUNK)

    def wait_for(self, size: int) -> None:
        """Wait until so many bytes may go. Sleeps.

        Raises:
            OpsError: the copy was stopped. Whatever `check` raises ends the waiting, too.
        """
        left = self._delay(size)
        while True:
            step = left
            if self._check is not None:
                self._check()
                step = min(left, _POLL_SECONDS)
            if self._stopped.wait(step):
                raise OpsError("the copy was stopped")
            left -= step
            if left <= 0:
                return

    def stop(self) -> None:
        """Let every thread that asks, or waits, end: nobody waits for the rest of a large file. Pure."""
        self._stopped.set()

    def _delay(self, size: int) -> float:
        if self._rate is None:
            return 0
        with self._lock:
            start = max(time.monotonic(), self._next)
            self._next = start + size / self._rate
        return max(start - time.monotonic(), 0)

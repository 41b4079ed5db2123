"""How fast a copy may go and how far it is, counted by all of its threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from omnigraph_ops.durations import age
from omnigraph_ops.errors import OpsError
from omnigraph_ops.sizes import human_bytes

Say = Callable[[str], None]
_CHUNK = 4 * 1024 * 1024
_SMALLEST_CHUNK = 64 * 1024
_SAY_EVERY_SECONDS = 2.0
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


class Meter:
    """Counts what is done and says it every other second: bytes, files, rate, time left."""

    def __init__(self, what: str, files: int, size: int, say: Say | None) -> None:
        self._what, self._files, self._size, self._say = what, files, size, say
        self._done_files = self._done_bytes = 0
        self._began = self._said = time.monotonic()
        self._lock = threading.Lock()

    def add(self, *, size: int = 0, files: int = 0) -> None:
        """Note progress; says it when it is time, and at the end. Calls `say`."""
        with self._lock:
            self._done_bytes += size
            self._done_files += files
            now = time.monotonic()
            last = files > 0 and self._done_files == self._files
            if self._say is not None and (last or now - self._said >= _SAY_EVERY_SECONDS):
                self._said = now
                self._say(self._text(max(now - self._began, 0.001)))

    def _text(self, seconds: float) -> str:
        rate = self._done_bytes / seconds
        left = "" if rate <= 0 else f", {age((self._size - self._done_bytes) / rate)} left"
        return (
            f"{self._what} {self._done_files:,} of {self._files:,} files, {human_bytes(self._done_bytes)} of "
            f"{human_bytes(self._size)}, {human_bytes(int(rate))}/s{left}"
        )

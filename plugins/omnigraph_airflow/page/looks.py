"""Slow reads for a page: side by side, one at a time of each kind, waited for until a deadline, kept for a moment."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from omnigraph_ops.errors import OpsError

T = TypeVar("T")
STILL = "still being read"
BUSY = "not read yet, the server is busy with other reads of this graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How many reads there may be."""

    threads: int = 32
    threads_per_graph: int = 4
    """A graph that hangs leaves the other threads to the others."""
    reads_per_graph: int = 16
    """Under way or waiting for a thread; more are refused."""


class Busy(OpsError):
    """Too many reads of one graph have begun and not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[T]):
    """What came of a read: its value, or a sentence about why there is none."""

    value: T | None = None
    problem: str | None = None
    pending: str = ""
    """Why it was not ready in time; a later request finds it."""


@dataclass(slots=True)
class _Slot:
    graph: Hashable
    read: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)
    done_at: float | None = None


class Looks:
    """Daemon threads, a bounded number: a store that hangs keeps some, and neither the others nor the server.

    A subject is read by one thread at a time, whoever asks.
    """

    def __init__(self, *, keep_seconds: float, bounds: ReadLimits | None = None) -> None:
        self._keep = keep_seconds
        self._bounds = bounds or ReadLimits()
        self._slots: dict[Hashable, _Slot] = {}
        self._waiting: deque[_Slot] = deque()
        self._running: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def begin(self, graph: Hashable, subject: Hashable, read: Callable[[], T]) -> Future[T]:
        """The value of a read that is under way or fresh enough, else of a new one; `Busy` in it. Starts a thread."""
        with self._lock:
            self._forget()
            slot = self._slots.get((graph, subject))
            if slot is None:
                slot = _Slot(graph, read)
                if self._unfinished(graph) >= self._bounds.reads_per_graph:
                    slot.future.set_exception(Busy(BUSY))
                    return slot.future
                self._slots[graph, subject] = slot
                self._waiting.append(slot)
                if (first := self._next()) is not None:
                    threading.Thread(target=self._work, args=(first,), daemon=True, name="page").start()
            return slot.future

    def _forget(self) -> None:
        now = time.monotonic()
        old = [key for key, slot in self._slots.items() if slot.done_at is not None and now - slot.done_at > self._keep]
        for key in old:
            del self._slots[key]

    def _unfinished(self, graph: Hashable) -> int:
        return sum(slot.graph == graph and slot.done_at is None for slot in self._slots.values())

    def _next(self) -> _Slot | None:
        """The read that waits longest among those that may have a thread, which it has from now on."""
        if self._running.total() >= self._bounds.threads:
            return None
        for slot in self._waiting:
            if self._running[slot.graph] < self._bounds.threads_per_graph:
                self._waiting.remove(slot)
                self._running[slot.graph] += 1
                return slot
        return None

    def _work(self, slot: _Slot | None) -> None:
        """Do this read, and others as long as some wait."""
        while slot is not None:
            self._run(slot)
            with self._lock:
                self._running[slot.graph] -= 1
                slot = self._next()

    @staticmethod
    def _run(slot: _Slot) -> None:
        try:
            value = slot.read()
        except BaseException as error:  # Lance panics with one; it belongs to whoever waits
            slot.done_at = time.monotonic()
            slot.future.set_exception(error)
        else:
            slot.done_at = time.monotonic()
            slot.future.set_result(value)


class Deadline:
    """A moment that several waits share."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def wait(self, future: Future[T], sentence: Callable[[BaseException], str]) -> Look[T]:
        """What came of the read by then; `sentence` says what went wrong. Waits."""
        try:
            return Look(value=future.result(max(0.0, self._end - time.monotonic())))
        except NotYet:
            # The read itself may have ended with a timeout of its own.
            if not future.done():
                return Look(pending=STILL)
            return Look(problem=sentence(future.exception() or NotYet()))
        except Busy as error:
            return Look(pending=str(error))
        except BaseException as error:
            return Look(problem=sentence(error))

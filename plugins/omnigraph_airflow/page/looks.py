"""Slow reads for a page: side by side, one at a time of each kind, waited for until a deadline, kept for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[T]):
    """What came of a read: its value, or a sentence about why there is none."""

    value: T | None = None
    problem: str | None = None
    pending: bool = False
    """It was not ready in time; a later request finds it."""


@dataclass(slots=True)
class _Slot:
    future: Future[Any]
    done_at: float | None = None


class Looks:
    """Daemon threads, one per subject: a store that hangs keeps one thread, and neither the others nor the server."""

    def __init__(self, *, keep_seconds: float) -> None:
        self._keep = keep_seconds
        self._slots: dict[Hashable, _Slot] = {}
        self._lock = threading.Lock()

    def begin(self, subject: Hashable, read: Callable[[], T]) -> Future[T]:
        """The value of a read that is under way or fresh enough, else of one that begins now. Starts a thread."""
        with self._lock:
            self._forget()
            slot = self._slots.get(subject)
            if slot is None:
                slot = self._slots[subject] = _Slot(Future())
                threading.Thread(target=self._run, args=(slot, read), daemon=True, name="page").start()
            return slot.future

    def _forget(self) -> None:
        now = time.monotonic()
        old = [key for key, slot in self._slots.items() if slot.done_at is not None and now - slot.done_at > self._keep]
        for key in old:
            del self._slots[key]

    @staticmethod
    def _run(slot: _Slot, read: Callable[[], T]) -> None:
        try:
            value = read()
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
                return Look(pending=True)
            return Look(problem=sentence(future.exception() or NotYet()))
        except BaseException as error:
            return Look(problem=sentence(error))

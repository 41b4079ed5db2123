"""How many threads of a run are at work on tables at once. A thread that waits to publish holds no slot.

So a run has more threads than slots: what some prepared waits to be published together, while others prepare more. A
graph with many small tables gets a few graph commits instead of one for each table.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import Run

T = TypeVar("T")
R = TypeVar("R")
WAITING = 16
"""Tables that may wait for their turn beside those at work."""


class OfRun(Generic[T]):
    """What the threads of a run on a graph have in common: made once, when the first of them asks."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._asking = make, threading.Lock()
        self._kept = WeakKeyDictionary[Run, dict[str, T]]()
        """By the root of the graph."""

    def of(self, graph: Graph) -> T:
        """The one of the run that works on this graph; makes it at the first call. Changes nothing stored."""
        with self._asking:
            kept, root = self._kept.setdefault(graph.run, {}), graph.storage.root
            if root not in kept:
                kept[root] = self._make()
            return kept[root]


@dataclass(frozen=True, slots=True, eq=False)
class _Ticket:
    """A thread that wants a slot."""

    most: int
    """How many threads may be at work, this one included."""
    thread: int = field(default_factory=threading.get_ident)
    granted: threading.Event = field(default_factory=threading.Event)


class Slots:
    """The slots of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rested = threading.Condition(self._lock)
        self._wanted = deque[_Ticket]()
        self._at_work: dict[int, _Ticket] = {}
        """By thread."""

    @contextlib.contextmanager
    def at_work(self, most: int) -> Iterator[None]:
        """Be one of `most` threads at work for the block. Waits until it is the turn of this one."""
        self._take(_Ticket(most), ahead=False)
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Give up the slot of this thread for the block, if it has one; then wait for a slot again."""
        left = self._leave()
        try:
            yield
        finally:
            if left is not None:
                # What was begun is ended before more is begun.
                self._take(_Ticket(left.most), ahead=True)

    def wait(self, enough: Callable[[], bool], seconds: float) -> None:
        """Wait until `enough` says so or nobody is at work, for `seconds` at most."""
        until = time.monotonic() + seconds
        with self._rested:
            while self._at_work and not enough():
                left = until - time.monotonic()
                if left <= 0 or not self._rested.wait(left):
                    return

    def _take(self, ticket: _Ticket, *, ahead: bool) -> None:
        with self._lock:
            (self._wanted.appendleft if ahead else self._wanted.append)(ticket)
            self._hand_out()
        ticket.granted.wait()

    def _leave(self) -> _Ticket | None:
        with self._lock:
            left = self._at_work.pop(threading.get_ident(), None)
            self._hand_out()
            self._rested.notify_all()
            return left

    def _hand_out(self) -> None:
        """Give free slots to the threads that wait, in their order. For whoever holds the lock."""
        while self._wanted and len(self._at_work) < self._wanted[0].most:
            ticket = self._wanted.popleft()
            self._at_work[ticket.thread] = ticket
            ticket.granted.set()


SLOTS = OfRun(Slots)


def in_slots(graph: Graph, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """`work` of every item, nearly in their order, by as many threads at work as the settings say. As `in_parallel`."""
    slots, most, faults = SLOTS.of(graph), graph.settings.concurrency, list[BaseException]()

    def one(item: T) -> R:
        with slots.at_work(most):
            if faults:
                raise faults[0]  # nothing begins after what ended the others
            try:
                return work(item)
            except BaseException as error:
                faults.append(error)
                raise

    try:
        return in_parallel(one, items, workers=most + WAITING if most > 1 else 1)
    except BaseException as error:
        faults.append(error)
        raise

"""How much at once: windows while other writers are active, and one throttle for all rewrites of a graph.

An engine refuses a write that meets an open window, and one whose branch was published to while it was prepared. So
while others publish, each window is followed by a pause that keeps the time in windows to a share. What one window
learns is left for the next one, of whatever process, as the note of the committer lease.

One throttle for all rewrites of a graph, wherever they run: admission is decided by small files in the graph. Two
ceilings, both guaranteed when a task is admitted and shared by every process that reaches the graph:

- concurrent rewrites: a task holds one of N slots, each a lease that is renewed and that a dead holder loses;
- bytes per second: a ledger holds the moment at which the next task may start. A task of B bytes moves it by
  B / ceiling seconds, so that the average holds over any two tasks and the burst is one task's size. Tasks are
  planned to fit the ceiling (stages/optimize/task_size.py).

A store that asks to slow down (503 SlowDown) moves the ledger for everybody.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.lease import LeaseKeeper, LeasePlace, Pause, committer_lease
from omnigraph_ops.coordination.state import THROTTLE_DIR, Records
from omnigraph_ops.errors import InvalidInput, LeaseHeld, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import version_record
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.publish import Ready
from omnigraph_ops.quantities import age
from omnigraph_ops.storage.store import Storage

_LOG = logging.getLogger(__name__)
_LEDGER = f"{THROTTLE_DIR}/ledger.json"
_LOCK = LeasePlace(path=f"{THROTTLE_DIR}/lock", name="the lock of the throttle")
_SLOT_TTL_SECONDS = 60.0
_LOCK_TTL_SECONDS = 10.0
_LOCK_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.2
_SAID_ABOVE_SECONDS = 30.0
_SAID_AFTER_ROUNDS = int(_SAID_ABOVE_SECONDS / _POLL_SECONDS)
_SLOW_DOWN_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 3600.0
"""A ledger further ahead than this is damage, or of another time: it counts as so far ahead."""
_BURST_SECONDS = 10
"""A task reads at most so many seconds' worth: long enough for files that are worth having, and short enough that
the average holds over a minute, which is what the bills and the limits of stores go by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """How much all rewrites of a graph may do at once; None is no bound."""

    concurrent_rewrites: int | None = None
    bytes_per_second: int | None = None

    @property
    def bound(self) -> bool:
        """Whether anything is bounded at all."""
        return self.concurrent_rewrites is not None or self.bytes_per_second is not None

    @property
    def task_bytes(self) -> int | None:
        """The most that one task may read, as far as fragments allow. Pure."""
        return None if self.bytes_per_second is None else self.bytes_per_second * _BURST_SECONDS


def ceilings_of(settings: Settings) -> Ceilings:
    """The ceilings of a deployment. Pure."""
    return Ceilings(
        concurrent_rewrites=settings.max_concurrent_rewrites or None,
        bytes_per_second=settings.max_rewrite_bytes_per_second or None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """When the next task may start, in seconds since the epoch."""

    next_start: float


_LEDGERS = Records(Ledger)


def next_start(ledger: Ledger, now: float, size: int, bytes_per_second: int) -> tuple[float, Ledger]:
    """When a task of `size` bytes may start, and the ledger after it. Pure."""
    start = max(now, min(ledger.next_start, now + _LONGEST_WAIT_SECONDS))
    return start, Ledger(next_start=start + size / bytes_per_second)


@contextlib.contextmanager
def admitted(storage: Storage, ceilings: Ceilings, size: int, pause: Pause | None = None) -> Iterator[None]:
    """Wait until a task of `size` bytes may run, and hold its slot for the block. Writes under `__maintenance/`.

    Args:
        pause: how to wait; whatever it raises ends the waiting.
    """
    if not ceilings.bound:
        yield
        return
    with _slot(storage, ceilings.concurrent_rewrites, pause):
        if ceilings.bytes_per_second is not None:
            wait = max(_book(storage, size, ceilings.bytes_per_second, pause) - time.time(), 0)
            if wait > _SAID_ABOVE_SECONDS:
                _LOG.warning("%s: a rewrite waits for %s, by the ceiling of bytes per second", storage.root, age(wait))
            (pause or time.sleep)(wait)
        try:
            yield
        except OpsError as error:
            if asks_to_slow_down(error):
                slow_down(storage)
            raise


def slow_down(storage: Storage) -> None:
    """Keep the next admission of anybody away for a while. Writes."""
    with _locked(storage):
        ahead = max(_read(storage).next_start, time.time() + _SLOW_DOWN_SECONDS)
        _LEDGERS.write(storage, _LEDGER, Ledger(next_start=ahead))


def asks_to_slow_down(error: BaseException) -> bool:
    """Whether a store's error means "too many requests". Pure."""
    text = str(error)
    return any(marker in text for marker in ("SlowDown", "Slow Down", "503", "TooManyRequests"))


@contextlib.contextmanager
def _slot(storage: Storage, slots: int | None, pause: Pause | None) -> Iterator[None]:
    if slots is None:
        yield
        return
    for rounds in itertools.count(1):
        for number in range(slots):
            place = LeasePlace(path=f"{THROTTLE_DIR}/slot-{number}", name=f"slot {number} of the throttle")
            stack = contextlib.ExitStack()
            try:
                stack.enter_context(
                    committer_lease(
                        storage, purpose="rewrite", ttl_seconds=_SLOT_TTL_SECONDS, wait_seconds=0, place=place
                    )
                )
            except LeaseHeld:
                continue
            with stack:
                yield
            return
        if rounds == _SAID_AFTER_ROUNDS:
            _LOG.warning("%s: a rewrite waits until fewer than %d are at work on this graph", storage.root, slots)
        (pause or time.sleep)(_POLL_SECONDS)


def _book(storage: Storage, size: int, bytes_per_second: int, pause: Pause | None) -> float:
    """Take the next place in the ledger; the moment at which it begins. Writes."""
    with _locked(storage, pause):
        start, after = next_start(_read(storage), time.time(), size, bytes_per_second)
        _LEDGERS.write(storage, _LEDGER, after)
    return start


def _locked(storage: Storage, pause: Pause | None = None) -> contextlib.AbstractContextManager[object]:
    return committer_lease(
        storage,
        purpose="throttle",
        ttl_seconds=_LOCK_TTL_SECONDS,
        wait_seconds=_LOCK_WAIT_SECONDS,
        place=_LOCK,
        pause=pause,
    )


def _read(storage: Storage) -> Ledger:
    """The ledger; one that is missing or damaged says that nobody waits. Reads."""
    ledger = _LEDGERS.read(storage, _LEDGER)
    return ledger if ledger is not None and math.isfinite(ledger.next_start) else Ledger(next_start=0.0)


_ACTIVE_SECONDS = 5.0
"""How long after a publish of somebody else the graph counts as written to."""
_LONGEST_PAUSE_SECONDS = 10.0
"""Bounds what a slow store, or a difference between two clocks, can cost a window."""
_BUSY_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Waits beside a writer that is in its own window, before what is prepared is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What is known about other writers. Times are seconds since the epoch."""

    published_version: int = 0
    """The graph manifest's version after the last window; 0 when there was none."""
    others_at: float = 0.0
    """When somebody else published last, as far as it was noticed."""
    not_before: float = 0.0
    """When the next window may open if others are still active."""

    def knows(self, manifest_version: int) -> bool:
        """Whether nobody published since the last window. Pure."""
        return manifest_version <= self.published_version

    def noticing(self, manifest_version: int, published_at: float) -> Pace:
        """With a publish of somebody else; before the first window nobody knows whether more are to come. Pure."""
        wait = self.not_before if self.published_version else published_at + _ACTIVE_SECONDS
        return replace(self, others_at=published_at, published_version=manifest_version, not_before=wait)

    def pause(self, now: float) -> float:
        """Seconds until a window may open, or until it is worth another look. Pure."""
        active_for = _ACTIVE_SECONDS - abs(now - self.others_at)
        return min(max(self.not_before - now, 0.0), max(active_for, 0.0))

    def after(self, *, manifest_version: int, window_seconds: float, share: float, now: float) -> Pace:
        """With a window that has just closed, of which `share` is the most that windows may take. Pure."""
        pause = min(window_seconds * (1 / share - 1), _LONGEST_PAUSE_SECONDS)
        return replace(self, published_version=manifest_version, not_before=now + pause)


class Patience:
    """How long one landing may still give way to others; mutable because it runs out."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._busy = graph, list(_BUSY_SECONDS)
        self._left = 0.0 if graph.is_alone() else _LONGEST_PAUSE_SECONDS

    def beside_writer(self) -> float | None:
        """Seconds to wait for a writer to end its window, None when it had its time. Counts."""
        return self._busy.pop(0) if self._busy else None

    def pause(self, ready: Ready, keeper: LeaseKeeper) -> float:
        """Seconds for which active writers shall meet no window. Reads; leaves what was noticed in the lease."""
        pace, version = pace_of(keeper.note), ready.state.manifest_version
        if not pace.knows(version):
            pace = pace.noticing(version, _published_at(self._graph, version))
            keeper.leave(serde.dumps(pace))
        pause = min(pace.pause(time.time()), self._left)
        self._left -= pause
        return pause


def pace_of(note: str) -> Pace:
    """The pace in the note of a lease; one that nobody left, or that cannot be read, knows nothing. Pure."""
    try:
        return serde.from_json(Pace, note.encode()) if note else Pace()
    except InvalidInput:
        return Pace()


def _published_at(graph: Graph, version: int) -> float:
    """When a version of the graph manifest was made, by its writer's clock. Reads."""
    made = version_record(graph.storage, MANIFEST_DIR, version).committed_at_us
    return time.time() if made is None else made / 1e6

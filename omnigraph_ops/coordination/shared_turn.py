"""One turn of the committer lease that the threads of a run share: they work at the same time, and it is taken once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.coordination.slots import OfRun
from omnigraph_ops.errors import LeaseHeld
from omnigraph_ops.graph.graph import Graph

_POLL_SECONDS = 0.5
"""How often a thread that is not woken asks whether its run stops."""
_ROOM_SECONDS = 0.1
"""For how long a run that had a full turn leaves the lease to others; they look for it twice in that time."""


@contextlib.contextmanager
def shared_turn(graph: Graph, purpose: str, *, most: int) -> Iterator[LeaseKeeper]:
    """Hold the committer lease for the block, with other threads of the run that come meanwhile. Writes the lease.

    Args:
        purpose: what this thread does. No two threads are in a turn for one purpose, and that of the first one
            is what others read of the lease.
        most: as many threads have part in one turn; then other runs may have theirs.

    Raises:
        LeaseHeld: another run kept the lease; nothing was done.
        Stopped: this run was asked to stop.
    """
    shared = _SHARED.of(graph)
    keeper = shared.enter(graph, purpose, most)
    try:
        yield keeper
    finally:
        shared.leave(purpose)


class _Shared:
    """The turn that the threads of a run share."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = False
        """Whether a thread takes or releases the lease."""
        self._keeper: LeaseKeeper | None = None
        self._lease = contextlib.ExitStack()
        self._inside = set[str]()
        self._entered = 0
        self._was_full = False
        self._denied: tuple[float, str] = (0.0, "")
        """When a thread last waited for the lease in vain, and what kept it."""

    def enter(self, graph: Graph, purpose: str, most: int) -> LeaseKeeper:
        waits_since: float | None = None
        while True:
            with self._changed:
                has_room = not self._busy and self._entered < most and purpose not in self._inside
                if self._keeper is not None and has_room:
                    return self._join(self._keeper, purpose, most)
                waits_since = None if self._keeper is not None else waits_since or time.monotonic()
                if self._keeper is None and not self._busy:
                    self._busy = True
                    break
                self._refuse_denied(waits_since, graph.settings.lease_wait_seconds)
                self._changed.wait(_POLL_SECONDS)
            graph.run.pause(0.0)
        try:
            if self._was_full:
                graph.run.pause(_ROOM_SECONDS)
            keeper = self._lease.enter_context(committer_turn(graph, purpose))
        except BaseException as error:
            if isinstance(error, LeaseHeld):
                self._denied = (time.monotonic(), str(error))
            self._now(None)
            raise
        with self._changed:
            self._entered = 0
            self._now(keeper)
            return self._join(keeper, purpose, most)

    def _refuse_denied(self, waits_since: float | None, patience: float) -> None:
        """Raise for a thread that waited for as long as another one that did in vain: it need not try, too."""
        at, why = self._denied
        if waits_since is not None and at >= waits_since and time.monotonic() - waits_since >= patience:
            raise LeaseHeld(why)

    def _join(self, keeper: LeaseKeeper, purpose: str, most: int) -> LeaseKeeper:
        self._inside.add(purpose)
        self._entered += 1
        self._was_full = self._entered >= most
        return keeper

    def leave(self, purpose: str) -> None:
        with self._changed:
            self._inside.remove(purpose)
            if self._inside:
                return
            self._busy = True
        try:
            self._lease.close()
        finally:
            self._now(None)

    def _now(self, keeper: LeaseKeeper | None) -> None:
        """Let the others see whether there is a turn to join. For the thread that was busy with the lease."""
        with self._changed:
            self._keeper, self._busy = keeper, False
            self._changed.notify_all()


_SHARED = OfRun(_Shared)

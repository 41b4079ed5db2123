"""How often windows may open while other writers are active.

An engine refuses a write that meets an open window, and one whose branch was published to while it was prepared. So
while others publish, each window is followed by a pause that keeps the time in windows to a share. What one window
learns is left for the next one, of whatever process, as the note of the committer lease.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from omnigraph_ops import serde
from omnigraph_ops.coordination.lease import LeaseKeeper
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import version_record
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.publish import Ready

_ACTIVE_SECONDS = 5.0
"""How long after a publish of somebody else the graph counts as written to."""
_LONGEST_PAUSE_SECONDS = 10.0
"""Bounds what a slow store, or a difference between two clocks, can cost a window."""
_BUSY_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Waits beside a writer that is in its own window."""


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

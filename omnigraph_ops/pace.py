"""How often windows may open while other writers are active. Pure.

An engine refuses a write that meets an open window, and one whose branch was published to while it was prepared. So
while others publish, each window is followed by a pause that keeps the time in windows to a share. What one window
learns is left for the next one, of whatever process, as the note of the committer lease.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from omnigraph_ops import serde
from omnigraph_ops.errors import InvalidInput

_ACTIVE_SECONDS = 60.0
"""How long after a publish of somebody else the graph counts as written to."""
_LONGEST_PAUSE_SECONDS = 10.0
"""Bounds what a slow store, or a difference between two clocks, can cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What is known about other writers. Times are seconds since the epoch."""

    published_version: int = 0
    """The graph manifest's version after the last window; 0 when there was none."""
    others_at: float = 0.0
    """When a publish of somebody else was last noticed."""
    not_before: float = 0.0
    """When the next window may open if others are still active."""

    def noticing(self, manifest_version: int, now: float) -> Pace:
        """With what a look at the graph manifest tells. Pure."""
        others = 0 < self.published_version < manifest_version
        return replace(self, others_at=now, published_version=manifest_version) if others else self

    def pause(self, now: float) -> float:
        """Seconds until a window may open. Pure."""
        active = abs(now - self.others_at) < _ACTIVE_SECONDS
        return min(max(self.not_before - now, 0.0), _LONGEST_PAUSE_SECONDS) if active else 0.0

    def after(self, *, manifest_version: int, window_seconds: float, share: float, now: float) -> Pace:
        """With a window that has just closed, of which `share` is the most that windows may take. Pure."""
        pause = min(window_seconds * (1 / share - 1), _LONGEST_PAUSE_SECONDS)
        return replace(self, published_version=manifest_version, not_before=now + pause)


def pace_of(note: str) -> Pace:
    """The pace in the note of a lease; one that nobody left, or that cannot be read, knows nothing. Pure."""
    try:
        return serde.from_json(Pace, note.encode()) if note else Pace()
    except InvalidInput:
        return Pace()

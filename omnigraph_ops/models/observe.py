"""What the quiet-graph sensor sees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietState:
    """Whether a graph is quiet enough to maintain."""

    uri: str
    quiet: bool
    reason: str
    seconds_since_publish: float

"""Numbers and moments for a person. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from omnigraph_ops import quantities
from omnigraph_ops.quantities import count, human_bytes

UNKNOWN = "—"
GOOD, FAIR = 90, 70
"""Health scores from which on a graph or a table is called so."""


def score_word(score: int | None) -> str:
    """A score in a word, so that no colour is needed to read it. Pure."""
    if score is None:
        return "unknown"
    return "good" if score >= GOOD else "fair" if score >= FAIR else "poor"


def number(value: float | int | None) -> str:
    """`12,345`, `3.25`. Pure."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) or float(value).is_integer() else f"{value:,.3g}"


def whole(value: float | None) -> str:
    """A count. Pure."""
    return UNKNOWN if value is None else f"{round(value):,}"


def size(value: float | None) -> str:
    """`3.4 MiB`. Pure."""
    return UNKNOWN if value is None else human_bytes(int(value))


def share(value: float | None) -> str:
    """`12.5%`; what is there but rounds to nothing says so. Pure."""
    if value is None:
        return UNKNOWN
    return "<0.1%" if 0 < value < 0.001 else f"{value:.1%}" if value % 1 else f"{value:.0%}"


def factor(value: float | None) -> str:
    """So many times. Pure."""
    return UNKNOWN if value is None else f"{value:.3g}\u00d7"


def took(seconds: float | None) -> str:
    """How long a run took, as its report has it. Pure."""
    return UNKNOWN if seconds is None else quantities.took(seconds)


def span(seconds: float) -> str:
    """The largest unit of a duration: `3 days`. Pure."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return count(int(seconds // length), unit)
    return "less than a minute"


def away(moment: datetime, now: datetime) -> str:
    """`3 hours ago`, `in 2 days`. Pure."""
    seconds = (moment - now).total_seconds()
    return f"in {span(seconds)}" if seconds >= 0 else f"{span(-seconds)} ago"


def clock(moment: datetime) -> str:
    """`2026-01-02 03:04 UTC`. Pure."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def of_micros(microseconds: int) -> datetime:
    """A moment of the history. Pure."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def day(microseconds: int) -> str:
    """`Jan 02, 03:04`. Pure."""
    return f"{of_micros(microseconds):%b %d, %H:%M}"

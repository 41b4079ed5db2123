"""Times for people: durations, an unsigned integer and one unit of s, m, h, d or w, and moments."""

from __future__ import annotations

from datetime import UTC, datetime

from omnigraph_ops.errors import InvalidInput

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MOST_DIGITS = len(str(2**64))
_LIMIT = 2**64
DURATION = r"^\s*\+?\d+[smhdw]\s*$"
"""A duration, for a form or an editor that checks by pattern."""


def parse_duration(text: str) -> int:
    """Seconds of `90s`, `30m`, `7d`; `InvalidInput` otherwise. Pure.

    A number alone is refused: the engine takes it for seconds, and whoever writes `7` mostly means days.
    """
    stripped = text.strip()
    if not stripped:
        raise InvalidInput("duration is empty")
    letters = [i for i, c in enumerate(stripped) if c.isascii() and c.isalpha()]
    split = letters[-1] if letters else len(stripped)
    number, unit = stripped[:split], stripped[split:]
    if unit and unit not in _UNITS:
        raise InvalidInput(f"unknown duration unit '{unit}'. Supported: s, m, h, d, w")
    digits = number.removeprefix("+")
    whole = digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= _MOST_DIGITS
    if not whole or int(digits) >= _LIMIT:
        raise InvalidInput(f"invalid duration '{text}': expected a whole number and one unit, e.g. 7d")
    if not unit:
        raise InvalidInput(f"the duration '{text}' has no unit: write {digits}d for days, {digits}s for seconds")
    return int(digits) * _UNITS[unit]


def duration(seconds: int) -> str:
    """What `parse_duration` reads as so many seconds, in days or the largest smaller unit: `7d`. Pure."""
    unit = next(u for u in "dhms" if seconds % _UNITS[u] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


def moment(microseconds: int) -> str:
    """A moment in UTC, to the second. Pure."""
    try:
        return f"{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return f"{microseconds} µs after 1970"

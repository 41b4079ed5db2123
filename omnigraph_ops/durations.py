"""Times for people: durations in the engine's grammar (an unsigned integer and one unit of s, m, h, d, w), moments."""

from __future__ import annotations

from datetime import UTC, datetime

from omnigraph_ops.errors import InvalidInput

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MOST_DIGITS = len(str(2**64))
_LIMIT = 2**64


def parse_duration(text: str) -> int:
    """Seconds of `90`, `30m`, `7d`; `InvalidInput` in the engine's words otherwise. Pure."""
    stripped = text.strip()
    if not stripped:
        raise InvalidInput("duration is empty")
    letters = [i for i, c in enumerate(stripped) if c.isascii() and c.isalpha()]
    split = letters[-1] if letters else len(stripped)
    number, unit = stripped[:split], stripped[split:]
    if unit not in _UNITS:
        raise InvalidInput(f"unknown duration unit '{unit}'. Supported: s, m, h, d, w")
    digits = number.removeprefix("+")
    whole = digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= _MOST_DIGITS
    if not whole or int(digits) >= _LIMIT:
        raise InvalidInput(f"invalid duration '{text}': expected a whole number and one unit, e.g. 7d")
    return int(digits) * _UNITS[unit]


def moment(microseconds: int) -> str:
    """A moment in UTC, to the second. Pure."""
    try:
        return f"{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return f"{microseconds} µs after 1970"

"""Durations, moments, counts and byte counts: written by and for a person."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from omnigraph_ops.errors import InvalidInput

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LONGEST_DAYS = 365_000
"""About 1,000 years; an age or a bound beyond that is a slip of the keyboard."""
_MOST_DIGITS = len(str(_LONGEST_DAYS * 86_400))
DURATION = r"^\s*\+?\d+[smhdw]\s*$"
"""A duration, for a form or an editor that checks by pattern."""
FROM_AN_HOUR = r"^\s*\+?0*([1-9]\d*[hdw]|([6-9]\d|[1-9]\d{2,})m|(3[6-9]\d{2}|[4-9]\d{3}|[1-9]\d{4,})s)\s*$"
"""A duration of at least `1h`, which is `60m` or `3600s`."""


def parse_duration(text: str) -> int:
    """Seconds of `90s`, `30m`, `7d`; `InvalidInput` otherwise. Pure.

    A number alone is refused: the engine takes it for seconds, and whoever writes `7` mostly means days. So is what is
    longer than about 1,000 years.
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
    if not (digits.isascii() and digits.isdigit()):
        raise InvalidInput(f"invalid duration '{text}': expected a whole number and one unit, e.g. 7d")
    if not unit:
        meant = digits[:30]
        raise InvalidInput(f"the duration '{text[:30]}' has no unit: write {meant}d for days, {meant}s for seconds")
    # The length first: Python refuses to read numbers of thousands of digits.
    seconds = int(digits) * _UNITS[unit] if len(digits.lstrip("0")) <= _MOST_DIGITS else None
    if seconds is None or seconds > _LONGEST_DAYS * 86_400:
        raise InvalidInput(f"the duration '{stripped[:30]}' is longer than {_LONGEST_DAYS}d, about 1,000 years")
    return seconds


def duration(seconds: int) -> str:
    """What `parse_duration` reads as so many seconds, in days or the largest smaller unit: `7d`. Pure."""
    unit = next(u for u in "dhms" if seconds % _UNITS[u] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


def age(seconds: float) -> str:
    """A time span in its largest unit, rounded down: `3 d`. Pure."""
    whole = max(int(seconds), 0)
    unit, size = next(((u, s) for u, s in (("d", 86_400), ("h", 3600), ("min", 60)) if whole >= s), ("s", 1))
    return f"{whole // size} {unit}"


def took(seconds: float) -> str:
    """How long something took: `1.25 s`, `12 min 5 s`, `2 h 4 min`. Pure."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.3g} s"


def count(number: int, noun: str, plural: str = "") -> str:
    """So many of something: `1 table`, `1,200 tables`; `plural` where it is not the noun with an s. Pure."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def moment(microseconds: int) -> str:
    """A moment in UTC, to the second. Pure."""
    try:
        return f"{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return f"{microseconds} µs after 1970"


def moment_at(seconds: float) -> str:
    """As `moment`, by seconds since the epoch. Pure."""
    return moment(int(seconds * 1e6))


_SIZE = re.compile(r"\s*([0-9]{1,18})\s*(?:([kmgt])(i?)b?|b)?\s*", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def human_bytes(count: int) -> str:
    """A byte count for a person, `3.4 MiB`. Pure."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


_EXACT = {
    "": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}


def exact_bytes(count: int) -> str:
    """What `parse_bytes` reads as so many bytes, in the unit that takes the smallest number: `20GiB`. Pure."""
    fitting = [unit for unit, size in _EXACT.items() if size <= count and count % size == 0]
    unit = max(fitting, key=_EXACT.__getitem__, default="")
    return f"{count // _EXACT[unit]}{unit}"


def parse_bytes(text: str) -> int:
    """Bytes of `1000`, `20GiB`, `500MB`; `InvalidInput` otherwise. Pure."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise InvalidInput(f"invalid size '{text}': expected a whole number and a unit, e.g. 500MB or 20GiB")
    number, unit, binary = found.groups(default="")
    return int(number) * int((1024 if binary else 1000) ** _POWERS[unit.lower()])

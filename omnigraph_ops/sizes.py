"""Byte counts: written by and for a person."""

from __future__ import annotations

import re

from omnigraph_ops.errors import InvalidInput

_SIZE = re.compile(r"\s*([0-9]{1,18})\s*(?:([kmgt])(i?)b?|b)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def human_bytes(count: int) -> str:
    """A byte count for a person, `3.4 MiB`. Pure."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def parse_bytes(text: str) -> int:
    """Bytes of `1000`, `20GiB`, `500MB`; `InvalidInput` otherwise. Pure."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise InvalidInput(f"invalid size '{text}': expected a whole number and a unit, e.g. 500MB or 20GiB")
    number, unit, binary = found.groups(default="")
    return int(number) * int((1024 if binary else 1000) ** _POWERS[unit.lower()])

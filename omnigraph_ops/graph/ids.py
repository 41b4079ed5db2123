"""ULIDs and timestamps as the engine writes them."""

from __future__ import annotations

import re
import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def now_us() -> int:
    """Microseconds since the epoch. Reads the clock."""
    return time.time_ns() // 1000


def new_ulid(at_us: int | None = None) -> str:
    """A fresh ULID: 48 bits of milliseconds, 80 random bits, upper-case Crockford. Reads the clock."""
    millis = (now_us() if at_us is None else at_us) // 1000
    return encode_ulid(millis, secrets.randbits(80))


def encode_ulid(millis: int, randomness: int) -> str:
    """The text of a ULID from its two parts. Pure."""
    value = (millis << 80) | randomness
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def is_ulid(text: str) -> bool:
    """Whether `text` is a canonical ULID. Pure."""
    return _ULID.fullmatch(text) is not None

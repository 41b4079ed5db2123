"""Values of rows as short text on one line; whatever they contain is only text. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

MAX_TEXT = 80
MAX_ITEMS = 4
MAX_HEX = 8
_BLOB_KEYS = frozenset({"position", "size"})


def readable(value: object) -> str:
    """One value for a person: quoted text, shortened vectors and blobs, `null`. Pure."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{short(value)}"'
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value))
    if isinstance(value, float):
        return format(value, ".6g")
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, Sequence):
        return _items(value)
    return short(str(value))


def short(text: str, limit: int = MAX_TEXT) -> str:
    """Text without control characters, cut to `limit` with its length named. Pure."""
    if len(text) <= limit:
        return safe(text)
    return f"{safe(text[:limit])}… ({len(text):,} characters)"


def safe(text: str) -> str:
    """Text in which everything that is not printable is escaped, so that it cannot move a cursor. Pure."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_blob_description(value: object) -> bool:
    """Whether Lance described a blob instead of reading it; positions differ between equal blobs. Pure."""
    return isinstance(value, Mapping) and value.keys() >= _BLOB_KEYS


def _bytes(value: bytes) -> str:
    more = "…" if len(value) > MAX_HEX else ""
    return f"{len(value):,} bytes 0x{value[:MAX_HEX].hex()}{more}"


def _mapping(value: Mapping[object, object]) -> str:
    if is_blob_description(value):
        return f"blob of {value['size']:,} bytes"
    parts = [f"{short(str(k))}: {readable(v)}" for k, v in list(value.items())[:MAX_ITEMS]]
    return "{" + ", ".join(parts) + (", …" if len(value) > MAX_ITEMS else "") + "}"


def _items(value: Sequence[object]) -> str:
    parts = ", ".join(readable(item) for item in value[:MAX_ITEMS])
    if len(value) <= MAX_ITEMS:
        return f"[{parts}]"
    # The rest only as a mark, by which two long vectors can be told apart.
    mark = hashlib.sha256(repr(value).encode("utf-8", "replace")).hexdigest()[:6]
    return f"[{parts}, … {len(value):,} values #{mark}]"

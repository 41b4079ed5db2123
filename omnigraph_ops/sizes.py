"""Byte counts for a person."""

from __future__ import annotations


def human_bytes(count: int) -> str:
    """A byte count for a person, `3.4 MiB`. Pure."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"

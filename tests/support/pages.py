"""Whether a rewrite copied the pages of its sources or encoded them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Buffers begin at multiples of 64 bytes; the first one is a few bytes of lengths and padding.
_SECOND_BUFFER = slice(64, 128)


def files_of(dataset: Any) -> list[bytes]:
    """The contents of the data files that the open version refers to, in the order of its fragments."""
    folder = Path(str(dataset.uri).removeprefix("file://")) / "data"
    return [(folder / f.path).read_bytes() for part in dataset.get_fragments() for f in part.metadata.files]


def copied(before: list[bytes], after: list[bytes]) -> bool:
    """Whether the first values of every old file lie in a new one as they were encoded."""
    whole = b"".join(after)
    return all(old[_SECOND_BUFFER] in whole for old in before)

"""Fragments that Lance would merge into pages whose nulls take as much memory as their one value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa

VALUE = "h" * 70_000
ROWS = (16_500, 16_500, 10)
"""Of each fragment; in one page with the value they take 2.3 GB, apart next to nothing."""


def notes(other: str | None = None) -> Iterator[list[str | None]]:
    """Nulls for each fragment, but for one value at the end, or two where there is another one."""
    for count in ROWS:
        found: list[str | None] = [None] * count
        if count == ROWS[-1]:
            found[5:7] = [VALUE, other]
        yield found


def one_note(path: str | Path, *, stable: bool = True, other: str | None = None) -> None:
    """A dataset of them; each fragment can be read. Writes."""
    for load, texts in enumerate(notes(other)):
        table = pa.table({"id": pa.array(range(len(texts))), "note": pa.array(texts, pa.string())})
        mode = "append" if load else "create"
        lance.write_dataset(table, path, mode=mode, enable_stable_row_ids=stable, data_storage_version="2.2")

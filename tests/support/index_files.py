"""What the Lance of an engine makes of an index, made here."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from omnigraph_ops.lance.gateway import Dataset, described


def entries(dataset: Dataset, name: str) -> pa.Table:
    """The values and row ids of a BTREE. Reads."""
    return LanceFileReader(str(_pages(dataset, name))).read_all().to_table()


def repeat_entries(dataset: Dataset, name: str, count: int = 3) -> None:
    """Give the first rows of a BTREE a second entry, as a fold of Lance 7 does with updated rows. Writes."""
    found = entries(dataset, name)
    _rewrite(dataset, name, pa.concat_tables([found, found.slice(0, count)]))


def drop_entry(dataset: Dataset, name: str) -> None:
    """Take the entry of the first row out of a BTREE, as a fold of Lance 7 does after some compactions. Writes."""
    _rewrite(dataset, name, entries(dataset, name).slice(1))


def _rewrite(dataset: Dataset, name: str, found: pa.Table) -> None:
    path = _pages(dataset, name)
    path.unlink()
    with LanceFileWriter(str(path), found.schema) as writer:
        writer.write_batch(found)


def _pages(dataset: Dataset, name: str) -> Path:
    (index,) = (i for i in described(dataset) if i.name == name)
    (segment,) = index.segments
    return Path(dataset.uri.removeprefix("file://"), "_indices", segment.uuid, "page_data.lance")

"""What a reader sees: every row of every table with its stable row id, in order, as digests."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import lance
import pyarrow as pa

from omnigraph_ops.coordination.state import HISTORY_PATH
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import MAINTENANCE_DIR
from omnigraph_ops.graph.state import TableEntry

Rows = dict[str, str]
_HISTORY = HISTORY_PATH.rpartition("/")[2]


def rows_of(graph: Graph, branch: str | None = None) -> Rows:
    """Table key to a digest of its published rows on that branch. Reads."""
    return {entry.table_key: table_digest(graph, entry) for entry in graph.state(branch).entries}


def rows_everywhere(graph: Graph, *, in_order: bool = True) -> dict[str | None, Rows]:
    """`rows_of` for main (None) and every branch. Reads.

    Args:
        in_order: digests depend on the order of a scan, not only on the row ids.
    """
    # Branches share most of their pins.
    read = functools.cache(lambda entry: table_digest(graph, entry, in_order=in_order))
    return {
        branch: {entry.table_key: read(entry) for entry in graph.state(branch).entries}
        for branch in (None, *graph.branches())
    }


def table_digest(graph: Graph, entry: TableEntry, *, in_order: bool = True) -> str:
    """Digest of the rows at the published version. Reads."""
    rows = scan(graph.open_pinned(entry))
    return digest_of(rows if in_order else rows.sort_by("_rowid"))


def scan(dataset: lance.LanceDataset) -> pa.Table:
    """All rows in storage order with `_rowid`; blobs as their bytes. Reads."""
    return dataset.to_table(with_row_id=True, scan_in_order=True, blob_handling="all_binary")


def digest_of(table: pa.Table) -> str:
    """A digest of names, values and order; not of how the batches are cut. Pure."""
    text = hashlib.sha256()
    for name in sorted(table.column_names):
        text.update(f"\n{name}:".encode())
        for value in table.column(name).to_pylist():
            text.update(repr(value).encode() + b"|")
    return text.hexdigest()


def tree_of(root: str | Path) -> dict[str, str]:
    """Every file and folder below `root` with the digest of its bytes, but for the history of the runs. Reads."""
    base = Path(root)
    found = {}
    for path in sorted(base.rglob("*")):
        name = path.relative_to(base).as_posix()
        if name.startswith(HISTORY_PATH) or (path.name == MAINTENANCE_DIR and os.listdir(path) == [_HISTORY]):
            continue
        found[name] = "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found

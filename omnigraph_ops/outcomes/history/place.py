"""Where the history of a graph is, and how it is reached. Pure."""

from __future__ import annotations

from omnigraph_ops.coordination.state import HISTORY_PATH
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.lance.history_table import HistoryTable
from omnigraph_ops.storage.options import lance_options
from omnigraph_ops.storage.store import Storage

_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def table_at(source: Graph | Storage) -> HistoryTable:
    """The table of a graph, reached as the graph is; of a bare store, as the environment says. Reads."""
    if isinstance(source, Storage):
        return HistoryTable(f"{source.root}/{HISTORY_PATH}", lance_options(source.root))
    return HistoryTable(f"{source.storage.root}/{HISTORY_PATH}", source.lance.storage_options)


def credentials_of(source: Graph | Storage) -> tuple[str, ...]:
    """The values that must never be part of a record. Pure."""
    options = {} if isinstance(source, Storage) else source.lance.storage_options or {}
    return tuple(options[name] for name in _CREDENTIALS if options.get(name))

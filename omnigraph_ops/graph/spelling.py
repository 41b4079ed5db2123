"""How the engine spells a graph's root: sidecars are compared with it byte for byte."""

from __future__ import annotations

import os

from omnigraph_ops.errors import InvalidInput, OperatorNeeded
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry


def engine_root(graph: Graph, entry: TableEntry) -> str:
    """The root to write into a sidecar: the setting, else the absolute path we opened. Reads links.

    Raises:
        OperatorNeeded: the last publish spelled this very directory differently, so an engine that
            opens it that way would refuse our sidecar; set `engine_root` to its spelling.
        InvalidInput: the setting names another directory.
    """
    chosen = graph.settings.engine_root
    if chosen is not None:
        return _checked_setting(graph, chosen.rstrip("/"))
    recorded = recorded_root(graph, entry)
    if recorded is not None and recorded != graph.uri and _conflicts(graph, recorded):
        raise OperatorNeeded(
            f"{entry.table_key} was last published under the root {recorded!r}, not {graph.uri!r}; nothing was "
            "written; set OMNIGRAPH_OPS_ENGINE_ROOT to the spelling that the engine opens this graph with"
        )
    return graph.uri


def recorded_root(graph: Graph, entry: TableEntry) -> str | None:
    """The root in the entry's version metadata, None where it cannot be told (S3, odd paths). Pure."""
    path = entry.manifest_path
    if path is None or not graph.context.location.is_local:
        return None
    root, found, _ = path.partition(f"/{entry.path}/")
    if not found:
        return None
    return graph.format.recorded_local_root(root)


def _conflicts(graph: Graph, recorded: str) -> bool:
    """Whether an engine may still open this directory under `recorded`. Reads links.

    A copy or a moved graph keeps paths of its old home: no engine reaches *this* directory through
    them, so they do not count.
    """
    if not os.path.isabs(recorded):
        return True
    return os.path.exists(recorded) and os.path.samefile(recorded, graph.uri)


def _checked_setting(graph: Graph, chosen: str) -> str:
    local = graph.context.location.is_local
    if local and os.path.isabs(chosen) and not (os.path.exists(chosen) and os.path.samefile(chosen, graph.uri)):
        raise InvalidInput(f"engine_root {chosen!r} is not the directory {graph.uri!r}; nothing was written")
    return chosen

"""How the engine spells a graph's root: sidecars are compared with it byte for byte."""

from __future__ import annotations

import os

from omnigraph_ops.errors import InvalidInput, OperatorNeeded
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.storage.location import GraphLocation, locate


def engine_root(graph: Graph, entry: TableEntry) -> str:
    """The root to write into a sidecar: the setting, else the absolute path we opened. Reads links.

    Raises:
        OperatorNeeded: the last publish spelled this very directory differently, so an engine that
            opens it that way would refuse our sidecar; set `engine_root` to its spelling.
        InvalidInput: the setting names another directory.
    """
    chosen = chosen_root(graph)
    if chosen is not None:
        return chosen
    recorded = recorded_root(graph, entry)
    if recorded is not None and recorded != graph.uri and _conflicts(graph, recorded):
        raise OperatorNeeded(
            f"{entry.table_key} was last published under the root {recorded!r}, not {graph.uri!r}; nothing was "
            "written; set OMNIGRAPH_OPS_ENGINE_ROOT to the spelling that the engine opens this graph with"
        )
    return graph.uri


def chosen_root(graph: Graph) -> str | None:
    """The setting, None when there is none. Reads links.

    Raises:
        InvalidInput: it names another place, or no engine spells a root like that.
    """
    chosen = graph.settings.engine_root
    if chosen is None:
        return None
    place, spelled = locate(chosen), chosen.rstrip("/")
    if place.is_local and "://" in chosen:
        raise InvalidInput(f"engine_root {chosen!r} is a URI, of which engines keep the path; nothing was written")
    if not _is_place_of(graph, place, spelled):
        raise InvalidInput(f"engine_root {chosen!r} is not the directory {graph.uri!r}; nothing was written")
    return spelled if place.is_local else place.root


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


def _is_place_of(graph: Graph, place: GraphLocation, spelled: str) -> bool:
    """Whether a root leads to the graph; a relative one does so from a directory that only its engine knows. Reads."""
    if not (place.is_local and graph.context.location.is_local):
        return place.root == graph.uri
    return not os.path.isabs(spelled) or (os.path.exists(spelled) and os.path.samefile(spelled, graph.uri))

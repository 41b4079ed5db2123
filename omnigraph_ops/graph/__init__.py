"""The graph format: what the engine writes on disk, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph_ops.graph.graph import Graph
    from omnigraph_ops.graph.opening import open_graph

__all__ = ["Graph", "open_graph"]


def __getattr__(name: str) -> Any:
    # Opening a graph imports Lance, which takes a second: names and layouts beside it must not.
    if name in __all__:
        from omnigraph_ops.graph import opening

        return getattr(opening, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

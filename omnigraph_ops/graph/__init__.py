"""The graph format: what the engine writes on disk, and nothing else."""

from omnigraph_ops.graph.graph import Graph, open_graph

__all__ = ["Graph", "open_graph"]

"""The graphs file: every graph of a deployment in one YAML file, one entry each (docs/how-to/many-graphs.md)."""

from __future__ import annotations

from omnigraph_ops.config.graphs_file.model import Approvals, ClusterTarget, GraphEntry, Notifier
from omnigraph_ops.config.graphs_file.reader import GraphsFileError, Problem, Reading, load_graphs, read_graphs

__all__ = [
    "Approvals",
    "ClusterTarget",
    "GraphEntry",
    "GraphsFileError",
    "Notifier",
    "Problem",
    "Reading",
    "load_graphs",
    "read_graphs",
]

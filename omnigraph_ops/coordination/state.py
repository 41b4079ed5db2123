"""Places of this tool's own state below `__maintenance/` of a graph."""

from __future__ import annotations

from omnigraph_ops.graph.layout import MAINTENANCE_DIR

CLONES_DIR = f"{MAINTENANCE_DIR}/clones"
"""Clones of tables on which index work is prepared; a clone is named after the hold of its run."""

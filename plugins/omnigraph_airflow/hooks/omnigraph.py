"""Opens the graph a task works on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from omnigraph_ops.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

GRAPH = "{{ params.graph or var.value.get('omnigraph_graph', '') }}"
"""Default of every operator's `graph`: the run's param, else the Airflow Variable `omnigraph_graph`."""


class OmnigraphHook(BaseHook):
    """From a rendered `graph` field to an open graph; settings come from the environment.

    :param graph: path or URI of the graph; empty means the environment variable `OMNIGRAPH_GRAPH`.
    """

    def __init__(self, graph: str | None = None) -> None:
        super().__init__()
        self.graph = graph

    def target(self) -> str:
        """The graph to work on; `InvalidInput` when nobody named one. Reads."""
        target = self.graph or os.environ.get("OMNIGRAPH_GRAPH", "")
        if not target:
            raise InvalidInput(
                "no graph named: set the param graph, the Airflow Variable omnigraph_graph "
                "or the environment variable OMNIGRAPH_GRAPH"
            )
        return target

    def get_conn(self) -> Graph:
        """Open the graph. Reads."""
        from omnigraph_ops.graph import open_graph
        from omnigraph_ops.settings import Settings

        return open_graph(self.target(), Settings.from_env())

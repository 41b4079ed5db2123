"""Freeze as a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_ops.models.freeze import Freeze
from omnigraph_ops.progress import Progress
from omnigraph_ops.stages.freeze.request import FreezeRequest
from omnigraph_ops.stages.freeze.view import freeze_view
from omnigraph_ops.stages.stage import Effect, FormField, RunStage
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class FreezeStage(RunStage[FreezeRequest, Freeze]):
    """Keeps a graph as it is."""

    name = "freeze"
    effect = Effect.WRITES
    summary = "Keep the graph, with all its branches, as it is now readable until the freeze ends."
    does = "keeps the graph as it is and stops its maintenance"
    unharmed = "nothing was frozen"
    panel = "Backup"
    recorded = False
    request = FreezeRequest
    fence_help = "Keep engine writers away while the freeze is taken: all branches at one instant."
    form = (FormField(name="ttl", title="Frozen at most"),)

    def run(self, graph: Graph, request: FreezeRequest, tell: Progress) -> Freeze:
        """Freeze. Writes tags and a hold."""
        from omnigraph_ops.stages.freeze.take import freeze_graph

        return freeze_graph(
            graph,
            tables=request.tables,
            ttl_seconds=float(request.ttl),
            reason=request.reason,
            owner=request.owner or None,
            progress=tell,
        )

    def view(self, value: Freeze) -> View:
        return freeze_view(value)

"""Health as a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_ops.models import HealthReport
from omnigraph_ops.progress import Progress
from omnigraph_ops.requests import TablesRequest
from omnigraph_ops.stages.health.view import health_view
from omnigraph_ops.stages.stage import Effect, RunStage
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class HealthRequest(TablesRequest):
    """Score tables."""


class Health(RunStage[HealthRequest, HealthReport]):
    """Scores every table."""

    name = "health"
    effect = Effect.READS
    summary = (
        "Score every table from 0 to 100, worst first. Writes nothing.\n\n"
        "Small fragments, deleted and unindexed rows, versions and dead bytes count. Reads metadata only."
    )
    request = HealthRequest

    def run(self, graph: Graph, request: HealthRequest, tell: Progress) -> HealthReport:
        """Score. Reads."""
        from omnigraph_ops.stages.health.read import health

        return health(graph, tables=request.tables)

    def view(self, value: HealthReport) -> View:
        return health_view(value)

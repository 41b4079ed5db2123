"""Health as a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from omnigraph_ops.models.health import HealthReport
from omnigraph_ops.progress import Progress
from omnigraph_ops.requests import Count, Option, TablesRequest
from omnigraph_ops.stages.health.view import health_view
from omnigraph_ops.stages.stage import Effect, RunStage
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class HealthRequest(TablesRequest):
    """Score tables."""

    recall: Annotated[Count, Option(metavar="QUERIES")] = 0
    """Ask every vector index this many queries, for its recall and what they read. Reads samples of the vectors."""


class Health(RunStage[HealthRequest, HealthReport]):
    """Scores every table."""

    name = "health"
    effect = Effect.READS
    summary = (
        "Score every table from 0 to 100, worst first. Writes nothing.\n\n"
        "Small fragments, deleted and unindexed rows, versions and dead bytes count. Reads metadata only, unless "
        "--recall asks for queries."
    )
    request = HealthRequest

    def run(self, graph: Graph, request: HealthRequest, tell: Progress) -> HealthReport:
        """Score. Reads."""
        from omnigraph_ops.stages.health.read import health

        return health(graph, tables=request.tables, recall=request.recall)

    def view(self, value: HealthReport) -> View:
        return health_view(value)

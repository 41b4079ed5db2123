"""Backup as a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_ops.models.backup import BackupReport
from omnigraph_ops.progress import Progress
from omnigraph_ops.stages.backup.request import BackupRequest
from omnigraph_ops.stages.backup.view import backup_view
from omnigraph_ops.stages.stage import Effect, FormField, RunStage, TaskIds
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class Backup(RunStage[BackupRequest, BackupReport]):
    """Copies a graph to another place."""

    name = "backup"
    effect = Effect.WRITES
    summary = "Copy the graph, all branches at one cut, to DEST/BACKUP-ID/. A killed one is continued."
    unharmed = "nothing was copied"
    panel = "Backup"
    request = BackupRequest
    tasks = TaskIds(plan="freeze", apply="copy")
    form = (
        FormField(name="incremental", default=True),
        FormField(name="checksum", title="Checksums"),
        FormField(name="max_bytes_per_second", title="Bytes per second at most"),
    )

    def run(self, graph: Graph, request: BackupRequest, tell: Progress) -> BackupReport:
        """Copy a freeze. Writes at the destination, and tags and a hold in the graph while it copies."""
        from omnigraph_ops.stages.backup.listing import newest_finished
        from omnigraph_ops.stages.backup.take import backup_graph

        if request.incremental:
            newest = newest_finished(request.destination, graph.target, graph.context.access)
            request = request.model_copy(update={"incremental_from": newest})
        return backup_graph(graph, request.destination, request, progress=tell)

    def view(self, value: BackupReport) -> View:
        return backup_view(value)

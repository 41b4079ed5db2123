"""Backup as a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_ops.models.backup import BackupReport
from omnigraph_ops.progress import Progress
from omnigraph_ops.stages.backup.request import BackupRequest
from omnigraph_ops.stages.backup.view import backup_view
from omnigraph_ops.stages.stage import Effect, FormField, RunStage, Submit, TaskIds
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
    spark_help = "Copy the files in tasks on this Spark master."
    tasks = TaskIds(plan="freeze", apply="copy")
    form = (
        FormField(name="incremental", default=True),
        FormField(name="checksum", title="Checksums"),
        FormField(name="max_bytes_per_second", title="Bytes per second at most"),
    )

    def run(self, graph: Graph, request: BackupRequest, tell: Progress) -> BackupReport:
        """Copy a freeze. Writes at the destination, and tags and a hold in the graph while it copies."""
        from omnigraph_ops.stages.backup.take import backup_graph

        return backup_graph(graph, request.destination, _with_newest(graph, request), progress=tell)

    def run_on_spark(self, graph: Graph, request: BackupRequest, tell: Progress, submit: Submit) -> BackupReport:
        """The same, the files copied by the job `copy`. Writes as `run`."""
        from omnigraph_ops.stages.backup.parts import SubmittedCopy
        from omnigraph_ops.stages.backup.take import backup_graph

        copier = SubmittedCopy(submit=submit, from_bytes=graph.settings.spark_copy_threshold_bytes or 0)
        return backup_graph(graph, request.destination, _with_newest(graph, request), copier=copier, progress=tell)

    def view(self, value: BackupReport) -> View:
        return backup_view(value)


def _with_newest(graph: Graph, request: BackupRequest) -> BackupRequest:
    """The request, with the newest finished backup as its base where it asks for that. Reads."""
    from omnigraph_ops.stages.backup.listing import newest_finished

    if not request.incremental:
        return request
    newest = newest_finished(request.destination, graph.target, graph.context.access)
    return request.model_copy(update={"incremental_from": newest})

"""The verbs about backups: backup, verify, restore, backups."""

from __future__ import annotations

import rich_click as click

from omnigraph_ops.cli.app import verb
from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.consent import require_consent
from omnigraph_ops.cli.options import ADDRESS, YES, request_of, request_options
from omnigraph_ops.cli.stages import declare_unasked
from omnigraph_ops.stages.backup.request import PaceRequest
from omnigraph_ops.stages.registry import UNASKED_BY_NAME

_BACKUP = click.argument("backup", type=ADDRESS, metavar="BACKUP")
_PACE = request_options(PaceRequest)


declare_unasked(UNASKED_BY_NAME["backup"])


@verb(
    "verify",
    "Read a backup again, all of it. Exit 1 with every file that is not as backed up.",
    _BACKUP,
    click.option("--graph", type=ADDRESS, metavar="GRAPH", help="Also compare what this graph still has of its files."),
    *_PACE,
    panel="Backup",
    graph=False,
)
def verify_verb(call: Call) -> int:
    from omnigraph_ops.graph.opening import open_graph
    from omnigraph_ops.outcomes.backups import backup_of, uri_of
    from omnigraph_ops.stages.backup.verify import verify_backup
    from omnigraph_ops.stages.backup.view import verify_view

    backup, address, pace = call.options["backup"], call.options["graph"], request_of(PaceRequest, call.options)
    call.echo(uri_of(*backup_of(backup)))
    graph = open_graph(address) if address is not None else None
    report = verify_backup(backup, graph=graph, bytes_per_second=pace.max_bytes_per_second, progress=call.progress)
    call.emit(report, verify_view(report))
    return report.exit_code


@verb(
    "restore",
    "Make a graph of a backup at an empty place, and check it. Never overwrites.",
    _BACKUP,
    click.argument("destination", type=ADDRESS, metavar="DEST"),
    YES,
    *_PACE,
    panel="Backup",
    graph=False,
)
def restore_verb(call: Call) -> int:
    from omnigraph_ops.stages.backup.restore import restore_backup
    from omnigraph_ops.stages.backup.view import restore_view

    backup, destination, pace = (
        call.options["backup"],
        call.options["destination"],
        request_of(PaceRequest, call.options),
    )
    require_consent(call, destination, does="makes a graph of a backup", untouched="nothing was written")
    call.echo(destination)
    report = restore_backup(backup, destination, bytes_per_second=pace.max_bytes_per_second, progress=call.progress)
    call.emit(report, restore_view(report))
    return report.exit_code


@verb(
    "backups",
    "List the backups below a destination: age, size, base, finished or not.",
    click.argument("destination", type=ADDRESS, metavar="DEST"),
    panel="Backup",
    graph=False,
)
def backups_verb(call: Call) -> int:
    from omnigraph_ops.stages.backup.listing import list_backups
    from omnigraph_ops.stages.backup.view import backups_view

    found = list_backups(call.options["destination"])
    call.emit(found, backups_view(found))
    return 0

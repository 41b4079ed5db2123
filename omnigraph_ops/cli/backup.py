"""The verbs about backups: backup, verify, restore, backups."""

from __future__ import annotations

import rich_click as click

from omnigraph_ops.cli.app import verb
from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.consent import require_consent
from omnigraph_ops.cli.options import ADDRESS, PACE, PATH, YES, flag
from omnigraph_ops.errors import UsageError

_BACKUP = click.argument("backup", type=ADDRESS, metavar="BACKUP")


@verb(
    "backup",
    "Copy the graph, all branches at one cut, to DEST/BACKUP-ID/. A killed one is continued.",
    click.argument("destination", type=ADDRESS, metavar="DEST", required=False),
    click.option("--freeze", "freeze_id", metavar="ID", help="Copy this freeze (default: one of its own)."),
    click.option(
        "--incremental-from",
        type=PATH,
        metavar="BACKUP",
        help="Take unchanged files from this earlier backup, read the rest.",
    ),
    flag("checksum", "Compute the SHA-256 of every file, also where the store could copy by itself."),
    PACE,
    panel="Backup",
)
def backup_verb(call: Call) -> int:
    from omnigraph_ops.stages.backup.take import BackupOptions, backup_graph
    from omnigraph_ops.stages.backup.view import backup_view
    from omnigraph_ops.watch import Stopped

    destination = call.swap("destination")
    if destination is None:
        raise UsageError("backup takes a graph and a destination; nothing was copied")
    said = call.options
    options = BackupOptions(
        freeze_id=said["freeze_id"],
        incremental_from=said["incremental_from"],
        need_checksums=said["checksum"],
        bytes_per_second=_pace(call),
    )
    call.writes = True
    try:
        report = backup_graph(call.open(), destination, options, progress=call.progress)
    except Stopped:
        return 1  # the record says how far it came, and the command ends as one that was interrupted
    call.emit(report, backup_view(report))
    return 0


@verb(
    "verify",
    "Read a backup again, all of it. Exit 1 with every file that is not as backed up.",
    _BACKUP,
    click.option("--graph", type=ADDRESS, metavar="GRAPH", help="Also compare what this graph still has of its files."),
    PACE,
    panel="Backup",
    graph=False,
)
def verify_verb(call: Call) -> int:
    from omnigraph_ops.graph.opening import open_graph
    from omnigraph_ops.outcomes.backups import backup_of, uri_of
    from omnigraph_ops.stages.backup.verify import verify_backup
    from omnigraph_ops.stages.backup.view import verify_view

    backup, address, pace = call.options["backup"], call.options["graph"], _pace(call)
    call.echo(uri_of(*backup_of(backup)))
    graph = open_graph(address) if address is not None else None
    report = verify_backup(backup, graph=graph, bytes_per_second=pace, progress=call.progress)
    call.emit(report, verify_view(report))
    return report.exit_code


@verb(
    "restore",
    "Make a graph of a backup at an empty place, and check it. Never overwrites.",
    _BACKUP,
    click.argument("destination", type=ADDRESS, metavar="DEST"),
    YES,
    PACE,
    panel="Backup",
    graph=False,
)
def restore_verb(call: Call) -> int:
    from omnigraph_ops.stages.backup.restore import restore_backup
    from omnigraph_ops.stages.backup.view import restore_view

    backup, destination, pace = call.options["backup"], call.options["destination"], _pace(call)
    require_consent(call, destination, does="makes a graph of a backup", untouched="nothing was written")
    call.echo(destination)
    report = restore_backup(backup, destination, bytes_per_second=pace, progress=call.progress)
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


def _pace(call: Call) -> int | None:
    pace: int | None = call.options["max_bytes_per_second"]
    if pace is not None and pace < 1:
        raise UsageError("--max-bytes-per-second must be at least 1; nothing was done")
    return pace

"""The verbs about backups: backup, verify, restore, backups."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from omnigraph_ops.cli.consent import Consequence, require_consent
from omnigraph_ops.cli.output import echo_target, emit, open_target, progress
from omnigraph_ops.errors import UsageError
from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.outcomes.backup_places import backup_of, uri_of
from omnigraph_ops.stages.backup.listing import list_backups
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.take import BackupOptions, backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.backup.view import backup_view, backups_view, restore_view, verify_view
from omnigraph_ops.views import terminal
from omnigraph_ops.watch import Stopped

_RESTORES = Consequence(does="makes a graph of a backup", untouched="nothing was written")


def backup_verb(args: argparse.Namespace) -> int:
    destination = _destination(args)
    options = BackupOptions(
        freeze_id=args.freeze_id,
        incremental_from=args.incremental_from,
        need_checksums=args.checksum,
        bytes_per_second=_pace(args),
    )
    try:
        report = backup_graph(open_target(args), destination, options, on_progress=progress(args))
    except Stopped:
        return 1  # the record says how far it came, and the command ends as one that was interrupted
    emit(args, report, terminal.shown(backup_view(report)))
    return 0


def verify_verb(args: argparse.Namespace) -> int:
    pace = _pace(args)
    echo_target(args, uri_of(*backup_of(args.backup)))
    graph = open_graph(args.graph) if args.graph is not None else None
    report = verify_backup(args.backup, graph=graph, bytes_per_second=pace, on_progress=progress(args))
    emit(args, report, terminal.shown(verify_view(report)))
    return report.exit_code


def restore_verb(args: argparse.Namespace) -> int:
    pace = _pace(args)
    require_consent(args, args.destination, _RESTORES)
    echo_target(args, args.destination)
    report = restore_backup(args.backup, args.destination, bytes_per_second=pace, on_progress=progress(args))
    emit(args, report, terminal.shown(restore_view(report)))
    return report.exit_code


def backups_verb(args: argparse.Namespace) -> int:
    found = list_backups(args.destination)
    emit(args, found, terminal.shown(backups_view(found)))
    return 0


def _destination(args: argparse.Namespace) -> str:
    """The positional DEST, which argparse takes for GRAPH when the graph is addressed by an option."""
    if args.destination is None and args.graph is not None and (args.store is not None or args.cluster is not None):
        args.destination, args.graph = args.graph, None
    if args.destination is None:
        raise UsageError("backup takes a graph and a destination; nothing was copied")
    return str(args.destination)


def _pace(args: argparse.Namespace) -> int | None:
    pace: int | None = args.max_bytes_per_second
    if pace is not None and pace < 1:
        raise UsageError("--max-bytes-per-second must be at least 1; nothing was done")
    return pace


BACKUP_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "backup": backup_verb,
    "verify": verify_verb,
    "restore": restore_verb,
    "backups": backups_verb,
}

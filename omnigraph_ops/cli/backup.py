"""The verbs about backups: backup, verify, restore, backups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from omnigraph_ops.cli.app import verb
from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.consent import require_consent
from omnigraph_ops.cli.options import ADDRESS, YES, request_of, request_options, spark
from omnigraph_ops.cli.stages import declare_unasked
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.stages.backup.request import PaceRequest
from omnigraph_ops.stages.registry import UNASKED_BY_NAME
from omnigraph_ops.storage.location import locate

if TYPE_CHECKING:
    from omnigraph_ops.models.backup import RestoreReport, VerifyReport
    from omnigraph_ops.spark.submit import Submitter

_BACKUP = click.argument("backup", type=ADDRESS, metavar="BACKUP")
_PACE = request_options(PaceRequest)


declare_unasked(UNASKED_BY_NAME["backup"])


@verb(
    "verify",
    "Read a backup again, all of it. Exit 1 with every file that is not as backed up.",
    _BACKUP,
    click.option("--graph", type=ADDRESS, metavar="GRAPH", help="Also compare what this graph still has of its files."),
    *_PACE,
    spark("Read the files in tasks on this Spark master."),
    panel="Backup",
    graph=False,
)
def verify_verb(call: Call) -> int:
    from omnigraph_ops.outcomes.backups import backup_of, uri_of
    from omnigraph_ops.stages.backup.view import verify_view

    pace = request_of(PaceRequest, call.options).max_bytes_per_second
    backup = uri_of(*backup_of(call.options["backup"]))
    call.echo(backup)
    report = _verified(call, backup, pace) if call.options["spark"] is None else _verified_on_spark(call, backup, pace)
    call.emit(report, verify_view(report))
    return report.exit_code


def _verified(call: Call, backup: str, pace: int | None) -> VerifyReport:
    """Verify in this process. Writes the outcome."""
    from omnigraph_ops.graph.opening import open_graph
    from omnigraph_ops.stages.backup.verify import verify_backup

    graph = open_graph(call.options["graph"]) if call.options["graph"] is not None else None
    return verify_backup(backup, graph=graph, bytes_per_second=pace, progress=call.progress)


def _verified_on_spark(call: Call, backup: str, pace: int | None) -> VerifyReport:
    """Verify by the job `verify`. Writes the outcome."""
    from omnigraph_ops.models.backup import VerifyReport

    words = ["--backup", backup]
    words += ["--graph", locate(call.options["graph"]).root] if call.options["graph"] is not None else []
    return _submitter(call)("verify", [*words, *_pace(pace)], VerifyReport, lambda: None)


@verb(
    "restore",
    "Make a graph of a backup at an empty place, and check it. Never overwrites.",
    _BACKUP,
    click.argument("destination", type=ADDRESS, metavar="DEST"),
    YES,
    *_PACE,
    spark("Restore the files in tasks on this Spark master."),
    panel="Backup",
    graph=False,
)
def restore_verb(call: Call) -> int:
    from omnigraph_ops.stages.backup.view import restore_view

    backup, destination, pace = (
        call.options["backup"],
        call.options["destination"],
        request_of(PaceRequest, call.options),
    )
    require_consent(call, destination, does="makes a graph of a backup", untouched="nothing was written")
    call.echo(destination)
    restored = _restored if call.options["spark"] is None else _restored_on_spark
    report = restored(call, backup, destination, pace.max_bytes_per_second)
    call.emit(report, restore_view(report))
    return report.exit_code


def _restored(call: Call, backup: str, destination: str, pace: int | None) -> RestoreReport:
    """Restore in this process. Writes."""
    from omnigraph_ops.stages.backup.restore import restore_backup

    return restore_backup(backup, destination, bytes_per_second=pace, progress=call.progress)


def _restored_on_spark(call: Call, backup: str, destination: str, pace: int | None) -> RestoreReport:
    """Restore by the job `restore`. Writes."""
    from omnigraph_ops.models.backup import RestoreReport
    from omnigraph_ops.outcomes.backups import backup_of, uri_of

    words = ("--backup", uri_of(*backup_of(backup)), "--place", locate(destination).root)
    return _submitter(call)("restore", [*words, *_pace(pace)], RestoreReport, lambda: None)


def _submitter(call: Call) -> Submitter:
    """What submits to the Spark that the options name. Pure."""
    from omnigraph_ops.spark.submit import Submitter

    return Submitter(master=call.options["spark"], progress=call.progress)


def _pace(pace: int | None) -> list[str]:
    """The pace as an argument of a job. Pure."""
    return [] if pace is None else ["--max-bytes-per-second", str(pace)]


@verb(
    "backups",
    "List the backups below a destination: age, size, base, finished or not.",
    click.argument("destination", type=ADDRESS, metavar="DEST"),
    panel="Backup",
    graph=False,
)
def backups_verb(call: Call) -> int:
    from omnigraph_ops.outcomes.backups import place_of
    from omnigraph_ops.stages.backup.listing import list_backups
    from omnigraph_ops.stages.backup.view import backups_view

    destination = place_of(call.options["destination"])
    if not destination.exists(""):
        raise InvalidInput(f"there is nothing at {destination.root}, so there are no backups")
    found = list_backups(call.options["destination"])
    call.emit(found, backups_view(found))
    return 0

"""The verbs that keep a graph: backup and what is done with backups, freezes, holds and the lock."""

from __future__ import annotations

import rich_click as click

from omnigraph_ops import serde
from omnigraph_ops.cli.call import Call, require_consent, verb
from omnigraph_ops.cli.options import ADDRESS, POSITIVE, SECONDS, YES, OneOf, flag, request_of, request_options, spark
from omnigraph_ops.cli.stages import declare_unasked, submit_of
from omnigraph_ops.errors import InvalidInput, UsageError
from omnigraph_ops.models.backup import RestoreReport, VerifyReport
from omnigraph_ops.models.health import UnlockReport
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.backups import backup_of, list_backups, place_of
from omnigraph_ops.stages.backup.stage import PaceRequest, backups_view, restore_view, verify_view
from omnigraph_ops.stages.freeze.stage import FreezeRequest, file_list, files_view, hold_view, holds_view, unfreeze_view
from omnigraph_ops.stages.recovery.stage import unlock_view
from omnigraph_ops.stages.registry import UNASKED_BY_NAME
from omnigraph_ops.storage.location import locate
from omnigraph_ops.views.view import csv_tables

_BACKUP = click.argument("backup", type=ADDRESS, metavar="BACKUP")
_PACE = request_options(PaceRequest)
_PANEL = "Writers and readers"


declare_unasked(UNASKED_BY_NAME["backup"])


@verb(
    "verify",
    "Read a backup again, all of it. Exit 1 with every file that is not as backed up.",
    _BACKUP,
    click.option("--graph", type=ADDRESS, metavar="GRAPH", help="Also compare what this graph still has of its files."),
    *_PACE,
    spark("Read the files in tasks on this Spark master."),
    examples=("/backups/BACKUP-ID --graph g.omni", "s3://backups/g/BACKUP-ID"),
    panel="Backup",
    graph=False,
)
def verify_verb(call: Call) -> int:
    pace = request_of(PaceRequest, call.options).max_bytes_per_second
    place, backup_id = backup_of(call.options["backup"])
    backup = place.uri(backup_id)
    call.echo(backup)
    report = _verified(call, backup, pace)
    call.emit(report, verify_view(report))
    return report.exit_code


def _verified(call: Call, backup: str, pace: int | None) -> VerifyReport:
    """Verify in this process, or by the job `verify`. Writes the outcome."""
    graph, submit = call.options["graph"], submit_of(call)
    if submit is not None:
        words = ["--backup", backup, *([] if graph is None else ["--graph", locate(graph).root]), *_pace(pace)]
        return submit("verify", words, VerifyReport, lambda: None)
    from omnigraph_ops.graph.opening import open_graph
    from omnigraph_ops.stages.backup.verify import verify_backup

    opened = None if graph is None else open_graph(graph)
    return verify_backup(backup, graph=opened, bytes_per_second=pace, progress=call.progress)


@verb(
    "restore",
    "Make a graph of a backup at an empty place, and check it. Never overwrites.",
    _BACKUP,
    click.argument("destination", type=ADDRESS, metavar="DEST"),
    YES,
    *_PACE,
    spark("Restore the files in tasks on this Spark master."),
    examples=("/backups/BACKUP-ID new.omni", "s3://backups/g/BACKUP-ID s3://bucket/new.omni --yes"),
    panel="Backup",
    graph=False,
)
def restore_verb(call: Call) -> int:
    backup, destination = call.options["backup"], call.options["destination"]
    pace = request_of(PaceRequest, call.options).max_bytes_per_second
    require_consent(call, destination, does="makes a graph of a backup", untouched="nothing was written")
    call.echo(destination)
    report = _restored(call, backup, destination, pace)
    call.emit(report, restore_view(report))
    return report.exit_code


def _restored(call: Call, backup: str, destination: str, pace: int | None) -> RestoreReport:
    """Restore in this process, or by the job `restore`. Writes."""
    submit = submit_of(call)
    if submit is None:
        from omnigraph_ops.stages.backup.restore import restore_backup

        return restore_backup(backup, destination, bytes_per_second=pace, progress=call.progress)
    place, backup_id = backup_of(backup)
    words = ["--backup", place.uri(backup_id), "--place", locate(destination).root, *_pace(pace)]
    return submit("restore", words, RestoreReport, lambda: None)


def _pace(pace: int | None) -> list[str]:
    """The pace as an argument of a job. Pure."""
    return [] if pace is None else ["--max-bytes-per-second", str(pace)]


@verb(
    "backups",
    "List the backups below a destination: age, size, base, finished or not.",
    click.argument("destination", type=ADDRESS, metavar="DEST"),
    examples=("/backups", "s3://backups/g --json"),
    panel="Backup",
    graph=False,
)
def backups_verb(call: Call) -> int:
    destination = place_of(call.options["destination"])
    if not destination.exists(""):
        raise InvalidInput(f"there is nothing at {destination.root}, so there are no backups")
    found = list_backups(call.options["destination"])
    call.emit(found, backups_view(found))
    return 0


def _extended(call: Call) -> int | None:
    """Let a freeze end later; None for a call that takes a new one. Writes its record."""
    if call.options["extend"] is None:
        return None
    if call.given("tables", "reason", "fence"):
        raise UsageError("--extend changes when a freeze ends and nothing else; leave the other options out")
    request = request_of(FreezeRequest, call.options)
    require_consent(call, call.target, does=_FREEZE.does, untouched=_FREEZE.unharmed)
    from omnigraph_ops.stages.freeze.take import active_freeze, extend_freeze, refuse_lost

    graph, freeze_id = call.open(), call.options["extend"]
    refuse_lost(graph, active_freeze(graph, freeze_id), "it was not extended")
    freeze = extend_freeze(graph, freeze_id, float(request.ttl))
    call.emit(freeze, _FREEZE.view(freeze))
    return 0


_FREEZE = UNASKED_BY_NAME["freeze"]
_EXTEND = click.option("--extend", metavar="ID", help="Let this freeze end --ttl from now instead of taking a new one.")
declare_unasked(_FREEZE, _EXTEND, instead=_extended)


@verb(
    "unfreeze",
    "End a freeze: its tags and its record go, maintenance goes on.",
    click.argument("hold_id", metavar="ID", required=False),
    flag("all-mine", "End every freeze of this user on this machine."),
    YES,
    examples=("g.omni FREEZE-ID", "s3://bucket/g.omni --all-mine --yes"),
    panel="Backup",
)
def unfreeze_verb(call: Call) -> int:
    from omnigraph_ops.coordination.freezes import unfreeze, unfreeze_all

    hold_id = call.swap("hold_id")
    if (hold_id is None) is not bool(call.options["all_mine"]):
        raise UsageError("unfreeze takes the ID of a freeze or --all-mine; nothing was released")
    require_consent(call, call.target, does="lets versions go that the freeze keeps", untouched="nothing was released")
    graph = call.open()
    report = unfreeze(graph, hold_id) if hold_id is not None else unfreeze_all(graph, audit_log.shell_actor())
    call.emit(report, unfreeze_view(report))
    return 0


@verb(
    "files",
    "List the files of a freeze: copied elsewhere, precisely these are the graph.",
    click.option("--freeze", "freeze_id", required=True, metavar="ID", help="The freeze to list."),
    flag("checksum", "Read every file and add its SHA-256."),
    click.option("--format", type=OneOf(["table", "json", "csv"]), default="table", help="How to print it."),
    examples=("g.omni --freeze FREEZE-ID", "s3://bucket/g.omni --freeze FREEZE-ID --format csv"),
    panel="Backup",
)
def files_verb(call: Call) -> int:
    from omnigraph_ops.stages.freeze.files import cut_files, with_checksums
    from omnigraph_ops.stages.freeze.take import read_freeze, refuse_lost

    form = call.options["format"]
    if call.json and form == "csv":
        raise UsageError("--json and --format csv exclude each other")
    graph = call.open()
    freeze = read_freeze(graph, call.options["freeze_id"])
    files = cut_files(graph, freeze, call.progress)
    if call.options["checksum"]:
        files = with_checksums(graph, files, call.progress)
        refuse_lost(graph, freeze, "nothing was listed")
    found = file_list(graph, freeze.freeze_id, files)
    if form == "table" or call.json:
        call.emit(found, files_view(found))
    else:
        call.say(csv_tables(files_view(found)) if form == "csv" else serde.dumps(found))
    return 0


@verb(
    "holds",
    "List freezes and other holds: who, what, why, since when, until when. Removes ended freezes.",
    examples=("g.omni",),
    panel=_PANEL,
)
def holds_verb(call: Call) -> int:
    from omnigraph_ops.stages.freeze.take import list_holds

    found = list_holds(call.open())
    call.emit(found, holds_view(found))
    return 0


@verb(
    "hold",
    "Announce that you read a version of a table: no cleanup of this tool removes it meanwhile.",
    click.option("--table", required=True, metavar="KEY", help="The table that you read."),
    click.option("--version", type=POSITIVE, metavar="N", help="Its version (default: what is published now)."),
    click.option("--branch", metavar="NAME", help="The graph branch that you read (default main)."),
    click.option("--ttl", type=SECONDS, metavar="DURATION", default="1h", help="How long at most (default 1h)."),
    click.option("--reason", default="a reader", metavar="TEXT", help="Shown in plans of cleanup."),
    YES,
    examples=("g.omni --table node:Person --ttl 2h", "s3://bucket/g.omni --table node:Person --version 7 --yes"),
    panel=_PANEL,
)
def hold_verb(call: Call) -> int:
    from omnigraph_ops.stages.freeze.take import hold_version

    said = call.options
    require_consent(call, call.target, does="keeps a version from every cleanup", untouched="nothing is held")
    graph = call.open()
    hold = hold_version(
        graph,
        said["table"],
        version=said["version"],
        branch=said["branch"],
        ttl_seconds=float(said["ttl"]),
        reason=said["reason"],
        owner=audit_log.shell_actor(),
    )
    call.emit(hold, hold_view(graph.target, hold))
    return 0


@verb(
    "release",
    "End a hold that `hold` announced.",
    click.argument("hold_id", metavar="ID", required=False),
    YES,
    examples=("g.omni HOLD-ID", "s3://bucket/g.omni HOLD-ID --yes"),
    panel=_PANEL,
)
def release_verb(call: Call) -> int:
    from omnigraph_ops.stages.freeze.take import release

    hold_id = call.swap("hold_id")
    if hold_id is None:
        raise UsageError("release takes the ID of a hold, as `hold` and `holds` print it; nothing was released")
    require_consent(call, call.target, does="lets versions go that the hold keeps", untouched="nothing was released")
    report = release(call.open(), hold_id)
    call.emit(report, unfreeze_view(report))
    return 0


@verb(
    "unlock",
    "Remove a schema-apply lock that a crash left behind. Preview without --confirm.",
    flag("confirm", "Remove it if it is ours."),
    YES,
    flag(
        "force",
        "With --confirm: remove anybody's, also of a run at work, and files that a schema apply staged by half.",
    ),
    examples=("g.omni", "s3://bucket/g.omni --confirm --yes"),
    panel="Writers and readers",
)
def unlock_verb(call: Call) -> int:
    from omnigraph_ops.coordination.fence import current_lock, own_fence, unlock

    confirm, force = call.options["confirm"], call.options["force"]
    if force and not confirm:
        raise UsageError("unlock --force requires --confirm; nothing was removed")
    if confirm:
        require_consent(call, call.target, does="lets writers in again", untouched="the lock is where it was")
    graph = call.open()
    fence = own_fence(graph)
    lock = unlock(graph, force=force) if confirm else current_lock(graph)
    holder = fence.standing if fence is not None else None
    report = UnlockReport(uri=graph.uri, confirm=confirm, locked=lock is not None, holder=holder)
    call.emit(report, unlock_view(report))
    return 0

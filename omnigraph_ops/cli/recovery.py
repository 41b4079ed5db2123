"""The verbs about what is pending: check, recover and unlock."""

from __future__ import annotations

import rich_click as click

from omnigraph_ops.cli.app import verb
from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.consent import require_consent
from omnigraph_ops.cli.options import SECONDS, YES, flag
from omnigraph_ops.errors import UsageError


@verb(
    "check",
    "Report what stands between this graph and maintenance. Exit 0 clean, 3 pending, 4 needs a person.\n\nThat is "
    "sidecars, staging files, locks and drift.",
    panel="Look",
)
def check_verb(call: Call) -> int:
    from omnigraph_ops.stages.recovery.check import check
    from omnigraph_ops.stages.recovery.view import check_view

    report = check(call.open())
    call.emit(report, check_view(report))
    return report.status.exit_code


@verb(
    "recover",
    "Finish single-table optimize runs that a crash left behind, the engine's or ours.",
    click.option(
        "--grace",
        type=SECONDS,
        metavar="DURATION",
        help="Leave sidecars of others that are younger than this alone (default 15m).",
    ),
    panel="Maintenance",
)
def recover_verb(call: Call) -> int:
    from omnigraph_ops.stages.recovery.recover import recover
    from omnigraph_ops.stages.recovery.view import recover_view

    call.writes = True
    grace = call.options["grace"]
    report = recover(call.open(), grace_seconds=None if grace is None else float(grace))
    call.emit(report, recover_view(report))
    return 0 if report.status.is_settled else report.status.exit_code


@verb(
    "unlock",
    "Remove a schema-apply lock that a crash left behind. Preview without --confirm.",
    flag("confirm", "Remove it if it is ours."),
    YES,
    flag("force", "With --confirm: remove it whoever raised it."),
    panel="Writers and readers",
)
def unlock_verb(call: Call) -> int:
    from omnigraph_ops.coordination.fence import current_lock, unlock
    from omnigraph_ops.models import UnlockReport
    from omnigraph_ops.stages.recovery.view import unlock_view

    confirm, force = call.options["confirm"], call.options["force"]
    if force and not confirm:
        raise UsageError("unlock --force requires --confirm; nothing was removed")
    if confirm:
        require_consent(call, call.target, does="lets writers in again", untouched="the lock is where it was")
    graph = call.open()
    lock = unlock(graph, force=force) if confirm else current_lock(graph)
    report = UnlockReport(uri=graph.uri, confirm=confirm, locked=lock is not None)
    call.emit(report, unlock_view(report))
    return 0

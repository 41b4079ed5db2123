"""The verb that removes a lock which a crash left behind."""

from __future__ import annotations

from omnigraph_ops.cli.app import verb
from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.consent import require_consent
from omnigraph_ops.cli.options import YES, flag
from omnigraph_ops.errors import UsageError


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

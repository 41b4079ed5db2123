"""What the orphans verb does with a quarantine: list, bring back, delete for good."""

from __future__ import annotations

import rich_click as click

from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.consent import require_consent
from omnigraph_ops.cli.options import together
from omnigraph_ops.errors import OpsError, UsageError

QUARANTINE_OPTIONS = together(
    click.option("--quarantined", is_flag=True, help="List what was moved aside.", panel="Quarantine"),
    click.option("--restore", metavar="ID", help="Bring a quarantine back.", panel="Quarantine"),
    click.option("--purge", metavar="ID", help="With --confirm: delete what a quarantine holds.", panel="Quarantine"),
)
_ACTIONS = ("quarantined", "restore", "purge")


def about_quarantine(call: Call) -> int | None:
    """List, restore, purge, or show what a purge would delete; None for a call about orphans. Destroys with --purge."""
    actions = call.given(*_ACTIONS)
    if not actions:
        return None
    if len(actions) > 1 or call.given("plan", "save_plan", "listing", "older_than", "quarantine", "fence"):
        raise UsageError("--quarantined, --restore and --purge stand alone; nothing was read")
    said = call.options
    if said["confirm"] and said["purge"] is None:
        raise UsageError("--quarantined and --restore delete nothing and take no --confirm; nothing was read")
    return _act(call)


def _act(call: Call) -> int:
    from omnigraph_ops.outcomes.of_reports import of_quarantine
    from omnigraph_ops.stages.orphans.quarantine import list_quarantines, preview_quarantine, purge, restore
    from omnigraph_ops.stages.orphans.stage import quarantine_view, quarantines_view

    said, target = call.options, call.target
    call.writes = bool(said["confirm"] or said["restore"] is not None)
    if said["restore"] is not None:
        require_consent(call, target, does="brings files back", untouched="nothing was moved")
    elif said["confirm"]:
        require_consent(call, target)
    graph = call.open()
    if said["quarantined"]:
        listed = list_quarantines(graph)
        call.emit(listed, quarantines_view(listed))
        return 0
    if said["restore"] is not None:
        report = restore(graph, said["restore"], progress=call.progress)
    elif said["confirm"]:
        report = purge(graph, said["purge"], progress=call.progress)
    else:
        call.tell("orphans --purge is destructive — rerun with --confirm")
        report = preview_quarantine(graph, said["purge"])
    call.emit(report, quarantine_view(report))
    if problem := of_quarantine(report).problem:
        raise OpsError(problem)
    return 0

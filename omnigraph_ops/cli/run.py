"""The verb of every stage that nobody has to approve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omnigraph_ops.cli.app import Instead, verb
from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.consent import require_consent
from omnigraph_ops.cli.fencing import fence_of, fence_seconds
from omnigraph_ops.cli.options import YES, fence
from omnigraph_ops.cli.requests import request_of, request_options
from omnigraph_ops.errors import OpsError, UsageError
from omnigraph_ops.requests import fields_of
from omnigraph_ops.stages.stage import AnyRun, Effect
from omnigraph_ops.watch import Stopped


def declare(stage: AnyRun, *more: Callable[[Any], Any], instead: Instead | None = None) -> None:
    """Declare the verb of a stage.

    Args:
        more: options of `instead`.
    """
    options = [*request_options(stage.request), *more]
    options += [YES] if stage.does else []
    options += [fence(stage.fence_help)] if stage.fence_help else []
    panel = stage.panel or ("Look" if stage.effect is Effect.READS else "Maintenance")

    @verb(stage.name, stage.summary, *options, panel=panel)
    def run(call: Call) -> int:
        if stage.fence_help:
            fence_seconds(call)
        done = None if instead is None else instead(call)
        return _run(call, stage) if done is None else done


def _run(call: Call, stage: AnyRun) -> int:
    """Do it and print the report; the effect of the stage."""
    from omnigraph_ops.config.settings import Settings

    for field in fields_of(stage.request):
        if field.option.argument and call.swap(field.name) is None:
            raise UsageError(f"{stage.name} takes a graph and a {field.name}; {stage.unharmed}")
    request = request_of(stage.request, call.options)
    call.writes = stage.recorded and stage.effect is not Effect.READS
    if stage.does:
        require_consent(call, call.target, does=stage.does, untouched=stage.unharmed)
    try:
        with fence_of(call, call.open(stage.settings(request, Settings.from_env()))) as graph:
            report = stage.run(graph, request, call.progress)
    except Stopped:
        return 1  # the record has how far it came, and the command ends as one that was interrupted
    call.emit(report, stage.view(report))
    if problem := stage.problem(report):
        raise OpsError(problem)
    return stage.exit_code(report)

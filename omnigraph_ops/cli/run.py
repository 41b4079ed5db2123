"""The verb of every stage that nobody has to approve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omnigraph_ops.cli.app import Instead, verb
from omnigraph_ops.cli.call import Call
from omnigraph_ops.cli.fencing import fence_of, fence_seconds
from omnigraph_ops.cli.options import fence
from omnigraph_ops.cli.requests import request_of, request_options
from omnigraph_ops.errors import OpsError
from omnigraph_ops.stages.stage import AnyRun, Effect

_FENCE = "Hold the engine's schema-apply lock meanwhile, so that its writers are refused (implies --exclusive)."


def declare(stage: AnyRun, *more: Callable[[Any], Any], instead: Instead | None = None) -> None:
    """Declare the verb of a stage.

    Args:
        more: options of `instead`.
    """
    fences = [fence(_FENCE)] if stage.fences else []
    panel = "Look" if stage.effect is Effect.READS else "Maintenance"

    @verb(stage.name, stage.summary, *request_options(stage.request), *more, *fences, panel=panel)
    def run(call: Call) -> int:
        if stage.fences:
            fence_seconds(call)
        done = None if instead is None else instead(call)
        return _run(call, stage) if done is None else done


def _run(call: Call, stage: AnyRun) -> int:
    """Do it and print the report; the effect of the stage."""
    from omnigraph_ops.config.settings import Settings

    request = request_of(stage.request, call.options)
    call.writes = stage.effect is not Effect.READS
    with fence_of(call, call.open(stage.settings(request, Settings.from_env()))) as graph:
        report = stage.run(graph, request, call.progress)
    call.emit(report, stage.view(report))
    if problem := stage.problem(report):
        raise OpsError(problem)
    return stage.exit_code(report)

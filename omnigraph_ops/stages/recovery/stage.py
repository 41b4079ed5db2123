"""Check and recover as stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from omnigraph_ops.models.health import CheckReport, RecoverReport
from omnigraph_ops.progress import Progress
from omnigraph_ops.requests import Option, Request, Seconds
from omnigraph_ops.stages.recovery.view import check_view, recover_view
from omnigraph_ops.stages.stage import Effect, RunStage
from omnigraph_ops.views.view import View

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph


class CheckRequest(Request):
    """Nothing but the graph."""


class RecoverRequest(Request):
    """Finish what a crash left behind."""

    grace: Annotated[Seconds | None, Option(metavar="DURATION")] = None
    """Leave sidecars of others that are younger than this alone, as in `15m`."""


class Check(RunStage[CheckRequest, CheckReport]):
    """Looks for everything that stands between a graph and maintenance."""

    name = "check"
    effect = Effect.READS
    summary = (
        "Report what stands between this graph and maintenance. Exit 0 clean, 3 pending, 4 needs a person.\n\n"
        "That is sidecars, staging files, locks and drift."
    )
    request = CheckRequest

    def run(self, graph: Graph, request: CheckRequest, tell: Progress) -> CheckReport:
        """Look. Reads."""
        from omnigraph_ops.stages.recovery.check import check

        return check(graph)

    def view(self, value: CheckReport) -> View:
        return check_view(value)

    def exit_code(self, report: CheckReport) -> int:
        return report.status.exit_code


class Recover(RunStage[RecoverRequest, RecoverReport]):
    """Finishes single-table optimize runs that a crash left behind."""

    name = "recover"
    effect = Effect.PUBLISHES
    summary = "Finish single-table optimize runs that a crash left behind, the engine's or ours."
    request = RecoverRequest

    def run(self, graph: Graph, request: RecoverRequest, tell: Progress) -> RecoverReport:
        """Finish, or roll back. Publishes."""
        from omnigraph_ops.stages.recovery.recover import recover

        return recover(graph, grace_seconds=None if request.grace is None else float(request.grace))

    def view(self, value: RecoverReport) -> View:
        return recover_view(value)

    def exit_code(self, report: RecoverReport) -> int:
        return 0 if report.status.is_settled else report.status.exit_code

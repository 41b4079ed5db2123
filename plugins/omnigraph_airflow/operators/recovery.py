"""The first look: is anything pending, and may we finish it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omnigraph_airflow.operators.base import OmnigraphOperator, to_xcom
from omnigraph_ops.errors import RecoveryPending, TransientError
from omnigraph_ops.models import CheckReport, CheckStatus

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph


class CheckRecoveryOperator(OmnigraphOperator):
    """Checks the recovery state and finishes what `recover` may finish.

    Fails without a retry when a person (or the engine) has to act; retries while a sidecar is still
    younger than the grace period, because its writer may be alive.
    """

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops import recovery

        report = recovery.check(graph)
        if report.status is CheckStatus.PENDING:
            recovered = recovery.recover(graph, graph.settings.recovery_grace_seconds)
            for outcome in recovered.outcomes:
                self.log.info("%s %s: %s %s", outcome.table_key, outcome.operation_id, outcome.action, outcome.detail)
            report = recovery.check(graph)
        _refuse_unless_clean(report)
        for line in report.advice:
            self.log.info(line)
        return to_xcom(report)


def _refuse_unless_clean(report: CheckReport) -> None:
    why = " ".join(report.advice) or f"{report.uri}: recovery is pending"
    if report.status is CheckStatus.NEEDS_PERSON:
        raise RecoveryPending(why)
    if report.status is CheckStatus.PENDING:
        raise TransientError(why)

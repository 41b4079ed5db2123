"""The first look: is anything pending, and may we finish it?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError

from omnigraph_airflow.operators.base import OmnigraphOperator
from omnigraph_airflow.task_run import run_id_of, states_of
from omnigraph_ops import serde
from omnigraph_ops.errors import OpsError, RecoveryPending, TransientError
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.models.health import FAILED, CheckReport, CheckStatus, RecoveryOutcome
from omnigraph_ops.models.history import UnsettledRun
from omnigraph_ops.models.runs import TaskAttempt
from omnigraph_ops.stages.registry import UNASKED_BY_NAME

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph

RETRIES = 8
"""With two minutes in between they outlast the default grace period of 15 minutes."""

_AT_WORK = {"running", "restarting"}


class CheckRecoveryOperator(OmnigraphOperator):
    """Checks the recovery state and finishes what `recover` may finish.

    Fails without a retry when a person (or the engine) has to act; retries while a sidecar is still
    younger than the grace period, because its writer may be alive.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(retries=RETRIES, **kwargs)

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.coordination.fence import drop_stale_fence
        from omnigraph_ops.coordination.litter import sweep_beside
        from omnigraph_ops.stages.recovery.check import check, may_pass
        from omnigraph_ops.stages.recovery.recover import recover

        self._record_cut_off(graph, context)
        if drop_stale_fence(graph):
            self.log.info("lifted the fence of a run that was killed")
        report, outcomes = check(graph), tuple[RecoveryOutcome, ...]()
        if report.status is CheckStatus.PENDING or report.has_recoverable:
            outcomes = recover(graph).outcomes
            for outcome in outcomes:
                self.log.info("%s %s: %s %s", outcome.table_key, outcome.operation_id, outcome.action, outcome.detail)
            report = check(graph)
        else:
            sweep_beside(graph)
        self.log_view(UNASKED_BY_NAME["check"].view(report))
        passing = may_pass(report, grace_seconds=graph.settings.recovery_grace_seconds, at_us=now_us())
        _refuse_unless_clean(report, outcomes, passing=passing)
        return serde.to_json(report)

    def _record_cut_off(self, graph: Graph, context: Context) -> None:
        """Record the runs that were cut off, of the shell and of DAGs, while the graph is as they left it. Writes."""
        from omnigraph_ops.outcomes.runs import settle
        from omnigraph_ops.outcomes.task_journals import close, settle_runs

        mine = run_id_of(context)
        try:
            settle(graph, warn=self.log.warning)
            settle_runs(graph, is_over=partial(_is_over, context), but=mine, warn=self.log.warning)
            if context["ti"].try_number > 1:
                # Of a run that was cleared: another task may be dealt the table of one that was killed.
                close(graph, mine, is_over=partial(_is_idle, context), warn=self.log.warning)
        except OpsError as error:
            self.log.warning("runs that were interrupted could not be recorded: %s", error)


def _is_over(context: Context, run: UnsettledRun) -> bool:
    """Whether a DAG run can be at work no more, as Airflow says; one that it does not know may be another's. Reads."""
    try:
        state = context["ti"].get_dagrun_state(str(run.header.dag_id), str(run.header.dag_run_id))
    except AirflowRuntimeError as error:
        unknown = (error.error.detail or {}).get("status_code") == HTTPStatus.NOT_FOUND
        return unknown and not run.at_work
    # Annotated as text, it comes as a member of an enumeration, whose `str` is no value of it.
    return getattr(state, "value", state) in {"success", "failed"}


def _is_idle(context: Context, task: TaskAttempt) -> bool:
    """Whether a task of this run is not at work, as Airflow says. Reads."""
    return states_of(context).get(task.instance) not in _AT_WORK


def _refuse_unless_clean(report: CheckReport, outcomes: Sequence[RecoveryOutcome], *, passing: bool) -> None:
    """Raise the sentence of what is left, with the reason for which `recover` left it. Pure."""
    left = [o for o in outcomes if o.action in {"deferred", FAILED}]
    waits = [": ".join(filter(None, (o.table_key or o.operation_id, o.detail))) for o in left]
    # A freeze is in both.
    why = "; ".join(dict.fromkeys((*waits, *report.advice))) or f"{report.uri}: recovery is pending"
    is_failed = any(outcome.action == FAILED for outcome in outcomes)
    if report.status is CheckStatus.PENDING or passing or is_failed or report.has_unreadable:
        raise TransientError(why)
    if report.status is CheckStatus.NEEDS_PERSON:
        raise RecoveryPending(why)

"""The record of a DAG run for the history of the graph, from what its tasks left. Knows no Airflow."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from omnigraph_airflow.decisions import Decision
from omnigraph_airflow.run_failures import failed_tasks
from omnigraph_ops import __version__
from omnigraph_ops.models.history import Answer, RunDecision, RunHeader, RunOrigin
from omnigraph_ops.stages.registry import tasks_by_stage

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from typing import Any

    from omnigraph_airflow.run_facts import RunFacts
    from omnigraph_ops.outcomes.history.results import RunResults


def results_of(facts: RunFacts, attention: tuple[str, ...] = ()) -> RunResults:
    """What the stages left, in the words of the history, which itself tells what failed of a table. Pure."""
    from omnigraph_ops.outcomes.history.results import RunResults, StageFailure
    from omnigraph_ops.outcomes.runs.results import with_value

    of_tables = (
        StageFailure(message=f.message, table_key=f.table_key, stage=f.task_id) for f in facts.failures if f.table_key
    )
    results = RunResults(
        optimize_plan=facts.optimize_plan,
        optimize=facts.optimize,
        recovery=facts.recovery,
        backup=facts.backup,
        verified=facts.verified,
        outcomes=facts.outcomes,
        decisions=decisions_of(facts),
        failures=(*of_tables, *(StageFailure(message=line) for line in failed_tasks(facts))),
        attention=attention,
    )
    return reduce(with_value, (*facts.plans.values(), *facts.reports.values()), results)


def decisions_of(facts: RunFacts) -> tuple[RunDecision, ...]:
    """Who decided about which stage, in the order of the stages; what was carried out before a clear first. Pure."""
    answered = ((name, facts.decisions.get(name)) for name in tasks_by_stage())
    now = tuple(decision_of(name, decision) for name, decision in answered if decision is not None)
    digests = {decision.digest for decision in now}
    return (*(decision for decision in facts.carried_out if decision.digest not in digests), *now)


def header_of(context: Any, graph: str, *, stages: Collection[str], stamp: int) -> RunHeader:
    """Which run it is. Reads the context."""
    run, dag_id = context["dag_run"], context["ti"].dag_id
    return RunHeader(
        run_id=run_id_of(context),
        origin=RunOrigin.AIRFLOW,
        verb="+".join(name for name in tasks_by_stage() if name in stages),
        triggered_by=getattr(run, "triggering_user_name", None) or str(getattr(run.run_type, "value", run.run_type)),
        started_at_us=_us(run.start_date) or _us(getattr(context["ti"], "start_date", None)) or 0,
        graph=graph,
        stamp=stamp,
        tool_version=__version__,
        dag_id=dag_id,
        dag_run_id=context["run_id"],
        logical_date_us=_us(getattr(run, "logical_date", None)),
    )


def run_id_of(context: Any) -> str:
    """The run, as the history names it. Pure."""
    return f"{context['ti'].dag_id}/{context['run_id']}"


def decision_of(stage: str, decision: Decision) -> RunDecision:
    """What was decided about a stage, in the words of the history. Pure."""
    answer = Answer.APPROVED if decision.approved else Answer.REJECTED
    return RunDecision(
        stage=stage,
        answer=Answer.TIMEOUT if decision.timed_out else answer,
        by=decision.decided_by,
        digest=decision.digest,
        at_us=decision.decided_at_us or None,
        forced=decision.force,
    )


def _us(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000)

"""Everything the tasks of a run left behind, as values, and the record of the run. Knows no Airflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.decisions import Decision
from omnigraph_ops import __version__
from omnigraph_ops.models.backup import BackupReport, VerifyReport
from omnigraph_ops.models.health import DriftFinding, RecoverReport
from omnigraph_ops.models.history import Answer, RunDecision, RunHeader, RunOrigin
from omnigraph_ops.models.optimize import OptimizePlan, OptimizeReport
from omnigraph_ops.models.runs import Outcome
from omnigraph_ops.stages.registry import planned, tasks_by_stage
from omnigraph_ops.stages.stage import AnyPlanned

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from omnigraph_ops.outcomes.results import RunResults


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A task that failed and the sentence it left."""

    task_id: str
    table_key: str | None
    message: str
    map_index: int = -1

    @property
    def instance(self) -> str:
        """The task as `RunFacts.states` calls it. Pure."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything the tasks of a run left; None where a task did not get to leave it."""

    graph: str
    stages: frozenset[str] = frozenset({"optimize", "repair", "cleanup"})
    """What the DAG has: a stage that it lacks has no section."""
    states: Mapping[str, str | None] = field(default_factory=dict)
    """State per task, mapped ones as `task_index`."""
    failures: tuple[Failure, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Why a stage was not even planned, by its name."""
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    """What was answered, by the name of the stage."""
    carried_out: tuple[RunDecision, ...] = ()
    """What tasks relied on, in whichever clearing of the run."""
    plans: Mapping[str, Any] = field(default_factory=dict)
    """What was planned, by the name of the stage."""
    reports: Mapping[str, Any] = field(default_factory=dict)
    """What the stages report, by their names."""
    outcomes: tuple[Outcome, ...] = ()
    """What came of the stages that left no report here."""
    drift: tuple[DriftFinding, ...] | None = None
    """Tables that are ahead of what is published now; None: nobody looked, or could."""
    optimize_plan: OptimizePlan | None = None
    optimize: OptimizeReport | None = None
    recovery: RecoverReport | None = None
    backup: BackupReport | None = None
    verified: VerifyReport | None = None

    def outcome_of(self, stage: AnyPlanned) -> Outcome | None:
        """What came of a stage; None when it was not carried out. Pure."""
        if stage.name in self.reports:
            return stage.outcome(self.reports[stage.name])
        return next((outcome for outcome in self.outcomes if outcome.stage == stage.name), None)


_BAD_STATES = ("failed", "upstream_failed")


def failed(facts: RunFacts) -> tuple[str, ...]:
    """Everything that failed, what is about one table first. Pure."""
    return (*_tables(facts), *failed_tasks(facts))


def failed_tasks(facts: RunFacts) -> tuple[str, ...]:
    """What failed and is about no single table or file. Pure."""
    named = [_sentence(f) for f in facts.failures if f.table_key is None]
    # A task that died without leaving a sentence (killed, lost worker) still makes the run red.
    silent = [task for task, state in facts.states.items() if state == "failed"]
    known = {f.instance for f in facts.failures}
    named += [f"{task}: failed, see its log" for task in silent if task not in known]
    if not (named or _tables(facts)) and any(state in _BAD_STATES for state in facts.states.values()):
        named.append("a task before this one did not finish")
    return tuple(named)


def _tables(facts: RunFacts) -> tuple[str, ...]:
    named = [_sentence(f) for f in facts.failures if f.table_key is not None]
    named += _of_stages(facts)
    told = {f.table_key for f in facts.failures}
    for outcome in facts.outcomes:
        broken = [t for t in outcome.tables if t.error and t.table_key not in told]
        named += [f"{outcome.stage} {t.table_key}: {t.error}" for t in broken]
        named += [f"{outcome.stage}: {failure}" for failure in outcome.failures]
    tables = facts.optimize.tables if facts.optimize else ()
    return (*named, *(f"optimize {s.table_key}: {s.error}" for s in tables if s.error and s.table_key not in told))


def _of_stages(facts: RunFacts) -> Iterator[str]:
    """What failed by the reports of stages, where no task has said it. Pure."""
    said = [f"{f.table_key}: {f.message}" for f in facts.failures]
    for name, report in facts.reports.items():
        yield from (line for line in planned(name).failures(report) if not any(line in one for one in said))


def _sentence(failure: Failure) -> str:
    where = f"{failure.task_id} {failure.table_key}" if failure.table_key else failure.task_id
    return f"{where}: {failure.message}"


def results_of(facts: RunFacts, attention: tuple[str, ...] = ()) -> RunResults:
    """What the stages left, in the words of the history, which itself tells what failed of a table. Pure."""
    from omnigraph_ops.outcomes.results import RunResults, StageFailure
    from omnigraph_ops.outcomes.run_results import with_value

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

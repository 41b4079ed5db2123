"""A task of a DAG as a run that keeps its journal in the graph, its audit log, and its errors as Airflow's.

The one place where errors of omnigraph_ops become Airflow's: retry, or fail without a retry.

TransientError, StorageError   raised as they are: Airflow retries; unless rights are missing in a file system, or a
                               bucket does not exist
every other OpsError           AirflowFailException with its one sentence: a retry cannot help,
                               or (OutcomeUnknown) must not happen before somebody has looked
anything else                  AirflowFailException: a bug must not be run twice
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
    AirflowTaskTimeout,
    DownstreamTasksSkipped,
)

from omnigraph_airflow.run_report import Failure, decision_of
from omnigraph_ops import __version__
from omnigraph_ops.errors import OpsError, OutcomeUnknown, StorageError, TransientError, is_final
from omnigraph_ops.models.history import RunHeader, RunOrigin
from omnigraph_ops.models.runs import TaskAttempt
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.outcomes.results import RunResults, Snapshot, StageFailure, UnitRecord, redacted, with_units
from omnigraph_ops.stages.registry import BY_NAME, tasks_by_stage

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.sdk import Context

    from omnigraph_airflow.decisions import Decision
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.outcomes.runs import RecordedRun
    from omnigraph_ops.storage.store import Storage


@contextlib.contextmanager
def airflow_errors() -> Iterator[None]:
    """Translate what a stage raises into what Airflow should do next. Pure."""
    try:
        yield
    except (AirflowException, TransientError):
        raise
    except StorageError as error:
        if is_final(error) or not error.retryable:
            raise AirflowFailException(str(error)) from error
        raise
    except OutcomeUnknown as error:
        raise AirflowFailException(f"outcome unknown, run check before anything else: {error}") from error
    except OpsError as error:
        raise AirflowFailException(str(error)) from error
    except Exception as error:
        raise AirflowFailException(f"unexpected {type(error).__name__}: {error}") from error


_log = logging.getLogger(__name__)


NO_FAILURES = (AirflowSkipException, DownstreamTasksSkipped, AirflowRescheduleException)
"""Airflow's signals that are exceptions; a deferral is none of `Exception`."""
ENDED_FROM_OUTSIDE = (AirflowTaskTimeout, KeyboardInterrupt, SystemExit)
"""No `Exception`; Airflow repeats a task that ends with one of them, as it does after any error."""
TASK_ERRORS = (Exception, *ENDED_FROM_OUTSIDE)
"""What ends a task as a failure."""


class StageSkipped(AirflowSkipException):
    """A stage that is not even planned; the report says why."""


@contextlib.contextmanager
def journaled(context: Context, graph: Graph, table_key: str | None) -> Iterator[Graph]:
    """Let a task speak to a journal of its own in the block, after telling what its earlier attempts did. Writes.

    Yields the graph as this run sees it.
    A journal that cannot be ended stops nothing: the graph tells later what the task did.

    Args:
        table_key: the one table that the task is about, None when there is no such one.
    """
    from omnigraph_ops.outcomes.runs import RecordedRun
    from omnigraph_ops.outcomes.task_journals import leave

    header = header_of(context, graph.target, stages=stages_of(context), stamp=graph.stamp)
    run = RecordedRun(graph, header, Snapshot(), attempt_of(context))
    _close_earlier(context, graph, run)
    skipped = ""
    try:
        yield graph.with_run(run)
    except StageSkipped as skip:
        skipped = str(skip)
        raise
    except NO_FAILURES:
        raise
    except TASK_ERRORS as error:
        for f in failures_of(context, table_key or _cut_off(run, error), error):
            run.notes(StageFailure(message=f.message, table_key=f.table_key, stage=f.task_id))
        raise
    finally:
        try:
            if not run.goes_on:
                leave(graph, run, skipped=skipped)
        except Exception as error:
            # Not only errors of ours: the work is done, or has failed with an error of its own.
            _log.warning("What this task did could not be noted in the graph: %s", error)


def run_of(graph: Graph) -> RecordedRun:
    """The run of the task that is at work on a graph. Pure."""
    from omnigraph_ops.outcomes.runs import RecordedRun

    run = graph.run
    assert isinstance(run, RecordedRun), "every task keeps a journal"
    return run


def failures_of(context: Context, table_key: str | None, error: BaseException) -> Sequence[Failure]:
    """What the report says of a task that failed, or of the tables in it, without secrets. Reads the environment."""
    told: Sequence[Failure] | None = getattr(error, "failures", None)
    task = attempt_of(context)
    failure = Failure(
        task_id=task.task_id,
        table_key=table_key,
        message=redacted(_sentence(error)),
        map_index=task.map_index,
        try_number=task.try_number,
    )
    return told or (failure,)


def _sentence(error: BaseException) -> str:
    """What happened to a task, what stays and what to do, also where the exception does not say it. Pure."""
    if isinstance(error, Exception):
        return str(error)
    why, hint = f"ended by {type(error).__name__} {error}".rstrip(), "see the log of the task"
    if isinstance(error, AirflowTaskTimeout):
        why = "timed out: the task ran longer than its `execution_timeout` (`task_timeout` in a graphs file)"
        hint = "allow it more time"
    stays = "what it published or removed before that stays, and a new run goes on from there"
    return f"{why}; {stays}; run again, and if it happens again, {hint}"


def _cut_off(run: RecordedRun, error: BaseException) -> str | None:
    """The one table that a task was at when it was ended from outside; None where that is not known. Pure."""
    at_work = {record.unit.table_key for record in run.records if not record.ended} - {""}
    return at_work.pop() if len(at_work) == 1 and not isinstance(error, Exception) else None


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


def _us(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000)


def stages_of(context: Context) -> frozenset[str]:
    """The names of the stages that a task's DAG has. Pure."""
    tasks = getattr(context["dag"], "task_ids", ())
    return frozenset(name for name, of in tasks_by_stage().items() if of.plan in tasks)


def planners() -> dict[str, str]:
    """The task that plans, by the name of its stage. Pure."""
    return {name: of.plan for name, of in tasks_by_stage().items()}


def states_of(context: Context) -> Mapping[str, str | None]:
    """The state of every task of this run as Airflow has it now, mapped ones as `task_index`. Reads."""
    ti = context["ti"]
    found: Mapping[str, str | None] = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
    return found


def attempt_of(context: Context) -> TaskAttempt:
    """Which attempt of which task this is. Pure."""
    ti = context["ti"]
    index = -1 if ti.map_index is None else int(ti.map_index)
    return TaskAttempt(task_id=ti.task_id, map_index=index, try_number=ti.try_number)


def _close_earlier(context: Context, graph: Graph, run: RecordedRun) -> None:
    """Tell what earlier attempts of this task did that were killed, before this one goes on. Writes."""
    from omnigraph_ops.outcomes.task_journals import close

    mine = attempt_of(context)
    if mine.try_number > 1:

        def is_over(task: TaskAttempt) -> bool:
            return task.instance == mine.instance and task.try_number < mine.try_number

        close(graph, run.header.run_id, is_over=is_over, warn=_log.warning)
        # Else one that is killed before its first unit leaves the report the reason of the one before.
        with contextlib.suppress(OpsError):
            run.announce()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One task that carries out a decision: its first unit began with an entry that had to be written."""

    run: RecordedRun
    storage: Storage
    digest: str

    @property
    def told(self) -> str:
        """What is removed by now; empty when nothing is. Pure."""
        return told(self.run.records)

    def ends(self, event: AuditEvent, detail: str) -> None:
        """Add the entry of what came of it, where anything began or went wrong. Writes."""
        if self.run.audited or event is not AuditEvent.APPLIED:
            _append(self.storage, event, self.run.subject(self.digest), detail)


def is_told(graph: Graph, table_key: str) -> bool:
    """Whether units of this attempt tell what it did to a table: a note of the last one would hide the others. Pure."""
    return any(record.unit.table_key == table_key for record in run_of(graph).records)


def told(units: Sequence[UnitRecord]) -> str:
    """What units removed; empty when they removed nothing. Pure."""
    done = with_units(RunResults(), units).reports
    parts = [part for stage in BY_NAME.values() if stage.name in done for part in stage.removed(done[stage.name])]
    return f"{' and '.join(parts)} removed" if parts else ""


@contextlib.contextmanager
def audited(graph: Graph, stage: str, decision: Decision) -> Iterator[Audited]:
    """Carry out a decision in the block, which ends it where it goes well; whatever else ends it is told. Writes.

    An error before the first effect is told only where it may have had one all the same.
    """
    run = run_of(graph)
    run.decisions = (decision_of(stage, decision),)
    work = Audited(run=run, storage=graph.storage, digest=decision.digest)
    try:
        yield work
    except Exception as error:
        if run.audited or isinstance(error, (StorageError, OutcomeUnknown)):
            _end_early(work, AuditEvent.FAILED, error)
        raise
    except BaseException as stop:
        # It may have come between the entry of the start and the note that there is one.
        said, since_us = run.subject(decision.digest), run.header.started_at_us
        if audit_log.is_open(graph.storage, run=said["run"], task=said["task"], since_us=since_us):
            _end_early(work, AuditEvent.INTERRUPTED, stop)
        raise


def _end_early(work: Audited, event: AuditEvent, why: BaseException) -> None:
    """Tell what was done until then; where the graph cannot tell now, whoever comes next asks it again. Writes."""
    if work.run.goes_on:
        return
    try:
        work.run.tell_the_rest()
    except OpsError as error:
        _log.warning("What this task did is told later: %s", error)
        return
    sentences = (_sentence(why) or type(why).__name__, work.told)
    work.ends(event, "; ".join(part for part in sentences if part))


def note(context: Context, storage: Storage, decision: Decision, *, verb: str, detail: str) -> None:
    """Add an entry about a decision to the graph's audit log; a log that cannot be written stops nothing. Writes."""
    subject = audit_log.Subject(
        verb=verb, actor=decision.decided_by, digest=decision.digest, run=context["run_id"], task=None
    )
    _append(storage, decision.event, subject, detail)


def _append(storage: Storage, event: AuditEvent, subject: audit_log.Subject, detail: str) -> None:
    try:
        audit_log.append(storage, event, **subject, detail=detail)
    except OpsError as error:
        # Asking or applying again because of a log would be worse; the graph keeps the decision.
        _log.warning("This is not in the audit log: %s", error)

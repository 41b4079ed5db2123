"""A task of a DAG as a run that keeps its journal in the graph, and its errors as Airflow's.

The one place where errors of omnigraph_ops become Airflow's: retry, or fail without a retry.

TransientError, StorageError   raised as they are: Airflow retries
every other OpsError           AirflowFailException with its one sentence: a retry cannot help,
                               or (OutcomeUnknown) must not happen before somebody has looked
anything else                  AirflowFailException: a bug must not be run twice
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)

from omnigraph_airflow.run_facts import Failure, header_of
from omnigraph_ops.errors import OpsError, OutcomeUnknown, StorageError, TransientError
from omnigraph_ops.models.runs import TaskAttempt
from omnigraph_ops.stages.registry import tasks_by_stage

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph
    from omnigraph_ops.outcomes.runs import RecordedRun


@contextlib.contextmanager
def airflow_errors() -> Iterator[None]:
    """Translate what a stage raises into what Airflow should do next. Pure."""
    try:
        yield
    except (AirflowException, TransientError, StorageError):
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
    from omnigraph_ops.outcomes.results import Snapshot, StageFailure
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
    except Exception as error:
        for f in failures_of(context, table_key, error):
            run.notes(StageFailure(message=f.message, table_key=f.table_key, stage=f.task_id))
        raise
    finally:
        try:
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


def failures_of(context: Context, table_key: str | None, error: Exception) -> Sequence[Failure]:
    """What the report says of a task that failed, or of the tables in it. Pure."""
    told: Sequence[Failure] | None = getattr(error, "failures", None)
    task = attempt_of(context)
    failure = Failure(task_id=task.task_id, table_key=table_key, message=str(error), map_index=task.map_index)
    return told or (failure,)


def stages_of(context: Context) -> frozenset[str]:
    """The names of the stages that a task's DAG has. Pure."""
    tasks = getattr(context["dag"], "task_ids", ())
    return frozenset(name for name, of in tasks_by_stage().items() if of.plan in tasks)


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

"""One record of every run of a writing verb, in the history of the graph: the one place that all verbs share."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from omnigraph_ops import __version__, audit_log, history
from omnigraph_ops.errors import (
    ApprovalMissing,
    InvalidInput,
    NotAGraph,
    UnknownTable,
    UnsupportedStamp,
    UsageError,
)
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import new_ulid, now_us
from omnigraph_ops.history.record import record_of
from omnigraph_ops.history.results import RunResults, StageFailure
from omnigraph_ops.history.snapshot import everything_now, look, versions_now
from omnigraph_ops.lease import process_name
from omnigraph_ops.models import (
    CleanupPlan,
    CleanupReport,
    OptimizeReport,
    OrphansPlan,
    OrphansReport,
    QuarantineReport,
    RecoverReport,
    RepairPreview,
    RepairReport,
)
from omnigraph_ops.models.backup import BackupReport
from omnigraph_ops.models.history import Answer, RunDecision, RunHeader, RunOrigin, RunRecord
from omnigraph_ops.models.retention import RowRetentionPlan, RowRetentionReport

_NO_RUN = (UsageError, InvalidInput, NotAGraph, UnsupportedStamp, UnknownTable, ApprovalMissing)
"""The call was wrong: there was no run. What stands in the way of a run is part of its record."""
_FIELDS: dict[type, str] = {
    OptimizeReport: "optimize",
    RepairPreview: "preview",
    RepairReport: "repair",
    CleanupPlan: "cleanup_plan",
    OrphansReport: "orphans",
    QuarantineReport: "quarantine",
    RecoverReport: "recovery",
    RowRetentionReport: "row_retention",
    BackupReport: "backup",
}
"""Where a value of a verb belongs in the results."""
_SIGNALS: dict[object, str] = {128 + number: number.name for number in signal.Signals}
"""By the exit code of whoever was ended by one."""


def recorded(args: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Run a verb; one that writes leaves its record, however it ends. Writes."""
    recorder = args.recorder = Recorder(args)
    try:
        code = verb(args)
    except BaseException as error:
        recorder.finish(error)
        raise
    recorder.finish(None)
    return code


def opened(args: argparse.Namespace, graph: Graph) -> None:
    """Tell the recorder which graph the verb works on. Reads."""
    recorder: Recorder = args.recorder
    recorder.opened(graph)


def note(args: argparse.Namespace, value: object) -> None:
    """Hand the recorder a plan or a report of the verb. Pure."""
    recorder: Recorder = args.recorder
    recorder.note(value)


def writes(args: argparse.Namespace) -> bool:
    """Whether this call may change anything: previews and plans leave no record. Pure."""
    if args.verb == "optimize":
        return not args.queue
    if args.verb == "orphans":
        return bool(args.confirm or args.restore is not None)
    if args.verb in {"repair", "cleanup", "expire-rows"}:
        return bool(args.confirm)
    return args.verb in {"recover", "backup"}


class Recorder:
    """Collects what a verb did, to be written once at its end."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._writes = writes(args)
        self._started_at_us = now_us()
        self._graph: Graph | None = None
        self._results = RunResults()

    def opened(self, graph: Graph) -> None:
        """The graph is open: look at its versions. Reads."""
        if self._writes and self._graph is None:
            self._graph = graph
            self._results = replace(self._results, before=look(versions_now, graph))

    def note(self, value: object) -> None:
        """A plan or a report. Pure."""
        self._results = _with(self._results, value)
        self._results = replace(self._results, decisions=self._results.decisions + self._decision(value))

    def finish(self, error: BaseException | None) -> None:
        """Write the record, if there is a graph to write it to. Writes."""
        graph = self._graph
        if graph is None or isinstance(error, _NO_RUN):
            return
        history.keep(graph, lambda: self._record(graph, error), days=graph.settings.history_days, warn=_warn)

    def _record(self, graph: Graph, error: BaseException | None) -> RunRecord:
        results = self._results
        if error is not None:
            results = replace(results, failures=(StageFailure(message=_sentence(error), stage=self._args.verb),))
        if error is None or isinstance(error, Exception):
            # Somebody who interrupts does not wait for a look at every table.
            results = replace(results, after=look(everything_now, graph))
        header = RunHeader(
            run_id=f"{RunOrigin.CLI}/{process_name()}/{new_ulid(self._started_at_us)}",
            origin=RunOrigin.CLI,
            verb=self._args.verb,
            triggered_by=audit_log.shell_actor(),
            started_at_us=self._started_at_us,
            graph=graph.target,
            stamp=graph.stamp,
            tool_version=__version__,
        )
        return record_of(header, results)

    def _decision(self, plan: object) -> tuple[RunDecision, ...]:
        """`--confirm` is the approval of what is planned. Pure."""
        decided = _to_decide(plan)
        if decided is None:
            return ()
        stage, digest = decided
        return (
            RunDecision(
                stage=stage,
                answer=Answer.APPROVED,
                by=audit_log.shell_actor(),
                digest=digest,
                at_us=self._started_at_us,
                forced=bool(getattr(self._args, "force", False)),
            ),
        )


def _to_decide(plan: object) -> tuple[str, str] | None:
    """Stage and digest of a plan; None for what is no plan, or one that does nothing and needs no decision. Pure."""
    match plan:
        case RepairPreview() if plan.drifted:
            return "repair", plan.digest
        case CleanupPlan() if not plan.is_empty:
            return "cleanup", plan.digest
        case OrphansPlan() if plan.files or plan.folders:
            return "orphans", plan.digest
        case RowRetentionPlan() if plan.total_rows:
            return "expire-rows", plan.digest
    return None


def _with(results: RunResults, value: object) -> RunResults:
    """The results with one more value; what is no part of a record is left out. Pure."""
    if isinstance(value, CleanupReport):
        forks = (*value.orphaned_forks_removed, *value.orphaned_forks_failed)
        return replace(results, cleanup=value.tables, forks=forks)
    if isinstance(value, RecoverReport) and not value.status.is_settled:
        left = StageFailure(message=f"recover left the graph {value.status.value}", stage="recover")
        results = replace(results, failures=(left,))
    name = _FIELDS.get(type(value))
    changes: dict[str, Any] = {} if name is None else {name: value}
    return replace(results, **changes)


def _sentence(error: BaseException) -> str:
    """What ended a run, in words: of a signal there is only a number. Pure."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, SystemExit) and error.code in _SIGNALS:
        return f"ended by {_SIGNALS[error.code]}"
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)

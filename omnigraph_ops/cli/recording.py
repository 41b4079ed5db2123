"""One record of every run of a writing verb, in the history of the graph: the one place that all verbs share."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace

from omnigraph_ops import __version__
from omnigraph_ops.cli.process import Signals
from omnigraph_ops.coordination.environment import process_name
from omnigraph_ops.errors import (
    ApprovalMissing,
    InvalidInput,
    NotAGraph,
    OpsError,
    OutcomeUnknown,
    StorageError,
    UnknownTable,
    UnsupportedStamp,
    UsageError,
)
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.models.history import Answer, RunDecision, RunHeader, RunOrigin
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.outcomes.audit_log import audit_end, wants_audit
from omnigraph_ops.outcomes.history import record_of
from omnigraph_ops.outcomes.results import Interruption, RunResults, StageFailure, outcomes_of, with_units
from omnigraph_ops.outcomes.runs import RecordedRun, settle
from omnigraph_ops.outcomes.task_journals import settle_runs
from omnigraph_ops.stages.health.read import everything_now, look, versions_now

_NO_RUN = (UsageError, InvalidInput, NotAGraph, UnsupportedStamp, UnknownTable, ApprovalMissing)
"""The call was wrong: there was no run. What stands in the way of a run is part of its record."""
_LATER = "what was interrupted is recorded by the next command that reads the history or writes to the graph"
_NEVER = "what was interrupted is not recorded: the run could keep no journal"
_SIGNALS: dict[object, str] = {128 + number: number.name for number in signal.Signals}
"""By the exit code of whoever was ended by one."""


class Recorder:
    """Collects what a verb did, and records it when it ends."""

    def __init__(self, verb: str, signals: Signals) -> None:
        self._verb, self._signals = verb, signals
        self._started_at_us = now_us()
        self._graph: Graph | None = None
        self._run: RecordedRun | None = None

    def opened(self, graph: Graph) -> Graph:
        """The graph as a run that writes works on it, after runs that were cut off are recorded. Writes."""
        if self._graph is not None:
            return graph
        settled(graph)
        self._graph = graph
        self._run = RecordedRun(graph, self._header(graph), look(versions_now, graph))
        self._signals.watch(self._run)
        return graph.with_run(self._run)

    def note(self, value: object) -> None:
        """A plan, a report or an outcome. Pure."""
        if self._run is not None:
            self._run.notes(value)

    def decided(self, stage: str, digest: str, *, forced: bool) -> None:
        """`--confirm` is the approval of what is planned. Pure."""
        if self._run is not None:
            decision = RunDecision(
                stage=stage,
                answer=Answer.APPROVED,
                by=audit_log.shell_actor(),
                digest=digest,
                at_us=self._started_at_us,
                forced=forced,
            )
            self._run.decisions = (*self._run.decisions, decision)

    def finish(self, error: BaseException | None) -> bool:
        """Record the run, if there is a graph to record it in; False when the audit log lacks its end. Writes."""
        graph, run = self._graph, self._run
        if graph is None or run is None or (isinstance(error, _NO_RUN) and not run.began):
            return True
        self._signals.closing()
        at_work = frozenset(record.unit.table_key for record in run.records if not record.ended)
        aborted = error is not None and not isinstance(error, Exception)
        if at_work and aborted:
            # Threads that nobody can end may still be at it: only when this process is gone the graph tells.
            _warn(_LATER if run.keeps_journal else _NEVER)
            return True
        try:
            run.tell_the_rest()
        except OpsError as failure:
            _warn(f"the run is recorded by the next command that writes to the graph: {failure}")
            return True
        finally:
            self._tell_unreported(run, error)
        interrupted = aborted or self._signals.interrupted
        results = with_units(self._ended(run, error), run.records)
        if interrupted:
            signal = self._signals.name
            why = f"interrupted by {signal}" if signal else _sentence(error or KeyboardInterrupt())
            results = replace(results, interruption=Interruption(reason=why, tables=at_work - {""}))
        else:
            results = replace(results, after=look(everything_now, graph))
        kept = self._keep(graph, run, results)
        audited = self._audit(graph, run, results, error)
        if kept and audited:
            self._drop_journal(run)
        return audited

    def _tell_unreported(self, run: RecordedRun, error: BaseException | None) -> None:
        """Say what a run did that failed before it had a report. Writes to stderr."""
        if not isinstance(error, Exception):
            return
        for outcome in outcomes_of(with_units(run.results, run.records)):
            if outcome.changed and outcome.stage not in run.results.reports:
                tables = ", ".join(table.table_key for table in outcome.tables if table.changed)
                done = outcome.detail or f"{outcome.stage} changed {tables}"
                print(f"before it failed: {done}", file=sys.stderr, flush=True)

    def _drop_journal(self, run: RecordedRun) -> None:
        """Remove the journal; one that stays changes nothing about the run, which is recorded. Writes."""
        try:
            run.settled()
        except OpsError as problem:
            _warn(
                f"the run is recorded, but its journal could not be removed: {problem}; the next command that "
                "writes to the graph removes it"
            )

    def _ended(self, run: RecordedRun, error: BaseException | None) -> RunResults:
        results = replace(run.results, decisions=run.decisions)
        # The command says it as its error, but nothing failed.
        said = {outcome.problem for outcome in outcomes_of(results) if outcome.only_unapproved}
        if not isinstance(error, Exception) or str(error) in said:
            return results
        return replace(results, failures=(StageFailure(message=_sentence(error), stage=self._verb),))

    def _keep(self, graph: Graph, run: RecordedRun, results: RunResults) -> bool:
        """Add the record to the history; one that cannot be added is left in the journal. Writes."""
        record, kept = history.keep(graph, lambda: record_of(run.header, results), warn=_warn)
        if record is not None and not kept:
            run.keep_for_later(record)
        return kept

    def _audit(self, graph: Graph, run: RecordedRun, results: RunResults, error: BaseException | None) -> bool:
        """End what the audit log says of the run; False when that could not be written. Writes."""
        digest = run.digest or _digest_of(results)
        unknown = isinstance(error, (StorageError, OutcomeUnknown)) and digest
        if not digest or not (run.audited or wants_audit(results) or unknown):
            return True
        told = any(outcome.detail for outcome in outcomes_of(run.results))  # of a stage with a plan: what failed, too
        failure = _sentence(error) if isinstance(error, Exception) and not told else None
        event, detail = audit_end(results, error=failure, interrupted=results.interruption is not None)
        try:
            audit_log.append(graph.storage, event, **run.subject(digest), detail=detail)
        except OpsError as problem:
            if not run.audited:
                return True  # nothing began, and why is told already
            where = "is reported above" if error is None else "is in the journal of the run"
            print(
                f"Error: the last entry of the audit log could not be written: {problem}; what was done {where}, "
                "and the next command that writes to the graph adds the entry",
                file=sys.stderr,
            )
            return False
        return True

    def _header(self, graph: Graph) -> RunHeader:
        return RunHeader(
            run_id=f"{RunOrigin.CLI}/{process_name()}/{new_ulid(self._started_at_us)}",
            origin=RunOrigin.CLI,
            verb=self._verb,
            triggered_by=audit_log.shell_actor(),
            started_at_us=self._started_at_us,
            graph=graph.target,
            stamp=graph.stamp,
            tool_version=__version__,
        )


def settled(graph: Graph) -> None:
    """Record the runs that were cut off, as far as that can be done now. Writes."""
    try:
        settle(graph, warn=_warn)
        settle_runs(graph, is_over=lambda run: not run.at_work, warn=_warn)
    except OpsError as error:
        _warn(f"a run that was interrupted could not be recorded: {error}")


def _digest_of(results: RunResults) -> str:
    """Of the plan that was decided about, or under which a report is audited all the same. Pure."""
    digests = (*(r.audited_as for r in results.reports.values()), *(d.digest for d in results.decisions))
    return next(filter(None, digests), "")


def _sentence(error: BaseException) -> str:
    """What ended a run, in words: of a signal there is only a number. Pure."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, SystemExit) and error.code in _SIGNALS:
        return f"ended by {_SIGNALS[error.code]}"
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)

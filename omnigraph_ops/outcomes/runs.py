"""Runs that write down every unit, can be stopped, and are recorded even when their process is gone."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace

from omnigraph_ops.coordination.environment import this_process
from omnigraph_ops.coordination.lease import LeaseKeeper, LeasePlace, committer_lease, patient_lease, working_holder
from omnigraph_ops.coordination.state import RUNS_DIR
from omnigraph_ops.errors import LeaseHeld, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.history import Measured, RunDecision, RunHeader, RunOutcome, RunRecord, UnsettledRun
from omnigraph_ops.models.outcomes import StageReport
from omnigraph_ops.models.runs import RunIntent, TaskAttempt, Unit
from omnigraph_ops.outcomes import audit_log, history, run_journal
from omnigraph_ops.outcomes.audit_log import AuditEvent, audit_end
from omnigraph_ops.outcomes.history import record_of
from omnigraph_ops.outcomes.results import (
    Interruption,
    RunResults,
    Snapshot,
    StageFailure,
    UnitRecord,
    redacted_record,
    redactor_of,
    refuse_unknown,
    with_units,
    with_value,
)
from omnigraph_ops.outcomes.run_journal import Journal, Warn
from omnigraph_ops.progress import Run

_POLL_SECONDS = 0.1


class RecordedRun(Run):
    """One run of this process on one graph, or one task of a DAG run; its units may be of several threads."""

    def __init__(self, graph: Graph, header: RunHeader, before: Snapshot, task: TaskAttempt | None = None) -> None:
        self.header, self.task = header, task
        self.decisions: tuple[RunDecision, ...] = ()
        """What is decided by now; the intent holds them."""
        self._graph = graph
        self.results = RunResults(before=before)
        """What was noted of it by now."""
        self.folder = run_journal.folder_of(header, task)
        """Of the journal, below the graph."""
        self._turn = threading.RLock()
        self._units: list[UnitRecord] = []
        self.goes_on = False
        """Whether threads are at work that nobody waits for: what they do the graph tells once this process is gone."""
        self.audited = False
        """Whether the audit log has an entry of its start, which wants one of its end."""
        self._asked = False
        self._intended: tuple[RunDecision, ...] | None = None
        """The decisions that the intent holds; None: there is no intent."""
        self.keeps_journal = task is not None or not graph.storage.is_blocked(RUNS_DIR)
        """Whether a kill of this process leaves what the run had begun; without it the run works all the same.

        A task does not: the report of its run would know of nothing that it did.
        """

    @property
    def stopping(self) -> bool:
        return self._asked

    @property
    def began(self) -> bool:
        """Whether any unit began, so that there may be something to report."""
        return bool(self._units)

    @property
    def digest(self) -> str:
        """Of the plan that its units carry out, empty where there is none."""
        return next((r.unit.digest for r in self._units if r.unit.digest), "")

    @property
    def records(self) -> tuple[UnitRecord, ...]:
        """Every unit so far, in the order in which they began."""
        with self._turn:
            return tuple(self._units)

    def subject(self, digest: str) -> audit_log.Subject:
        """What the entries of the audit log about a plan of this run have in common. Pure."""
        return audit_log.subject_of(self.header, self.decisions, digest, self.task)

    def pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        # No event: a signal handler that sets one can meet this thread inside of it, and wait forever.
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _POLL_SECONDS))
        self.check()

    def stop(self) -> None:
        """Let no further unit begin. Called from signal handlers: takes no lock."""
        self._asked = True

    def at_work(self) -> tuple[str, ...]:
        """The names of the units that began and did not end. Called from signal handlers: takes no lock."""
        return tuple(record.unit.name for record in tuple(self._units) if not record.ended)

    def begins(self, unit: Unit) -> None:
        self.check()
        with self._turn:
            # First, so that a signal from here on finds a unit that has begun.
            self._units.append(UnitRecord(unit=unit))
            try:
                self.announce()
                self._note(len(self._units) - 1, self._units[-1])
                if unit.digest and not self.audited:
                    audit_log.started(self._graph.storage, **self.subject(unit.digest))
                    self.audited = True
            except OpsError:
                self._units.pop()
                raise

    def restates(self, unit: Unit, known: Unit) -> None:
        with self._turn:
            number = self._number_of(unit)
            self._note(number, UnitRecord(unit=known))
            self._units[number] = UnitRecord(unit=known)

    def ended(self, unit: Unit, did: StageReport | None) -> None:
        with self._turn:
            number = self._number_of(unit)
            self._units[number] = UnitRecord.of(unit, did)
            # What went wrong here is not the unit's: the result is in memory, and the graph can tell it, too.
            with contextlib.suppress(OpsError):
                # Its files are of no use any more, and may be many.
                self._note(number, UnitRecord.of(replace(unit, files=()), did))

    def notes(self, value: object) -> None:
        with self._turn:
            self.results = with_value(self.results, value)

    def tell_the_rest(self) -> None:
        """Give every unit that did not end what the graph shows of it, when nothing works on it any more. Reads."""
        for record in self.records:
            if not record.ended:
                self.ended(record.unit, run_journal.what_came_of(self._graph, record.unit))

    def keep_for_later(self, record: RunRecord) -> None:
        """Leave the record to whoever settles: the history could not be written. Writes."""
        if self._intended is not None:
            with contextlib.suppress(OpsError):
                kept = redacted_record(record, redactor_of(self._graph.storage))
                run_journal.keep_record(self._graph.storage, self.folder, kept)

    def settled(self) -> None:
        """The run is recorded: drop its journal. Destroys only the journal."""
        if self._intended is not None:
            run_journal.remove(self._graph.storage, self.folder)

    def _number_of(self, unit: Unit) -> int:
        return next(n for n, record in enumerate(self._units) if record.unit is unit)

    def _note(self, number: int, record: UnitRecord) -> None:
        if self.keeps_journal:
            clean = redactor_of(self._graph.storage)
            run_journal.note(self._graph.storage, self.folder, number, record, clean=clean)

    def announce(self) -> None:
        """Put the intent, again where more is decided: from here on a kill leaves a trace of the run. Writes."""
        if self._intended == self.decisions or not self.keeps_journal:
            return
        versions = {key: at.version for key, at in self.results.before.tables if at.version is not None}
        intent = RunIntent(
            header=self.header,
            decisions=self.decisions,
            **this_process(),
            graph_version=self.results.before.graph.version,
            versions=versions,
            task=self.task,
        )
        run_journal.begin(self._graph.storage, self.folder, intent)
        self._intended = self.decisions


_TURN = LeasePlace(path=f"{RUNS_DIR}/lease", name="the lease of whoever records interrupted runs")
CUT_OFF = "interrupted: its process ended before it was recorded"
_ENDS = {RunOutcome.FAILED: AuditEvent.FAILED, RunOutcome.INTERRUPTED: AuditEvent.INTERRUPTED}


def settle(graph: Graph, *, warn: Warn = run_journal.silent) -> tuple[RunRecord, ...]:
    """Write the record and the end of the audit entry of every run that was cut off; the records. Writes.

    Before anything else writes to the graph: what a run had begun is told by the graph as it left it. A run whose
    process may be alive is left alone, and so is everything while another process settles. A journal that cannot be
    settled stays for the next time, `warn` gets one sentence about it, and the others are settled.

    Raises:
        OpsError: the lease of whoever settles could not be taken.
    """
    with contextlib.suppress(OpsError):  # `open_journals` warns of it
        run_journal.remove_empty(graph.storage)
    if all(found.may_be_alive for found in run_journal.open_journals(graph.storage, warn=warn)):
        return ()
    with contextlib.suppress(LeaseHeld), turn(graph):
        dead = [found for found in run_journal.open_journals(graph.storage) if not found.may_be_alive]
        records: list[RunRecord] = []
        for found in dead:
            with run_journal.isolated(found.folder, warn):
                records.append(_settle(graph, found))
        return tuple(records)
    return ()


def turn(graph: Graph) -> contextlib.AbstractContextManager[LeaseKeeper]:
    """Be the only one who records interrupted runs for the block; `LeaseHeld` at once if another is. Writes a lease.

    A holder on another machine that seems dead for long is watched for one TTL, which tells, and then replaced.
    """
    storage, ttl, purpose = graph.storage, graph.settings.lease_ttl_seconds, "record interrupted runs"
    if working_holder(storage, _TURN.path) is not None:
        return committer_lease(storage, purpose=purpose, ttl_seconds=ttl, wait_seconds=0, place=_TURN)
    return patient_lease(storage, _TURN, purpose=purpose, ttl_seconds=ttl, pause=graph.run.pause)


def unsettled(graph: Graph) -> tuple[UnsettledRun, ...]:
    """The runs at work, and those that were interrupted and have no record yet. Reads."""
    found = run_journal.open_journals(graph.storage)
    return tuple(UnsettledRun(header=j.intent.header, at_work=j.may_be_alive, units=len(j.units)) for j in found)


def _settle(graph: Graph, found: Journal) -> RunRecord:
    """The record first, then the audit log, the journal last: killed in between, the next one goes on. Writes."""
    header = found.intent.header
    record = history.read_run(graph, header.run_id)
    results = results_of(graph, found)
    if record is None:
        record = found.record or replace(record_of(header, results), ended_at_us=_ended_at_us(found))
        history.append(graph, record)
    _, detail = audit_end(results, error=next(iter(record.errors), None), interrupted=True)
    end_audit(graph, found, _ENDS.get(record.outcome, AuditEvent.APPLIED), detail)
    run_journal.remove(graph.storage, found.folder)
    return record


def end_audit(graph: Graph, found: Journal, event: AuditEvent, detail: str) -> None:
    """End what the audit log says of a journal's start, unless it is ended. Writes."""
    intent = found.intent
    digest = next((r.unit.digest for r in found.units if r.unit.digest), "")
    subject = audit_log.subject_of(intent.header, intent.decisions, digest, intent.task)
    since_us = intent.header.started_at_us
    if digest and audit_log.is_open(graph.storage, run=subject["run"], task=subject["task"], since_us=since_us):
        audit_log.append(graph.storage, event, **subject, detail=detail)


def results_of(graph: Graph, found: Journal) -> RunResults:
    """What was done, unit by unit. Reads.

    Raises:
        InvalidInput: a later release wrote the journal, with a stage that this one does not know.
    """
    refuse_unknown({record.unit.stage for record in found.units})
    cut_off = frozenset(r.unit.table_key for r in found.units if not r.ended and r.unit.table_key)
    failures: list[StageFailure] = []
    units = tuple(_finished(graph, record, failures) for record in found.units)
    tables = tuple((key, Measured(version=version)) for key, version in found.intent.versions.items())
    before = Snapshot(graph=Measured(version=found.intent.graph_version), tables=tables)
    known = RunResults(
        before=before,
        decisions=found.intent.decisions,
        failures=tuple(failures),
        interruption=Interruption(reason=CUT_OFF, tables=cut_off),
    )
    return with_units(known, units)


def _finished(graph: Graph, record: UnitRecord, failures: list[StageFailure]) -> UnitRecord:
    """The unit with what the graph shows of it; what cannot be read is a failure and holds up nothing. Reads."""
    if record.ended:
        return record
    unit = record.unit
    try:
        return UnitRecord.of(unit, run_journal.what_came_of(graph, unit))
    except OpsError as error:
        sentence = f"what {unit.name} had done before it was interrupted could not be told: {error}"
        failures.append(StageFailure(message=sentence, table_key=unit.table_key or None, stage=unit.stage))
        return record


def _ended_at_us(found: Journal) -> int:
    """When it was last heard of. Pure."""
    started = found.intent.header.started_at_us
    return started if found.changed_at is None else max(started, int(found.changed_at * 1_000_000))

"""A run that writes down every unit before its first effect and after its last, and that can be stopped."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace

from omnigraph_ops.coordination.state import RUNS_DIR
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.history import RunDecision, RunHeader, RunRecord
from omnigraph_ops.models.runs import TaskAttempt, Unit, UnitRecord, UnitResult, UnitValue
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.history.place import credentials_of
from omnigraph_ops.outcomes.history.redacted import redacted, redacted_record
from omnigraph_ops.outcomes.history.results import RunResults, Snapshot
from omnigraph_ops.outcomes.runs import journal, told
from omnigraph_ops.outcomes.runs.results import with_value
from omnigraph_ops.watch import Run

_POLL_SECONDS = 0.1


class RecordedRun(Run):
    """One run of this process on one graph, or one task of a DAG run; its units may be of several threads."""

    def __init__(self, graph: Graph, header: RunHeader, before: Snapshot, task: TaskAttempt | None = None) -> None:
        self.header, self.task = header, task
        self.decisions: tuple[RunDecision, ...] = ()
        """What is decided by now; the intent holds them."""
        self._graph, self._before = graph, before
        self.results = RunResults()
        """What was noted of it by now."""
        self.folder = journal.folder_of(header, task)
        """Of the journal, below the graph."""
        self._turn = threading.RLock()
        self._units: list[UnitRecord] = []
        self._asked, self._wrote_intent, self._audited = False, False, False
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
    def audited(self) -> bool:
        """Whether the audit log has an entry of its start, which wants one of its end."""
        return self._audited

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
        return tuple(record.unit.name for record in tuple(self._units) if record.result is None)

    def begins(self, unit: Unit) -> None:
        self.check()
        with self._turn:
            # First, so that a signal from here on finds a unit that has begun.
            self._units.append(UnitRecord(unit=unit))
            try:
                self._write_intent()
                self._note(len(self._units) - 1, self._units[-1])
                if unit.digest and not self._audited:
                    self._audit_start(unit)
            except OpsError:
                self._units.pop()
                raise

    def ended(self, unit: Unit, value: UnitValue | None) -> None:
        with self._turn:
            number = next(n for n, record in enumerate(self._units) if record.unit is unit)
            self._units[number] = UnitRecord(unit=unit, result=UnitResult.of(value))
            # What went wrong here is not the unit's: the result is in memory, and the graph can tell it, too.
            with contextlib.suppress(OpsError):
                # Its files are of no use any more, and may be many.
                self._note(number, UnitRecord(unit=replace(unit, files=()), result=UnitResult.of(value)))

    def notes(self, value: object) -> None:
        with self._turn:
            self.results = with_value(self.results, value)

    def tell_the_rest(self) -> None:
        """Give every unit that did not end what the graph shows of it, when nothing works on it any more. Reads."""
        for record in self.records:
            if record.result is None:
                self.ended(record.unit, told.what_came_of(self._graph, record.unit))

    def keep_for_later(self, record: RunRecord) -> None:
        """Leave the record to whoever settles: the history could not be written. Writes."""
        if self._wrote_intent:
            with contextlib.suppress(OpsError):
                kept = redacted_record(record, credentials_of(self._graph))
                journal.keep_record(self._graph.storage, self.folder, kept)

    def settled(self) -> None:
        """The run is recorded: drop its journal. Destroys only the journal."""
        if self._wrote_intent:
            journal.remove(self._graph.storage, self.folder)

    def _note(self, number: int, record: UnitRecord) -> None:
        if not self.keeps_journal:
            return
        secrets = credentials_of(self._graph)
        journal.note(self._graph.storage, self.folder, number, record, clean=lambda text: redacted(text, secrets))

    def _write_intent(self) -> None:
        if self._wrote_intent or not self.keeps_journal:
            return
        versions = {key: at.version for key, at in self._before.tables if at.version is not None}
        intent = journal.intent_of(self.header, self.decisions, self._before.graph.version, versions, self.task)
        journal.begin(self._graph.storage, self.folder, intent)
        self._wrote_intent = True

    def _audit_start(self, unit: Unit) -> None:
        audit_log.started(self._graph.storage, **self.subject(unit.digest))
        self._audited = True

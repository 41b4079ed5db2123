"""Record the runs whose process is gone: what they had done is in their journal, the rest the graph tells."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from omnigraph_ops.coordination.lease import LeaseKeeper, LeasePlace, committer_lease
from omnigraph_ops.coordination.state import RUNS_DIR
from omnigraph_ops.errors import InvalidInput, LeaseHeld, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.history import Measured, RunOutcome, RunRecord, UnsettledRun
from omnigraph_ops.models.runs import UnitRecord, UnitResult
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.outcomes.history.record import record_of
from omnigraph_ops.outcomes.history.results import Interruption, RunResults, Snapshot, StageFailure
from omnigraph_ops.outcomes.runs import journal, told
from omnigraph_ops.outcomes.runs.journal import Journal, Warn
from omnigraph_ops.outcomes.runs.results import audit_end, with_units

_TURN = LeasePlace(path=f"{RUNS_DIR}/lease", name="the lease of whoever records interrupted runs")
CUT_OFF = "interrupted: its process ended before it was recorded"
_ENDS = {RunOutcome.FAILED: AuditEvent.FAILED, RunOutcome.INTERRUPTED: AuditEvent.INTERRUPTED}


def settle(graph: Graph, *, warn: Warn = journal.silent) -> tuple[RunRecord, ...]:
    """Write the record and the end of the audit entry of every run that was cut off; the records. Writes.

    Before anything else writes to the graph: what a run had begun is told by the graph as it left it. A run whose
    process may be alive is left alone, and so is everything while another process settles. A journal that cannot be
    settled stays for the next time, `warn` gets one sentence about it, and the others are settled.

    Raises:
        OpsError: the lease of whoever settles could not be taken.
    """
    if all(found.may_be_alive for found in journal.open_journals(graph.storage, warn=warn)):
        return ()
    with contextlib.suppress(LeaseHeld), turn(graph):
        dead = [found for found in journal.open_journals(graph.storage) if not found.may_be_alive]
        records: list[RunRecord] = []
        for found in dead:
            with journal.isolated(found.folder, warn):
                records.append(_settle(graph, found))
        return tuple(records)
    return ()


def turn(graph: Graph) -> contextlib.AbstractContextManager[LeaseKeeper]:
    """Be the only one who records interrupted runs for the block; `LeaseHeld` at once if another is. Writes a lease."""
    ttl = graph.settings.lease_ttl_seconds
    return committer_lease(
        graph.storage, purpose="record interrupted runs", ttl_seconds=ttl, wait_seconds=0, place=_TURN
    )


def unsettled(graph: Graph) -> tuple[UnsettledRun, ...]:
    """The runs at work, and those that were interrupted and have no record yet. Reads."""
    found = journal.open_journals(graph.storage)
    return tuple(UnsettledRun(header=j.intent.header, at_work=j.may_be_alive, units=len(j.units)) for j in found)


def _settle(graph: Graph, found: Journal) -> RunRecord:
    """The record first, then the audit log, the journal last: killed in between, the next one goes on. Writes."""
    header = found.intent.header
    record = history.read_run(graph, header.run_id)
    results = results_of(graph, found)
    if record is None:
        record = found.record or replace(record_of(header, results), ended_at_us=_ended_at_us(found))
        history.append(graph, record, days=graph.settings.history_days)
    _, detail = audit_end(results, error=next(iter(record.errors), None), interrupted=True)
    end_audit(graph, found, _ENDS.get(record.outcome, AuditEvent.APPLIED), detail)
    journal.remove(graph.storage, found.folder)
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
    unknown = {record.unit.stage for record in found.units if not told.can_tell(record.unit)}
    if unknown:
        raise InvalidInput(f"this release does not know the stage {', '.join(map(repr, sorted(unknown)))}")
    cut_off = frozenset(r.unit.table_key for r in found.units if r.result is None and r.unit.table_key)
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
    return with_units(known, graph.uri, units)


def _finished(graph: Graph, record: UnitRecord, failures: list[StageFailure]) -> UnitRecord:
    """The unit with what the graph shows of it; what cannot be read is a failure and holds up nothing. Reads."""
    if record.result is not None:
        return record
    unit = record.unit
    try:
        return replace(record, result=UnitResult.of(told.what_came_of(graph, unit)))
    except OpsError as error:
        sentence = f"what {unit.name} had done before it was interrupted could not be told: {error}"
        failures.append(StageFailure(message=sentence, table_key=unit.table_key or None, stage=unit.stage))
        return record


def _ended_at_us(found: Journal) -> int:
    """When it was last heard of. Pure."""
    started = found.intent.header.started_at_us
    return started if found.changed_at is None else max(started, int(found.changed_at * 1_000_000))

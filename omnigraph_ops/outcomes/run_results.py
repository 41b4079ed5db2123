"""From the units of a run, or of several attempts, to what the history and the audit log say of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from omnigraph_ops.models.cleanup import CleanupReport, CleanupStats, OrphanedFork, RowRetentionReport, TableRowStats
from omnigraph_ops.models.health import CheckStatus, RecoverReport
from omnigraph_ops.models.optimize import OptimizeReport, TableStats, amplification
from omnigraph_ops.models.orphans import OrphansReport, QuarantineReport
from omnigraph_ops.models.runs import (
    Outcome,
    TableOutcome,
    TableRow,
    Unit,
    UnitRecord,
    UnitResult,
    by_stage,
    by_table,
    merged_by,
)
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.outcomes.results import RunResults, StageFailure, outcomes_of, reported

_PURGED, _RESTORED = "purged", "restored"
_FIELDS: dict[type, str] = {
    get_args(hint)[0]: name for name, hint in get_type_hints(RunResults).items() if NoneType in get_args(hint)
}
"""Where a plan or a report belongs in the results."""

_PART_OF = {"forks": "cleanup"}
"""Units that have a name of their own, and the stage whose outcome tells of them."""


R = TypeVar("R", bound=TableRow)


def with_value(results: RunResults, value: object) -> RunResults:
    """The results with one more plan, report, row or outcome; what is no part of a record is left out. Pure."""
    results = _with(results, value)
    if not results.outcomes:
        return results
    told = {outcome.stage for outcome in reported(results)}
    return replace(results, outcomes=tuple(o for o in results.outcomes if o.stage not in told))


def _with(results: RunResults, value: object) -> RunResults:
    match value:
        case Outcome():
            others = (outcome for outcome in results.outcomes if outcome.stage != value.stage)
            return replace(results, outcomes=(*others, value))
        case CleanupReport():
            return replace(results, cleanup=value.tables, forks=value.forks)
        case StageFailure():
            return replace(results, failures=(*results.failures, value))
        case CleanupStats():
            return replace(results, cleanup=(*results.cleanup, value))
        case TableStats():
            rows = (*(results.optimize.tables if results.optimize else ()), value)
            return replace(results, optimize=OptimizeReport.of("", rows))
        case OrphanedFork():
            return replace(results, forks=(*results.forks, value))
        case RecoverReport() if not value.status.is_settled:
            left = StageFailure(message=f"recover left the graph {value.status.value}", stage="recover")
            results = replace(results, failures=(left,))
    name = _FIELDS.get(type(value))
    changes: dict[str, Any] = {} if name is None else {name: value}
    return replace(results, **changes)


def with_units(results: RunResults, uri: str, records: Sequence[UnitRecord]) -> RunResults:
    """The results with what the units did, for every table and stage that did not get to its report. Pure."""
    did = [(record.unit, record.result or UnitResult()) for record in untold(results, records)]
    stages = {unit.stage for unit, _ in did}
    recovered = tuple(r.recovered for _, r in did if r.recovered)
    recovery = RecoverReport(uri=uri, outcomes=recovered, status=CheckStatus.PENDING)
    rows = RowRetentionReport(uri=uri, branch=None, digest="", tables=tuple(r.expired for _, r in did if r.expired))
    noted = results.optimize.tables if results.optimize else ()
    optimized = rows_with(noted, (r.optimized for _, r in did if r.optimized))
    optimizes = "optimize" in stages and (results.optimize is None or optimized != noted)
    forked = {(fork.table_key, fork.branch) for fork in results.forks}
    forks = [r.fork for _, r in did if r.fork and (r.fork.table_key, r.fork.branch) not in forked]
    return replace(
        results,
        optimize=OptimizeReport.of(uri, optimized) if optimizes else results.optimize,
        cleanup=rows_with(results.cleanup, (r.cleaned for _, r in did if r.cleaned)),
        forks=(*results.forks, *forks),
        repair=results.repair or next((r.repaired for _, r in did if r.repaired), None),
        recovery=results.recovery or (recovery if recovered else None),
        row_retention=results.row_retention or (rows if rows.tables else None),
        orphans=results.orphans or _orphans(uri, [d for d in did if d[0].stage == "orphans"]),
        backup_left=results.backup_left or next((r.backed_up for _, r in did if r.backed_up), None),
        quarantine=results.quarantine or _quarantine(uri, [d for d in did if d[0].stage == "quarantine"]),
        outcomes=(*results.outcomes, *_outcomes([(unit, r.done) for unit, r in did if r.done is not None])),
    )


def _outcomes(did: Sequence[tuple[Unit, TableOutcome]]) -> Iterator[Outcome]:
    """What came of the stages whose units speak the terms that every stage shares. Pure."""
    for outcome in by_stage(_outcome(unit, done) for unit, done in did):
        units = [done for unit, done in did if unit.stage == outcome.stage]
        changed, failed = sum(done.changed for done in units), sum(done.error is not None for done in units)
        detail = f"{changed} of {len(units)} units changed something, {failed} failed"
        yield replace(outcome, detail=detail, applied=not failed)


def _outcome(unit: Unit, done: TableOutcome) -> Outcome:
    if done.table_key:
        return Outcome(stage=unit.stage, detail="", changed=done.changed, tables=(done,))
    errors = () if done.error is None else (f"{unit.name}: {done.error}",)
    return Outcome(stage=unit.stage, detail="", changed=done.changed, errors=errors, work=done.work)


def untold(results: RunResults, records: Sequence[UnitRecord]) -> tuple[UnitRecord, ...]:
    """The units of the stages of which no outcome tells everything. Pure."""
    told = {outcome.stage for outcome in results.outcomes}
    return tuple(record for record in records if _PART_OF.get(record.unit.stage, record.unit.stage) not in told)


def rows_with(reported: Sequence[R], told: Iterable[R]) -> tuple[R, ...]:
    """The rows of a report, and those of the tables that are not in it. Pure."""
    keys = {row.table_key for row in reported}
    return (*reported, *(row for row in told if row.table_key not in keys))


def wants_audit(results: RunResults) -> bool:
    """Whether the audit log says something of a run although nothing of it began: what failed or was refused. Pure."""
    return any(
        outcome.stage == "quarantine" or not outcome.applied or outcome.failures or any(t.error for t in outcome.tables)
        for outcome in outcomes_of(results)
    )


def audit_end(results: RunResults, *, error: str | None, interrupted: bool) -> tuple[AuditEvent, str]:
    """How the audit log ends a run, and its detail. Pure."""
    told = [outcome for outcome in outcomes_of(results) if outcome.detail]
    details = [outcome.detail for outcome in told]
    if not details and error is not None:
        details = ["nothing was removed or published"]
    if interrupted:
        event = AuditEvent.INTERRUPTED
    elif error is not None or not all(outcome.applied for outcome in told):
        event = AuditEvent.FAILED
    else:
        event = AuditEvent.APPLIED
    return event, "; ".join(filter(None, (error, *details)))


def _orphans(uri: str, did: Sequence[tuple[Unit, UnitResult]]) -> OrphansReport | None:
    if not did:
        return None
    files, size = _sum(did)
    return OrphansReport(
        uri=uri,
        digest=did[0][0].digest,
        quarantine_id=did[0][0].quarantine_id or None,
        files_removed=files,
        bytes_removed=size,
        folders_removed=0,
        already_gone=0,
        spared=(),
        failed=(),
    )


def _quarantine(uri: str, did: Sequence[tuple[Unit, UnitResult]]) -> QuarantineReport | None:
    if not did:
        return None
    files, size = _sum(did)
    first = did[0][0]
    action = _PURGED if first.name.startswith(_PURGED) else _RESTORED
    return QuarantineReport(
        uri=uri, quarantine_id=first.quarantine_id, digest=first.digest, action=action, files=files, bytes=size
    )


def _sum(did: Sequence[tuple[Unit, UnitResult]]) -> tuple[int, int]:
    done = [result.files for _, result in did if result.files is not None]
    return sum(d.files for d in done), sum(d.bytes for d in done)


T = TypeVar("T")


def merged(attempts: Sequence[RunResults], uri: str) -> RunResults:
    """The results of all attempts, oldest first: work adds up, and of the rest the last word counts. Pure.

    Failures, decisions and snapshots are those of no attempt.
    """
    optimized = by_table((row for a in attempts if a.optimize for row in a.optimize.tables), _optimized)
    recovered = [outcome for a in attempts if a.recovery for outcome in a.recovery.outcomes]
    recovery = _last(a.recovery for a in attempts)
    repairs = [a.repair for a in attempts if a.repair]
    return RunResults(
        optimize_plan=_last(a.optimize_plan for a in attempts),
        optimize=OptimizeReport.of(uri, optimized) if any(a.optimize for a in attempts) else None,
        # The last that published: what comes after it only finds that there is nothing to do.
        repair=_last((*repairs, *(r for r in repairs if r.manifest_version is not None))),
        cleanup=by_table((row for a in attempts for row in a.cleanup), _cleaned),
        forks=_forks(fork for a in attempts for fork in a.forks),
        orphans=_merged_orphans([a.orphans for a in attempts if a.orphans]),
        recovery=recovery and RecoverReport(uri=uri, outcomes=tuple(recovered), status=recovery.status),
        row_retention=_rows([a.row_retention for a in attempts if a.row_retention]),
        backup=_last(a.backup for a in attempts),
        backup_left=None if any(a.backup for a in attempts) else _last(a.backup_left for a in attempts),
        verified=_last(a.verified for a in attempts),
        outcomes=by_stage(outcome for a in attempts for outcome in a.outcomes),
    )


def with_told(noted: RunResults, told: RunResults, uri: str) -> RunResults:
    """What an attempt noted, with what its units tell; a table that had several units is their sum. Pure.

    A table that failed in the middle of its work has the error in its row: failures are those of no attempt.
    """
    rows = rows_with(told.optimize.tables if told.optimize else (), noted.optimize.tables if noted.optimize else ())
    failed = {failure.table_key: failure.message for failure in noted.failures}
    optimized = tuple(replace(row, error=row.error or failed.get(row.table_key)) for row in rows)
    return replace(
        noted,
        optimize=OptimizeReport.of(uri, optimized) if optimized else noted.optimize,
        cleanup=rows_with(told.cleanup, noted.cleanup),
        forks=_forks((*told.forks, *noted.forks)),
        repair=noted.repair or told.repair,
        recovery=noted.recovery or told.recovery,
        orphans=noted.orphans or told.orphans,
        row_retention=noted.row_retention or told.row_retention,
        backup_left=None if noted.backup else told.backup_left,
        outcomes=(*noted.outcomes, *told.outcomes),
    )


def _last(values: Iterable[T | None]) -> T | None:
    return next(reversed([value for value in values if value is not None]), None)


def _optimized(first: TableStats, second: TableStats) -> TableStats:
    if not first.committed:
        return second
    if not second.committed:
        return replace(first, error=second.error)
    ingested = [s.bytes_ingested for s in (first, second) if s.bytes_ingested is not None]
    written = first.bytes_rewritten + second.bytes_rewritten
    return replace(
        second,
        fragments_removed=first.fragments_removed + second.fragments_removed,
        fragments_added=first.fragments_added + second.fragments_added,
        bytes_rewritten=written,
        bytes_planned=first.bytes_planned + second.bytes_planned,
        index_bytes_rewritten=first.index_bytes_rewritten + second.index_bytes_rewritten,
        bytes_ingested=sum(ingested) if ingested else None,
        write_amplification=amplification(written, sum(ingested)) if ingested else None,
        indexes_folded=tuple(dict.fromkeys((*first.indexes_folded, *second.indexes_folded))),
        indexes_built=tuple(dict.fromkeys((*first.indexes_built, *second.indexes_built))),
        windows=(*first.windows, *second.windows),
        preempted=first.preempted + second.preempted,
    )


def _cleaned(first: CleanupStats, second: CleanupStats) -> CleanupStats:
    return replace(
        second,
        bytes_removed=first.bytes_removed + second.bytes_removed,
        old_versions_removed=first.old_versions_removed + second.old_versions_removed,
        versions=tuple(sorted({*first.versions, *second.versions})),
        # What the first attempt removed is no longer there for the second, which saw nothing where it failed.
        already_gone=max(first.already_gone, second.already_gone - first.old_versions_removed),
        skipped_since_protected=(first if second.error else second).skipped_since_protected,
    )


def _forks(forks: Iterable[OrphanedFork]) -> tuple[OrphanedFork, ...]:
    """One row per fork: that it was removed, if any attempt did. Pure."""
    return merged_by(forks, lambda fork: (fork.table_key, fork.branch), _removed)


def _removed(first: OrphanedFork, second: OrphanedFork) -> OrphanedFork:
    return first if first.error is None else second


def _merged_orphans(reports: Sequence[OrphansReport]) -> OrphansReport | None:
    if not reports:
        return None
    return replace(
        reports[-1],
        files_removed=sum(r.files_removed for r in reports),
        bytes_removed=sum(r.bytes_removed for r in reports),
        folders_removed=sum(r.folders_removed for r in reports),
    )


def _rows(reports: Sequence[RowRetentionReport]) -> RowRetentionReport | None:
    if not reports:
        return None
    return replace(reports[-1], tables=by_table((row for r in reports for row in r.tables), _expired))


def _expired(first: TableRowStats, second: TableRowStats) -> TableRowStats:
    return replace(
        second,
        rows_removed=first.rows_removed + second.rows_removed,
        edges=by_table((*first.edges, *second.edges), lambda one, more: replace(more, rows=one.rows + more.rows)),
        attempts=first.attempts + second.attempts,
    )

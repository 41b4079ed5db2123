"""What several attempts did, as one: a task that was repeated, a run that was cleared. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from omnigraph_ops.models import (
    CleanupStats,
    OptimizeReport,
    OrphanedFork,
    OrphansReport,
    RecoverReport,
    RepairReport,
    TableStats,
)
from omnigraph_ops.models.optimize import amplification
from omnigraph_ops.models.outcome import by_stage
from omnigraph_ops.models.retention import EdgeRows, RowRetentionReport, TableRowStats
from omnigraph_ops.outcomes.history.results import RunResults
from omnigraph_ops.outcomes.runs.results import TableRow, rows_with

T = TypeVar("T")


R = TypeVar("R", bound=TableRow)


def merged(attempts: Sequence[RunResults], uri: str) -> RunResults:
    """The results of all attempts, oldest first: work adds up, and of the rest the last word counts. Pure.

    Failures, decisions and snapshots are those of no attempt.
    """
    optimized = _by_table((row for a in attempts if a.optimize for row in a.optimize.tables), _optimized)
    recovered = [outcome for a in attempts if a.recovery for outcome in a.recovery.outcomes]
    recovery = _last(a.recovery for a in attempts)
    return RunResults(
        optimize_plan=_last(a.optimize_plan for a in attempts),
        optimize=OptimizeReport.of(uri, optimized) if any(a.optimize for a in attempts) else None,
        repair=_repaired([a.repair for a in attempts if a.repair]),
        cleanup=_by_table((row for a in attempts for row in a.cleanup), _cleaned),
        forks=_forks(fork for a in attempts for fork in a.forks),
        orphans=_orphans([a.orphans for a in attempts if a.orphans]),
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


def _by_table(rows: Iterable[R], add: Callable[[R, R], R]) -> tuple[R, ...]:
    found: dict[str, R] = {}
    for row in rows:
        known = found.get(row.table_key)
        found[row.table_key] = row if known is None else add(known, row)
    return tuple(found.values())


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
    )


def _forks(forks: Iterable[OrphanedFork]) -> tuple[OrphanedFork, ...]:
    """One row per fork: that it was removed, if any attempt did. Pure."""
    found: dict[tuple[str, str], OrphanedFork] = {}
    for fork in forks:
        known = found.get((fork.table_key, fork.branch))
        if known is None or known.error is not None:
            found[fork.table_key, fork.branch] = fork
    return tuple(found.values())


def _repaired(reports: Sequence[RepairReport]) -> RepairReport | None:
    """The last that published: what comes after it only finds that there is nothing to do. Pure."""
    return _last((*reports, *(r for r in reports if r.manifest_version is not None)))


def _orphans(reports: Sequence[OrphansReport]) -> OrphansReport | None:
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
    return replace(reports[-1], tables=_by_table((row for r in reports for row in r.tables), _expired))


def _expired(first: TableRowStats, second: TableRowStats) -> TableRowStats:
    edges: dict[str, EdgeRows] = {}
    for edge in (*first.edges, *second.edges):
        known = edges.get(edge.table_key)
        edges[edge.table_key] = edge if known is None else replace(edge, rows=known.rows + edge.rows)
    return replace(
        second,
        rows_removed=first.rows_removed + second.rows_removed,
        edges=tuple(edges.values()),
        attempts=first.attempts + second.attempts,
    )

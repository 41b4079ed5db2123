"""What a run left, table by table. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from omnigraph_ops.models import (
    CleanupStats,
    OrphanedFork,
    RecoveryOutcome,
    RepairRow,
    TableCleanupPlan,
    TablePlan,
    TableStats,
)
from omnigraph_ops.models.history import Measured, RunDecision
from omnigraph_ops.models.retention import TableRowStats
from omnigraph_ops.outcomes.history.results import RunResults, StageFailure


class _Keyed(Protocol):
    @property
    def table_key(self) -> str | None: ...


K = TypeVar("K", bound=_Keyed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableParts:
    """Everything about one table; None where no stage looked."""

    table_key: str
    before: Measured
    after: Measured
    plan: TablePlan | None
    optimized: TableStats | None
    previewed: RepairRow | None
    repaired: RepairRow | None
    cleanup_plan: TableCleanupPlan | None
    cleaned: CleanupStats | None
    planned_forks: tuple[OrphanedFork, ...]
    forks: tuple[OrphanedFork, ...]
    recovered: tuple[RecoveryOutcome, ...]
    expired: TableRowStats | None
    failures: tuple[StageFailure, ...]
    interrupted: bool
    """Whether the run was ended while it worked on the table."""
    decisions: tuple[RunDecision, ...]
    """All of the run."""


def parts_of(results: RunResults) -> tuple[TableParts, ...]:
    """The parts of every table that any stage looked at, by key. Pure."""
    plan = _by_key(results.optimize_plan.tables if results.optimize_plan else ())
    optimized = _by_key(results.optimize.tables if results.optimize else ())
    previewed = _by_key(results.preview.rows if results.preview else ())
    repaired = _by_key(results.repair.tables if results.repair else ())
    cleanup_plan = _by_key(results.cleanup_plan.tables if results.cleanup_plan else ())
    cleaned = _by_key(results.cleanup)
    planned_forks = _by_key(results.cleanup_plan.orphaned_forks if results.cleanup_plan else ())
    forks, failures = _by_key(results.forks), _by_key(results.failures)
    recovered = _by_key(results.recovery.outcomes if results.recovery else ())
    expired = _by_key(results.row_retention.tables if results.row_retention else ())
    before, after = dict(results.before.tables), dict(results.after.tables)
    interrupted = results.interruption.tables if results.interruption else frozenset[str]()
    everything = (
        plan,
        optimized,
        previewed,
        repaired,
        cleanup_plan,
        cleaned,
        planned_forks,
        forks,
        failures,
        recovered,
        expired,
        interrupted,
    )
    return tuple(
        TableParts(
            table_key=key,
            before=before.get(key, Measured()),
            after=after.get(key, Measured()),
            plan=_first(plan, key),
            optimized=_first(optimized, key),
            previewed=_first(previewed, key),
            repaired=_first(repaired, key),
            cleanup_plan=_first(cleanup_plan, key),
            cleaned=_first(cleaned, key),
            planned_forks=tuple(planned_forks.get(key, ())),
            forks=tuple(forks.get(key, ())),
            recovered=tuple(recovered.get(key, ())),
            expired=_first(expired, key),
            failures=tuple(failures.get(key, ())),
            interrupted=key in interrupted,
            decisions=results.decisions,
        )
        for key in sorted({key for found in everything for key in found})
    )


def _by_key(rows: Iterable[K]) -> dict[str, list[K]]:
    """The rows by their table; those about none are left out. Pure."""
    found: dict[str, list[K]] = defaultdict(list)
    for row in rows:
        if row.table_key:
            found[row.table_key].append(row)
    return found


def _first(found: dict[str, list[K]], key: str) -> K | None:
    return next(iter(found.get(key, ())), None)

"""What a run left, table by table. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from omnigraph_ops.models import (
    OrphanedFork,
    RepairRow,
    TableCleanupPlan,
    TablePlan,
    TableStats,
)
from omnigraph_ops.models.history import Measured, RunDecision
from omnigraph_ops.models.outcome import TableOutcome
from omnigraph_ops.outcomes.history.results import RunResults, StageFailure, outcomes_of


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
    cleanup_plan: TableCleanupPlan | None
    planned_forks: tuple[OrphanedFork, ...]
    done: tuple[tuple[str, TableOutcome], ...]
    """What each stage did to it, with the name of the stage."""
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
    cleanup_plan = _by_key(results.cleanup_plan.tables if results.cleanup_plan else ())
    planned_forks = _by_key(results.cleanup_plan.orphaned_forks if results.cleanup_plan else ())
    failures = _by_key(results.failures)
    done: dict[str, list[tuple[str, TableOutcome]]] = defaultdict(list)
    for outcome in outcomes_of(results):
        for row in outcome.tables:
            done[row.table_key].append((outcome.stage, row))
    before, after = dict(results.before.tables), dict(results.after.tables)
    interrupted = results.interruption.tables if results.interruption else frozenset[str]()
    everything = (plan, previewed, cleanup_plan, planned_forks, done, failures, interrupted)
    return tuple(
        TableParts(
            table_key=key,
            before=before.get(key, Measured()),
            after=after.get(key, Measured()),
            plan=_first(plan, key),
            optimized=_first(optimized, key),
            previewed=_first(previewed, key),
            cleanup_plan=_first(cleanup_plan, key),
            planned_forks=tuple(planned_forks.get(key, ())),
            done=tuple(done.get(key, ())),
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

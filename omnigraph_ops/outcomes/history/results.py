"""What the stages of one run left, whoever ran them: the one input of the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omnigraph_ops.models import (
    CleanupPlan,
    CleanupStats,
    OptimizePlan,
    OptimizeReport,
    OrphanedFork,
    OrphansReport,
    QuarantineReport,
    RecoverReport,
    RepairPreview,
    RepairReport,
)
from omnigraph_ops.models.backup import BackupLeft, BackupReport, VerifyReport
from omnigraph_ops.models.history import Measured, RunDecision
from omnigraph_ops.models.outcome import Outcome, by_stage
from omnigraph_ops.models.retention import RowRetentionReport
from omnigraph_ops.outcomes import of_reports


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailure:
    """A sentence about what failed; of which table, if it is about one."""

    message: str
    table_key: str | None = None
    stage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """What ended a run before its end."""

    reason: str
    tables: frozenset[str] = frozenset()
    """The tables that were being worked on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How a graph and its tables stood at one moment."""

    graph: Measured = field(default_factory=Measured)
    tables: tuple[tuple[str, Measured], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """Plans and reports of a run; None where a stage did not get to leave one, or is not part of the run."""

    optimize_plan: OptimizePlan | None = None
    optimize: OptimizeReport | None = None
    preview: RepairPreview | None = None
    repair: RepairReport | None = None
    cleanup_plan: CleanupPlan | None = None
    cleanup: tuple[CleanupStats, ...] = ()
    forks: tuple[OrphanedFork, ...] = ()
    """Orphaned forks that were removed; with an error, that were not."""
    orphans: OrphansReport | None = None
    quarantine: QuarantineReport | None = None
    recovery: RecoverReport | None = None
    row_retention: RowRetentionReport | None = None
    backup: BackupReport | None = None
    verified: VerifyReport | None = None
    """What reading that backup again found."""
    backup_left: BackupLeft | None = None
    """What lies in the place of a backup that did not get to its report."""
    outcomes: tuple[Outcome, ...] = ()
    """Of stages that left no report here, one each; `outcomes_of` has those of all stages."""
    decisions: tuple[RunDecision, ...] = ()
    failures: tuple[StageFailure, ...] = ()
    attention: tuple[str, ...] = ()
    interruption: Interruption | None = None
    before: Snapshot = field(default_factory=Snapshot)
    after: Snapshot = field(default_factory=Snapshot)


def outcomes_of(results: RunResults) -> tuple[Outcome, ...]:
    """What came of every stage of the run, one each. Pure."""
    return by_stage((*reported(results), *results.outcomes))


def reported(results: RunResults) -> Iterator[Outcome]:
    """The outcomes of the stages that left a report, or rows of one. Pure."""
    if results.recovery is not None:
        yield of_reports.of_recovery(results.recovery)
    if results.optimize is not None:
        yield of_reports.of_optimize(results.optimize)
    if results.repair is not None:
        yield of_reports.of_repair(results.repair)
    if results.cleanup or results.forks:
        plan = results.cleanup_plan
        yield of_reports.of_cleanup(results.cleanup, results.forks, plan.policy if plan else None)
    if results.row_retention is not None:
        yield of_reports.of_rows(results.row_retention)
    if results.orphans is not None:
        yield of_reports.of_orphans(results.orphans)
    if results.quarantine is not None and results.quarantine.action != "preview":
        yield of_reports.of_quarantine(results.quarantine)
    backup = results.backup or results.backup_left
    if backup is not None:
        yield of_reports.of_backup(backup)

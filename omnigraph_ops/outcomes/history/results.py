"""What the stages of one run left, whoever ran them: the one input of the record."""

from __future__ import annotations

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
    RepairAction,
    RepairPreview,
    RepairReport,
    TableStats,
)
from omnigraph_ops.models.backup import BackupLeft, BackupReport, VerifyReport
from omnigraph_ops.models.history import Measured, RunDecision
from omnigraph_ops.models.outcome import Outcome
from omnigraph_ops.models.retention import RowRetentionReport

DONE_BY_REPAIR = frozenset({RepairAction.HEALED, RepairAction.FORCED})
DONE_BY_RECOVER = frozenset({"rolled_forward", "rolled_back", "stale"})


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
    """What came of each stage, or of each part of one, as the stage itself says."""
    decisions: tuple[RunDecision, ...] = ()
    failures: tuple[StageFailure, ...] = ()
    attention: tuple[str, ...] = ()
    interruption: Interruption | None = None
    before: Snapshot = field(default_factory=Snapshot)
    after: Snapshot = field(default_factory=Snapshot)

    @property
    def optimized(self) -> tuple[TableStats, ...]:
        """The tables that optimize committed to. Pure."""
        return tuple(t for t in self.optimize.tables if t.committed) if self.optimize else ()

    @property
    def did_anything(self) -> bool:
        """Whether the graph, or what is stored of it, there or in a backup, is other than before. Pure."""
        repaired = self.repair is not None and any(r.action in DONE_BY_REPAIR for r in self.repair.tables)
        cleaned = any(s.old_versions_removed for s in self.cleanup) or any(f.error is None for f in self.forks)
        swept = self.orphans is not None and bool(self.orphans.files_removed or self.orphans.folders_removed)
        moved = self.quarantine is not None and bool(self.quarantine.files)
        recovered = self.recovery is not None and any(o.action in DONE_BY_RECOVER for o in self.recovery.outcomes)
        expired = self.row_retention is not None and bool(self.row_retention.rows_removed)
        told = any(outcome.changed for outcome in self.outcomes)
        changed = told or bool(self.optimized) or repaired or cleaned or swept or moved or recovered or expired
        return changed or self.backup is not None

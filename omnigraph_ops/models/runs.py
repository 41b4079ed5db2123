"""Units of a run: what it says before an effect, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.models.backup import BackupLeft
from omnigraph_ops.models.cleanup import CleanupStats, OrphanedFork, PlannedFile
from omnigraph_ops.models.history import RunDecision, RunHeader
from omnigraph_ops.models.optimize import TableStats
from omnigraph_ops.models.outcome import TableOutcome
from omnigraph_ops.models.recovery import RecoveryOutcome
from omnigraph_ops.models.repair import RepairReport
from omnigraph_ops.models.retention import TableRowPlan, TableRowStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a run is about to do as one piece, with everything by which its effects can be told from the graph."""

    name: str
    """Of no other unit of the run; what a person reads."""
    stage: str
    told_by: str = ""
    """How the graph tells its effects, for a stage without a way of its own: by the `version` of its table, or by its
    `files`."""
    digest: str = ""
    """Of the plan that allows it; empty for what nobody has to approve."""
    table_key: str = ""
    table_path: str = ""
    version: int | None = None
    """Published version of the table before."""
    versions: tuple[int, ...] = ()
    """Versions that are about to go."""
    files: tuple[PlannedFile, ...] = ()
    """Files that are about to go."""
    branch: str = ""
    """Lance branch that is about to go."""
    sidecar: str = ""
    """Sidecar that is about to be finished."""
    quarantine_id: str = ""
    """The quarantine that files are moved to, brought back from or deleted from."""
    report: RepairReport | None = None
    """What a repair is about to publish."""
    rows: TableRowPlan | None = None
    """Which rows are about to be deleted."""
    backup: str = ""
    """The backup that is about to be made, as `verify` takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesDone:
    """Files of one unit that are not where they were."""

    files: int = 0
    bytes: int = 0


UnitValue = (
    TableStats
    | CleanupStats
    | OrphanedFork
    | FilesDone
    | RepairReport
    | RecoveryOutcome
    | TableRowStats
    | BackupLeft
    | TableOutcome
)
"""What came of a unit, in the words of its stage, or in those that every stage shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    """What came of a unit, in the one field of its kind; in none where it did nothing."""

    optimized: TableStats | None = None
    cleaned: CleanupStats | None = None
    fork: OrphanedFork | None = None
    files: FilesDone | None = None
    repaired: RepairReport | None = None
    recovered: RecoveryOutcome | None = None
    expired: TableRowStats | None = None
    backed_up: BackupLeft | None = None
    done: TableOutcome | None = None
    """Its key is empty where the unit was about no table."""

    @classmethod
    def of(cls, value: UnitValue | None) -> UnitResult:
        """The result that holds a value. Pure."""
        return cls() if value is None else cls(**{_FIELDS[type(value)]: value})  # type: ignore[arg-type]


_FIELDS: dict[type, str] = {
    TableStats: "optimized",
    CleanupStats: "cleaned",
    OrphanedFork: "fork",
    FilesDone: "files",
    RepairReport: "repaired",
    RecoveryOutcome: "recovered",
    TableRowStats: "expired",
    BackupLeft: "backed_up",
    TableOutcome: "done",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """One unit in the journal of a run."""

    unit: Unit
    result: UnitResult | None = None
    """None from before the first effect until the end of the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """One attempt of one task of a DAG run."""

    task_id: str
    map_index: int = -1
    """-1: it is not mapped."""
    try_number: int = 1
    """Goes on counting when the run is cleared."""

    @property
    def instance(self) -> str:
        """The task, a mapped one as `task_index`. Pure."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIntent:
    """What a run writes down before its first effect."""

    header: RunHeader
    decisions: tuple[RunDecision, ...]
    pid: int
    machine: str
    """Where `pid` means something."""
    process_started: str
    """Tells the process from a later one of the same number; empty where the system does not say."""
    graph_version: int | None
    versions: dict[str, int]
    """Published version of every table."""
    task: TaskAttempt | None = None
    """Of a DAG run, the task that keeps this journal; None: the whole run does."""

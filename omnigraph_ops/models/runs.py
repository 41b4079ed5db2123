"""Units of a run: what it says before an effect, and what came of it; what a submitted part of it leaves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, Protocol, TypeVar, get_args, get_type_hints

from omnigraph_ops.models.backup import BackupLeft
from omnigraph_ops.models.cleanup import CleanupStats, OrphanedFork, PlannedFile, TableRowPlan, TableRowStats
from omnigraph_ops.models.health import RecoveryOutcome
from omnigraph_ops.models.history import RunDecision, RunHeader, Work
from omnigraph_ops.models.optimize import TableStats
from omnigraph_ops.models.repair import RepairReport


class TableRow(Protocol):
    """A row of a plan or a report about one table."""

    @property
    def table_key(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What a stage did to one table."""

    table_key: str
    work: Work = field(default_factory=Work)
    changed: bool = False
    error: str | None = None
    reason: str = ""
    """Why nothing was done to it, as a token or a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a stage did to a graph."""

    stage: str
    detail: str
    """One sentence for the audit log; for the history, too, where no figure of it tells what changed."""
    applied: bool = True
    """Whether the audit log has it as applied; otherwise as failed."""
    changed: bool = False
    """Whether the graph, or what is stored of it, is other than before."""
    problem: str = ""
    """What went wrong, what was not harmed and what to do next; empty: nothing went wrong."""
    errors: tuple[str, ...] = ()
    """What failed and is about no table, a sentence each."""
    work: Work = field(default_factory=Work)
    """What is not in the tables."""
    tables: tuple[TableOutcome, ...] = ()
    """One for each table."""

    @property
    def failures(self) -> tuple[str, ...]:
        """What failed and is about no table; the problem where nothing else tells that it failed. Pure."""
        told = self.errors or self.applied or any(t.error is not None for t in self.tables)
        return self.errors if told or not self.problem else (self.problem,)


T = TypeVar("T")
R = TypeVar("R", bound=TableRow)


def merged_by(rows: Iterable[T], key: Callable[[T], Hashable], add: Callable[[T, T], T]) -> tuple[T, ...]:
    """One row for each key, in the order of the first ones; `add` makes one of two. Pure."""
    found: dict[Hashable, T] = {}
    for row in rows:
        name = key(row)
        found[name] = add(found[name], row) if name in found else row
    return tuple(found.values())


def by_table(rows: Iterable[R], add: Callable[[R, R], R]) -> tuple[R, ...]:
    """One row for each table. Pure."""
    return merged_by(rows, lambda row: row.table_key, add)


def by_stage(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """One outcome of each stage: work adds up, and of the rest the last word counts. Pure."""
    return merged_by(outcomes, lambda outcome: outcome.stage, _and)


def _and(first: Outcome, second: Outcome) -> Outcome:
    return replace(
        second,
        changed=first.changed or second.changed,
        work=Work.of((first.work, second.work)),
        tables=by_table((*first.tables, *second.tables), _table_and),
    )


def _table_and(first: TableOutcome, second: TableOutcome) -> TableOutcome:
    return replace(second, work=Work.of((first.work, second.work)), changed=first.changed or second.changed)


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


_FIELDS: dict[type, str] = {get_args(hint)[0]: name for name, hint in get_type_hints(UnitResult).items()}


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


V = TypeVar("V")


class CalibratedJob(StrEnum):
    """A job for which `calibrate` measures from which size on it is faster than this process."""

    REWRITE = "rewrite"
    COPY = "copy"
    VERIFY = "verify"
    RESTORE = "restore"
    EVIDENCE = "evidence"
    ORPHANS = "orphans"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOutcome(Generic[V]):
    """The value of a job, or one sentence and whether the same submit may succeed later.

    It is empty as long as the job runs, and stays so when its driver is lost.
    """

    value: V | None = None
    """Of the type that the job returns."""
    error: str | None = None
    retryable: bool = True

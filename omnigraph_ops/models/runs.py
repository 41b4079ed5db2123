"""Units of a run: what it says before an effect, and what came of it; what a submitted part of it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from omnigraph_ops.models.cleanup import PlannedFile
from omnigraph_ops.models.history import RunDecision, RunHeader
from omnigraph_ops.models.repair import RepairReport
from omnigraph_ops.models.rows import TableRowPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a run is about to do as one piece, with everything by which its effects can be told from the graph."""

    name: str
    """Of no other unit of the run; what a person reads."""
    stage: str
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
    """Lance branch that is about to go; of `expire-rows` and `recover`, the branch that is written to."""
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

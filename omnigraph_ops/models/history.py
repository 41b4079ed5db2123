"""History: what one run did to a graph and to each of its tables, as it is kept under `__maintenance/`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

GIVEN_UP_SECONDS = 7 * 86_400
"""A DAG run that Airflow does not know counts as over so long after its last sign of life: no run waits that long."""


class _WordEnum(StrEnum):
    """A word of a record. One that a later release wrote is kept as it is: it must not hide all other records."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        word = str.__new__(cls, value)
        word._name_ = word._value_ = value
        return word


class RunOutcome(_WordEnum):
    """What came of a run, or of one table in it. What was skipped is never a success."""

    SUCCEEDED = "succeeded"
    """Something was done, and nothing failed."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """A signal or the end of its process ended it; what it had done until then is in the record."""
    UNAPPROVED = "unapproved"
    """Nothing failed, and what somebody was asked about was not done: it was rejected, nobody answered, or the approval
    lacked the switch that it needs."""
    FROZEN = "frozen"
    """Of a run: nothing was done, and a freeze kept it from tables; `attention` names the freeze and how to end it."""
    PREVIEWED = "previewed"
    """Of a run of a DAG, or a table in it: nothing was done; a plan names work, and nobody was asked to approve it."""
    NOTHING_TO_DO = "nothing_to_do"
    """Nothing was done: there was no work, or what there was waits; the reason says which."""


class RunOrigin(_WordEnum):
    """What started a run."""

    CLI = "cli"
    AIRFLOW = "airflow"


class Answer(_WordEnum):
    """What became of an approval."""

    APPROVED = "approved"
    REJECTED = "rejected"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDecision:
    """Who decided about the plan of one stage."""

    stage: str
    """`repair`, `cleanup` or `orphans`."""
    answer: Answer
    by: str
    digest: str
    """Of the plan that was decided about."""
    at_us: int | None = None
    forced: bool = False
    """Also publish drift that is not verified maintenance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How a table (or all of a graph, summed) stood at one moment; None: nobody looked. Shares are between 0 and 1."""

    version: int | None = None
    """Published version of a table; version of the graph manifest for a graph."""
    rows: int | None = None
    fragments: int | None = None
    data_bytes: int | None = None
    """Data of the newest version."""
    dead_bytes: int | None = None
    """What is stored beyond it."""
    versions: int | None = None
    """How many versions are kept."""
    deleted_share: float | None = None
    """Rows that are deleted but still stored, of all."""
    unindexed_share: float | None = None
    """Rows that the worst index does not cover, of all."""
    score: int | None = None
    """Health, 0 to 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitWindow:
    """How long a unit kept its table armed: from writing the sidecar to the publish, in seconds."""

    unit: str
    """`fold`, `rewrite` or `fold+rewrite`."""
    seconds: float


def amplification(rewritten: int, ingested: int | None) -> float | None:
    """Bytes rewritten per byte ingested. Pure."""
    return round(rewritten / ingested, 3) if ingested else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What was done; for a run, over all tables and beside them."""

    fragments_removed: int = 0
    fragments_added: int = 0
    versions_removed: int = 0
    files_removed: int = 0
    """Orphans; what cleanup removes is counted in versions."""
    bytes_rewritten: int = 0
    bytes_ingested: int | None = None
    """What others added since the last run; None when that cannot be told."""
    bytes_reclaimed: int = 0
    """Bytes that cleanup and orphans deleted."""
    write_amplification: float | None = None
    """Bytes rewritten per byte ingested."""
    preempted: int | None = None
    """How often another writer was first and the work was planned again; None when that is not known."""

    @classmethod
    def of(cls, parts: Iterable[Work]) -> Work:
        """All of it as one; what no part can tell stays unknown. Pure."""
        works = tuple(parts)
        told = [w for w in works if w.bytes_ingested is not None]
        ingested = sum(w.bytes_ingested or 0 for w in told) if told else None
        preempted = [w.preempted for w in works if w.preempted is not None]
        return cls(
            fragments_removed=sum(w.fragments_removed for w in works),
            fragments_added=sum(w.fragments_added for w in works),
            versions_removed=sum(w.versions_removed for w in works),
            files_removed=sum(w.files_removed for w in works),
            bytes_rewritten=sum(w.bytes_rewritten for w in works),
            bytes_ingested=ingested,
            bytes_reclaimed=sum(w.bytes_reclaimed for w in works),
            write_amplification=amplification(sum(w.bytes_rewritten for w in told), ingested),
            preempted=sum(preempted) if preempted else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """One table in one run."""

    table_key: str
    outcome: RunOutcome
    stages: tuple[str, ...] = ()
    """The stages that did something to it."""
    reason: str = ""
    """Why nothing was done, as a token or a sentence."""
    error: str | None = None
    before: Measured = Measured()
    after: Measured = Measured()
    work: Work = Work()
    executor: str | None = None
    windows: tuple[UnitWindow, ...] = ()
    decisions: tuple[RunDecision, ...] = ()
    """About the plans that named this table."""

    @property
    def armed_seconds(self) -> float | None:
        """How long its units kept it armed, altogether; None when none ran. Pure."""
        return round(sum(w.seconds for w in self.windows), 4) if self.windows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """Which run it was: everything that is known before anything is done."""

    run_id: str
    """`<dag id>/<run id>`, or `cli/<host>:<pid>/<ulid>`."""
    origin: RunOrigin
    verb: str
    """The verb of the shell, or the stages of the DAG joined by `+`."""
    triggered_by: str
    started_at_us: int
    graph: str
    stamp: int
    """Generation of the graph, 0 for plain Lance."""
    tool_version: str
    dag_id: str | None = None
    dag_run_id: str | None = None
    logical_date_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts:
    """How many tables a run left in which state."""

    succeeded: int = 0
    failed: int = 0
    nothing_to_do: int = 0
    interrupted: int = 0
    """Tables that were being worked on when the run was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run: what every report, rendering and trend is made from."""

    record_id: str
    """A ULID, fresh for every writing of the record."""
    header: RunHeader
    ended_at_us: int
    outcome: RunOutcome
    errors: tuple[str, ...] = ()
    attention: tuple[str, ...] = ()
    """What a person should look at although nothing failed."""
    notes: tuple[str, ...] = ()
    """What was done that no figure tells."""
    counts: TableCounts = TableCounts()
    before: Measured = Measured()
    after: Measured = Measured()
    """The graph as a whole."""
    work: Work = Work()
    decisions: tuple[RunDecision, ...] = ()
    tables: tuple[TableRecord, ...] = ()
    """By key; empty where only runs were read."""

    @property
    def run_id(self) -> str:
        return self.header.run_id

    @property
    def seconds(self) -> float:
        """How long the run took. Pure."""
        return round((self.ended_at_us - self.header.started_at_us) / 1e6, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTrendPoint:
    """One run in the life of a table."""

    run_id: str
    started_at_us: int
    ended_at_us: int
    verb: str
    table: TableRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledRun:
    """A run without a record yet."""

    header: RunHeader
    at_work: bool
    """Whether its process may be alive; otherwise it was interrupted, and the next run that may write records it."""
    units: int
    """How many units it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryList:
    """Runs of a graph, newest first."""

    uri: str
    runs: tuple[RunRecord, ...]
    unsettled: tuple[UnsettledRun, ...] = ()
    """Oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTrend:
    """One table over its runs, newest first."""

    uri: str
    table_key: str
    points: tuple[TableTrendPoint, ...]

"""What is seen of a graph: what its tables cost readers, what is in the way; what recover did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph_ops.models.outcomes import Outcome, StageReport, TableOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPart:
    """One reason for lost points."""

    name: str
    """`fragments`, `deletions`, `unindexed`, `versions` or `dead_bytes`."""
    points: float
    """What it takes off the score."""
    most: int
    """What it could take at worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorHealth:
    """One vector index. What queries find and read is None where nobody asked for it."""

    name: str
    column: str
    kind: str
    """As in `IVF_FLAT`; `unreadable` where its files are damaged or gone."""
    metric: str
    partitions: int
    recommended: int
    """Lance's own recommendation: one for every 4,096 rows."""
    rows: int
    smallest: int
    largest: int
    """Rows of the smallest and the largest partition."""
    segments: int
    uncovered_rows: int
    size_bytes: int
    problem: str | None = None
    """Why `--retrain-vectors` would build it anew."""
    dead_entries: bool = False
    """Whether entries of rows that are gone take the places of others in answers."""
    recall: float | None = None
    """The share of the ten nearest vectors that a query finds, at the engine's settings."""
    recall_at_1: float | None = None
    """How often a query for one neighbour finds the nearest: of several partitions the engine reads one for it."""
    recall_error: str | None = None
    """Why the queries that measure it failed."""
    bytes_per_query: int | None = None
    """Read with cold caches."""
    partitions_per_query: float | None = None
    drift: float | None = None
    """Distance to the nearest centroid, against that of centroids trained now: 1 is as good as new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """One table: 100 is as good as maintenance can make it. Shares are between 0 and 1."""

    table_key: str
    score: int | None = None
    """None when the table could not be looked at."""
    parts: tuple[HealthPart, ...] = ()
    rows: int = 0
    fragments: int = 0
    small_fragments: int = 0
    """Those below the target size."""
    cutoff: int = 0
    """The bound on small fragments that `--auto` acts on."""
    data_bytes: int = 0
    small_share: float = 0.0
    """Bytes in fragments below the target size, of all; nothing when there is only one of them."""
    deleted_share: float = 0.0
    unindexed_share: float = 0.0
    """Rows that the worst index does not cover; all of them when a declared index is missing."""
    worst_index: str | None = None
    versions: int = 0
    dead_bytes: int | None = None
    """Stored data and index bytes that the newest version does not use; None where that cannot be told."""
    maintained_at_us: int | None = None
    """When this tool last committed to it; None when that is not known."""
    vectors: tuple[VectorHealth, ...] = ()
    note: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalHealth:
    """What an internal table stores, with all its branches. Every publish adds to it."""

    table_key: str
    versions: int
    """Of its main chain."""
    fragments: int
    """Of the newest version."""
    files: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionGap:
    """A published version of a table that nobody can read whole, or that could not be looked at."""

    table_key: str
    branches: tuple[str, ...]
    """The graph branches that publish it, `main` among them."""
    version: int | None
    """None where the branch itself cannot be read."""
    lacks: str
    """What of it is gone, or why that cannot be told, for a person."""
    is_unknown: bool = False
    """Whether it could not be looked at."""
    is_rebuildable: bool = False
    """Whether only index files of main are gone: `optimize` builds these indexes anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """Every maintained table, worst first; those that could not be looked at come before all others."""

    uri: str
    stamp: int
    graph_version: int
    score: int | None
    """The mean over the tables by their bytes; None when none could be looked at."""
    tables: tuple[TableHealth, ...]
    internal: tuple[InternalHealth, ...] = ()
    """None where tables were named."""
    gaps: tuple[VersionGap, ...] | None = None
    """None where nobody asked whether every file is there."""


class CheckStatus(StrEnum):
    """What `check` found, with its exit code: 0 clean, 3 recover settles it, 4 a person is needed."""

    CLEAN = "clean"
    DRIFTED = "drifted"
    """Nothing is pending, and a table is ahead of what is published: a person repairs it; the others are maintained."""
    PENDING = "pending"
    NEEDS_PERSON = "needs_person"

    @property
    def exit_code(self) -> int:
        return {"clean": 0, "drifted": 4, "pending": 3, "needs_person": 4}[self.value]

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in flight or left behind that other runs have to wait for. Pure."""
        return self in {CheckStatus.CLEAN, CheckStatus.DRIFTED}


class SidecarClass(StrEnum):
    """What a read-write open by the engine would do with a recovery sidecar."""

    ROLL_FORWARD = "roll_forward"
    ROLL_BACK = "roll_back"
    STALE = "stale"
    ORPHANED_BRANCH = "orphaned_branch"
    UNREADABLE = "unreadable"
    """What it names cannot be read, for now or for good."""
    NEEDS_REVIEW = "needs_review"


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFinding:
    """One recovery sidecar and what can be done about it."""

    operation_id: str
    path: str
    writer_kind: str
    branch: str | None
    table_keys: tuple[str, ...]
    started_at_us: int | None
    classification: SidecarClass
    recoverable: bool
    """Whether `recover` finishes or undoes it."""
    detail: str
    refused_by_engine: bool = False
    """Whether an open by the engine fails or does harm, so that only a person goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding:
    """A table whose Lance HEAD is not its pin, or cannot be read."""

    table_key: str
    manifest_version: int
    lance_head_version: int
    """0 where it cannot be read."""
    covered: bool
    """A recovery sidecar names this table."""
    recoverable: bool = False
    """Only commits of this tool moved it, proven to change no row: `recover` publishes them. Or only
    deletes, restores and merges that the engine committed and never published: `recover` rolls them back."""
    problem: str | None = None
    """Why the HEAD cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFinding:
    """A table of a named branch that the engine cannot read or write there, or Lance does not list; main is whole."""

    branch: str
    table_key: str
    manifest_version: int
    lance_head_version: int | None
    """None where the published version is gone, or the branch was made or deleted by half."""
    recoverable: bool = False
    """Whether `recover` rolls back what was never published, or settles what was made by half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What stands between this graph and maintenance."""

    uri: str
    stamp: int
    status: CheckStatus
    sidecars: tuple[SidecarFinding, ...]
    staging_files: tuple[str, ...]
    schema_apply_lock: bool
    drift: tuple[DriftFinding, ...]
    advice: tuple[str, ...]
    branch_findings: tuple[BranchFinding, ...] = ()
    schema_mismatch: tuple[str, ...] = ()
    """Tables that either the accepted schema or the graph manifest does not know."""
    damaged: tuple[str, ...] = ()
    """Internal datasets that cannot be read, a sentence each."""

    @property
    def has_unreadable(self) -> bool:
        """Whether something could not be read: another look may, where only the store had trouble."""
        return bool(self.damaged) or any(s.classification is SidecarClass.UNREADABLE for s in self.sidecars)

    @property
    def has_recoverable(self) -> bool:
        """Whether `recover` settles anything of it, whatever else there is."""
        return any(s.recoverable for s in self.sidecars) or any(f.recoverable for f in self.branch_findings)


FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOutcome:
    """What `recover` did with one sidecar, or with one table that is ahead of its pin without one."""

    operation_id: str = ""
    table_key: str = ""
    action: str
    """`rolled_forward`, `rolled_back`, `stale`, `deferred` (too young, or frozen), `left_to_engine`, `failed`;
    of a lineage `relinked`."""
    from_version: int | None = None
    to_version: int | None = None
    detail: str = ""

    @property
    def is_recovered(self) -> bool:
        """Whether it changed anything. Pure."""
        return self.action in {"rolled_forward", "rolled_back", "stale", "fence_lifted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverReport(StageReport):
    """All sidecars that `recover` looked at."""

    stage = "recover"
    uri: str
    outcomes: tuple[RecoveryOutcome, ...]
    status: CheckStatus
    """The state afterwards."""

    @classmethod
    def of_unit(cls, uri: str, outcome: RecoveryOutcome) -> RecoverReport:
        """What was done with one of them. Pure."""
        return cls(uri=uri, outcomes=(outcome,), status=CheckStatus.PENDING)

    def outcome(self, plan: object = None) -> Outcome:
        """No approval, so nothing for the audit log. Pure."""
        changed = any(done.is_recovered for done in self.outcomes)
        return Outcome(stage=self.stage, detail="", changed=changed, tables=tuple(self._tables()))

    def then(self, later: RecoverReport) -> RecoverReport:
        return replace(later, outcomes=(*self.outcomes, *later.outcomes))

    @property
    def left_undone(self) -> str:
        return "" if self.status.is_settled else f"recover left the graph {self.status.value}"

    def _tables(self) -> Iterator[TableOutcome]:
        """One row for each table, which may have had several sidecars. Pure."""
        found: dict[str, list[RecoveryOutcome]] = {}
        for sidecar in self.outcomes:
            if sidecar.table_key:
                found.setdefault(sidecar.table_key, []).append(sidecar)
        for key, done in found.items():
            waiting = [o.detail or o.action for o in done if not o.is_recovered]
            reason = next((reason for reason in waiting if reason), "")
            yield TableOutcome(table_key=key, changed=len(waiting) < len(done), reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockReport:
    """What `unlock` found, and with `confirm` removed."""

    uri: str
    confirm: bool
    locked: bool
    """A schema-apply lock was there."""
    holder: str | None = None
    """Whose fence it is, as a sentence; None where a schema apply of an engine raised it."""

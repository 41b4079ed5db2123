"""What is allowed to go: versions by cleanup, rows by row retention. Policies, plans, statistics, reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

SHORTEST_AGE_SECONDS = 3600
"""A version younger than this may still be read, and goes by its age only on an explicit demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotExpiry:
    """Snapshot expiry in the terms of Apache Paimon, per table; a version is a snapshot."""

    retain_min: int = 10
    """The newest so many versions stay, whatever their age; at least 1."""
    retain_max: int | None = None
    """Versions beyond the newest so many go, whatever their age; None: no bound."""
    time_retained_secs: int = SHORTEST_AGE_SECONDS
    """Between the two, versions that are at least this old go."""
    expire_limit: int = 10
    """At most so many versions of a table go in one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Which versions may go: by count and age, or by snapshot expiry; never both.

    `keep_versions` newest versions and everything younger than `older_than_secs` stay; at least one of
    them must be set, and with both a version goes only if both agree.
    """

    keep_versions: int | None = None
    older_than_secs: int | None = None
    expiry: SnapshotExpiry | None = None
    between_pins: bool = False
    """Also remove versions above the lowest pin of a branch that nothing protects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One file that a plan removes."""

    path: str
    """Relative to the graph."""
    size: int
    """Bytes."""
    kind: str
    """What Lance says it is: `data`, `manifest`, `transaction`, `index`, `deletion`; `fork` in a fork's tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedVersion:
    """A version that cleanup must not remove, and every reason why."""

    version: int
    reasons: tuple[str, ...]


UNREADABLE = "the table cannot be read: "
"""What the refusal of a damaged table begins with. Not a field: every field of a plan is part of its digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCleanupPlan:
    """Exactly which versions of one table go, and what holds the others."""

    table_key: str
    table_path: str
    pinned_version: int
    lance_head_version: int
    versions: tuple[int, ...]
    """Versions to remove, ascending."""
    protected: tuple[ProtectedVersion, ...] = ()
    between_pins: bool = False
    """Whether versions above the lowest pin of a branch are among them."""
    blocked_by: str | None = None
    """What stopped the range short of the policy, if anything."""
    estimated_bytes: int = 0
    files: tuple[PlannedFile, ...] = ()
    """Every file that goes with those versions, by path; nothing else is ever deleted."""
    refused: str | None = None
    """Why this table may not be cleaned at all; then `versions` is empty."""

    @property
    def is_damaged(self) -> bool:
        """Whether it is refused for a fault of its own: not for a freeze, drift, a clone or another branch. Pure."""
        return self.refused is not None and self.refused.startswith(UNREADABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedFork:
    """A Lance branch of a table that no graph branch places there any more."""

    table_key: str
    """`_graph_commits` for the commit graph of stamp 3."""
    table_path: str
    branch: str
    files: tuple[PlannedFile, ...] = ()
    """Everything below the fork's own folder, by path."""
    error: str | None = None
    """Why it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """What cleanup will delete; `digest` binds an approval to exactly this."""

    uri: str
    stamp: int
    policy: RetentionPolicy
    planned_at_us: int
    expires_at_us: int
    """Microseconds since the epoch; nobody may apply the plan later."""
    tables: tuple[TableCleanupPlan, ...]
    orphaned_forks: tuple[OrphanedFork, ...]
    kept_forks: tuple[OrphanedFork, ...] = ()
    """Orphaned forks that a tag or a hold keeps, with the reason as their `error`."""
    digest: str

    @property
    def total_versions(self) -> int:
        return sum(len(t.versions) for t in self.tables)

    @property
    def total_bytes(self) -> int:
        return sum(t.estimated_bytes for t in self.tables) + sum(
            f.size for fork in self.orphaned_forks for f in fork.files
        )

    @property
    def total_files(self) -> int:
        forks = sum(len(f.files) for f in self.orphaned_forks)
        return sum(len(t.files) for t in self.tables) + forks

    @property
    def is_empty(self) -> bool:
        """Whether it would remove nothing at all."""
        return not self.total_versions and not self.orphaned_forks


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupStats:
    """Outcome of cleanup for one table; the first four fields are the engine's."""

    table_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None
    versions: tuple[int, ...] = ()
    skipped_since_protected: tuple[int, ...] = ()
    already_gone: int = 0
    """Approved versions that somebody else had removed."""

    @property
    def not_removed(self) -> str:
        """What became of the approved versions that this run did not remove; empty when there are none. Pure."""
        gone = f"{self.already_gone:,} already gone" if self.already_gone else ""
        kept = f"{len(self.skipped_since_protected):,} protected since" if self.skipped_since_protected else ""
        return ", ".join(filter(None, (gone, kept)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """All tables of one cleanup run."""

    uri: str
    keep_versions: int | None
    older_than_secs: int | None
    tables: tuple[CleanupStats, ...]
    expiry: SnapshotExpiry | None = None
    versions_removed: int = 0
    """Over all tables; what snapshot expiry calls the number expired."""
    orphaned_forks_removed: tuple[OrphanedFork, ...] = ()
    orphaned_forks_failed: tuple[OrphanedFork, ...] = ()

    @classmethod
    def of(
        cls, uri: str, policy: RetentionPolicy, tables: Sequence[CleanupStats], forks: Sequence[OrphanedFork]
    ) -> CleanupReport:
        """The report of what was removed by a policy. Pure."""
        return cls(
            uri=uri,
            keep_versions=policy.keep_versions,
            older_than_secs=policy.older_than_secs,
            expiry=policy.expiry,
            tables=tuple(tables),
            versions_removed=sum(table.old_versions_removed for table in tables),
            orphaned_forks_removed=tuple(fork for fork in forks if fork.error is None),
            orphaned_forks_failed=tuple(fork for fork in forks if fork.error is not None),
        )

    @property
    def forks(self) -> tuple[OrphanedFork, ...]:
        """The orphaned forks that were to go, those that stayed last. Pure."""
        return (*self.orphaned_forks_removed, *self.orphaned_forks_failed)

    @property
    def failed(self) -> tuple[CleanupStats, ...]:
        return tuple(t for t in self.tables if t.error is not None)

    @property
    def policy(self) -> RetentionPolicy:
        """What it went by, as far as the report tells: not whether also between pins. Pure."""
        return RetentionPolicy(
            keep_versions=self.keep_versions, older_than_secs=self.older_than_secs, expiry=self.expiry
        )


class EpochUnit(StrEnum):
    """What an integer column counts since 1970."""

    S = "s"
    MS = "ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPolicy:
    """Rows of one table whose property is older than an age go; a null never does."""

    table_key: str
    property: str
    older_than_secs: int
    unit: EpochUnit | None = None
    """Only for an integer property, and needed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBounds:
    """How much of one table a run may take."""

    max_share: float = 0.5
    """Of the rows of the table; a table that would lose more is refused."""
    max_rows: int | None = None
    """Rows of one table; None: as many as the plan counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRows:
    """Edges of one table that go, or went, with the nodes at one of their ends."""

    table_key: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRowPlan:
    """What expires in one table, counted at one published version."""

    policy: RowPolicy
    table_key: str
    cut: int
    """In units of the column: a row goes when its value is below. Fixed here, never moved."""
    cut_at_us: int
    """The same moment in microseconds since the epoch."""
    manifest_version: int
    """The version of the table that was counted."""
    lance_branch: str | None = None
    """The Lance branch that has that version, None for the table's main chain."""
    lifetime: str = ""
    """A digest of the table and its properties; another table or property with the same name has another one."""
    rows: int = 0
    expired: int = 0
    max_rows: int = 0
    """More than these are never deleted."""
    oldest_us: int | None = None
    newest_us: int | None = None
    sample: tuple[str, ...] = ()
    """Keys of some expired rows."""
    edges: tuple[EdgeRows, ...] = ()
    refused: str | None = None

    @property
    def share(self) -> float:
        """Of the rows of the table. Pure."""
        return self.expired / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRetentionPlan:
    """Which rows expire, table by table, bound to a digest."""

    uri: str
    stamp: int
    branch: str | None
    """None for main, and for plain Lance."""
    branch_lifetime: tuple[tuple[int, str], ...] = ()
    """Lance's identifier of the branch; another branch with the same name has another one. Empty for main."""
    planned_at_us: int
    expires_at_us: int
    max_share: float
    tables: tuple[TableRowPlan, ...]
    digest: str

    @property
    def total_rows(self) -> int:
        """Rows that go, without the edges that go with them. Pure."""
        return sum(t.expired for t in self.tables if t.refused is None)

    @property
    def total_edges(self) -> int:
        """Edges that go with nodes. Pure."""
        return sum(e.rows for t in self.tables if t.refused is None for e in t.edges)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRowStats:
    """What an apply did to one table; counts are of what a reader sees, not of what a writer said."""

    table_key: str
    rows_removed: int = 0
    edges: tuple[EdgeRows, ...] = ()
    rows_left: int = 0
    """Rows below the cut now: they came while the run was at work, or the run failed."""
    attempts: int = 0
    manifest_version: int | None = None
    """The published version afterwards."""
    refused: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRetentionReport:
    """All tables of one apply."""

    uri: str
    branch: str | None
    digest: str
    tables: tuple[TableRowStats, ...]

    @property
    def rows_removed(self) -> int:
        return sum(t.rows_removed for t in self.tables)

    @property
    def edges_removed(self) -> int:
        return sum(e.rows for t in self.tables for e in t.edges)

    @property
    def failed(self) -> tuple[TableRowStats, ...]:
        """Tables with an error; a refused one was left alone on purpose. Pure."""
        return tuple(t for t in self.tables if t.error is not None)

"""Cleanup: policies, plans, statistics, reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """`keep_versions` newest versions and everything younger than `older_than_secs` stay.

    At least one must be set; with both, a version goes only if both agree.
    """

    keep_versions: int | None = None
    older_than_secs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedVersion:
    """A version that cleanup must not remove, and every reason why."""

    version: int
    reasons: tuple[str, ...]


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
    blocked_by: str | None = None
    """What stopped the range short of the policy, if anything."""
    estimated_bytes: int = 0
    refused: str | None = None
    """Why this table may not be cleaned at all; then `versions` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedFork:
    """A Lance branch of a table that no graph branch places there any more."""

    table_key: str
    """`_graph_commits` for the commit graph of stamp 3."""
    table_path: str
    branch: str
    error: str | None = None
    """Why it could not be removed; never set in a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """What cleanup will delete; `digest` binds an approval to exactly this."""

    uri: str
    stamp: int
    policy: RetentionPolicy
    planned_at_us: int
    tables: tuple[TableCleanupPlan, ...]
    orphaned_forks: tuple[OrphanedFork, ...]
    digest: str

    @property
    def total_versions(self) -> int:
        return sum(len(t.versions) for t in self.tables)

    @property
    def total_bytes(self) -> int:
        return sum(t.estimated_bytes for t in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupStats:
    """Outcome of cleanup for one table; the first four fields are the engine's."""

    table_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None
    versions: tuple[int, ...] = ()
    skipped_since_protected: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """All tables of one cleanup run."""

    uri: str
    keep_versions: int | None
    older_than_secs: int | None
    tables: tuple[CleanupStats, ...]
    orphaned_forks_removed: tuple[OrphanedFork, ...] = ()
    orphaned_forks_failed: tuple[OrphanedFork, ...] = ()

    @property
    def failed(self) -> tuple[CleanupStats, ...]:
        return tuple(t for t in self.tables if t.error is not None)

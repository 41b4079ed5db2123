"""Versions that cleanup removes: policies, plans, statistics, reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.errors import tells_of_no_space
from omnigraph_ops.models.history import Measured, Work
from omnigraph_ops.models.outcomes import (
    Outcome,
    StagePlan,
    TableOutcome,
    TablePlanned,
    TablesReport,
    by_table,
    merged_by,
)
from omnigraph_ops.quantities import count, human_bytes

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

    def __str__(self) -> str:
        most = "" if self.retain_max is None else f" and at most {self.retain_max}"
        return (
            f"expire at most {self.expire_limit} versions per table, retain at least {self.retain_min}{most}, "
            f"time retained {self.time_retained_secs}s"
        )


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

    def __str__(self) -> str:
        """The policy in the engine's words. Pure."""
        parts = []
        if self.keep_versions is not None:
            parts.append(f"keep {self.keep_versions} versions")
        if self.older_than_secs is not None:
            parts.append(f"remove anything older than {f'{self.older_than_secs}s' if self.older_than_secs else '0ns'}")
        if self.expiry is not None:
            parts.append(str(self.expiry))
        if self.between_pins:
            parts.append("also between pins")
        return ", ".join(parts)


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

    def outcome(self) -> TableOutcome:
        """In the terms of the history. Pure."""
        gone = self.error is None
        return TableOutcome(
            table_key=self.table_key,
            work=Work(bytes_reclaimed=sum(file.size for file in self.files) if gone else 0),
            changed=gone,
            error=None if gone else f"fork {self.branch}: {self.error}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan(StagePlan):
    """What cleanup will delete; `digest` binds an approval to exactly this."""

    stage = "cleanup"
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

    def by_table(self) -> Iterator[TablePlanned]:
        for table in self.tables:
            before = Measured(version=table.pinned_version)
            found = f"{count(len(table.versions), 'version')}, {human_bytes(table.estimated_bytes)}"
            asked = found if table.versions else ""
            yield TablePlanned(table_key=table.table_key, before=before, reason=table.refused or "", asked=asked)
        for fork in self.orphaned_forks:
            yield TablePlanned(table_key=fork.table_key, asked=f"orphaned fork {fork.branch}")

    @property
    def total_versions(self) -> int:
        return sum(len(t.versions) for t in self.tables)

    @property
    def total_bytes(self) -> int:
        return sum(t.estimated_bytes for t in self.tables) + sum(
            f.size for fork in self.orphaned_forks for f in fork.files
        )

    @property
    def files(self) -> tuple[PlannedFile, ...]:
        """Every file that goes, those of forks last. Pure."""
        rows: tuple[TableCleanupPlan | OrphanedFork, ...] = (*self.tables, *self.orphaned_forks)
        return tuple(file for row in rows for file in row.files)

    @property
    def total_files(self) -> int:
        return len(self.files)

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
    kept: str | None = None
    """Why nothing of the table was removed: it was frozen, dropped or renamed since the plan. Null: it was not."""

    @property
    def not_removed(self) -> str:
        """What became of the approved versions that this run did not remove; empty when there are none. Pure."""
        gone = f"{self.already_gone:,} already gone" if self.already_gone else ""
        kept = f"{len(self.skipped_since_protected):,} protected since" if self.skipped_since_protected else ""
        return ", ".join(filter(None, (gone, kept, f"kept: {self.kept}" if self.kept else "")))

    @property
    def found_no_space(self) -> bool:
        """Whether a full disk kept the run from removing anything. Pure."""
        return not self.old_versions_removed and tells_of_no_space(self.error or "")

    def outcome(self) -> TableOutcome:
        """In the terms of the history. Pure."""
        return TableOutcome(
            table_key=self.table_key,
            work=Work(versions_removed=self.old_versions_removed, bytes_reclaimed=self.bytes_removed),
            changed=bool(self.old_versions_removed),
            error=self.error or None,
            reason=self.kept or "",
        )

    def then(self, later: CleanupStats) -> CleanupStats:
        """It and a later one of the table. Pure."""
        return replace(
            later,
            bytes_removed=self.bytes_removed + later.bytes_removed,
            old_versions_removed=self.old_versions_removed + later.old_versions_removed,
            versions=tuple(sorted({*self.versions, *later.versions})),
            # What the first attempt removed is no longer there for the second, which saw nothing where it failed.
            already_gone=max(self.already_gone, later.already_gone - self.old_versions_removed),
            skipped_since_protected=(self if later.error else later).skipped_since_protected,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport(TablesReport[CleanupStats]):
    """All tables of one cleanup run."""

    stage = "cleanup"
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
        cls,
        uri: str,
        policy: RetentionPolicy,
        tables: Sequence[CleanupStats] = (),
        forks: Sequence[OrphanedFork] = (),
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
    def policy(self) -> RetentionPolicy:
        """What it went by, as far as the report tells: not whether also between pins. Pure."""
        return RetentionPolicy(
            keep_versions=self.keep_versions, older_than_secs=self.older_than_secs, expiry=self.expiry
        )

    def outcome(self, plan: CleanupPlan | None = None) -> Outcome:
        """What came of it; the policy is that of the plan, as it was approved. Pure."""
        stuck, failed = len(self.orphaned_forks_failed), len(self.failed)
        problem = ""
        if stuck:
            problem = (
                f"{count(stuck, 'orphaned fork')} could not be removed, no live branch is affected; run cleanup again"
            )
        elif failed:
            problem = (
                f"cleanup failed for {failed:,} of {count(len(self.tables), 'table')}, nothing else is affected; "
                "resolve what their rows say and run cleanup again"
            )
        rows = [*(table.outcome() for table in self.tables), *(fork.outcome() for fork in self.forks)]
        return Outcome(
            stage=self.stage,
            detail=self._detail() if plan is None else f"{self._detail()}; {plan.policy}",
            changed=any(row.changed for row in rows),
            problem=problem,
            asks_by_plan=True,
            tables=by_table(rows, _with_fork),
        )

    def with_tables(self, tables: Iterable[CleanupStats]) -> CleanupReport:
        return CleanupReport.of(self.uri, self.policy, tuple(tables), self.forks)

    def without_failures(self) -> CleanupReport:
        return TablesReport.without_failures(self)._with_forks(self.orphaned_forks_removed)

    def _with_forks(self, forks: Iterable[OrphanedFork]) -> CleanupReport:
        """With one row for each fork: that it was removed, if any says so. Pure."""
        each = merged_by(forks, lambda fork: (fork.table_key, fork.branch), lambda a, b: b if a.error else a)
        return CleanupReport.of(self.uri, self.policy, self.tables, each)

    def then(self, later: CleanupReport) -> CleanupReport:
        return TablesReport.then(self, later)._with_forks((*self.forks, *later.forks))

    def with_units(self, told: CleanupReport) -> CleanupReport:
        return TablesReport.with_units(self, told)._with_forks((*told.forks, *self.forks))

    def _detail(self) -> str:
        forks, stuck, failed = len(self.orphaned_forks_removed), len(self.orphaned_forks_failed), len(self.failed)
        removed = sum(t.old_versions_removed for t in self.tables)
        done = f"{count(removed, 'version')} and {count(forks, 'fork')} removed, {failed + stuck} failed"
        gone = sum(t.already_gone for t in self.tables)
        spared = sum(len(t.skipped_since_protected) for t in self.tables)
        # What was approved of a table that failed is not in its row.
        of = "" if failed else f" of the {removed + gone + spared}"
        done += f"; {gone}{of} approved versions were already gone" if gone else ""
        frozen = sum(t.kept is not None for t in self.tables)
        later = "kept, frozen after the plan was made; carry the plan out again after the freeze"
        done += f"; {count(frozen, 'table')} {later}" if frozen else ""
        return done + (f"; {spared}{of} approved versions stay, because they are protected since" if spared else "")


def _with_fork(table: TableOutcome, fork: TableOutcome) -> TableOutcome:
    """One row for a table and a fork of it, with the first that failed. Pure."""
    return replace(
        table,
        work=Work.of((table.work, fork.work)),
        changed=table.changed or fork.changed,
        error=fork.error if table.error is None else table.error,
    )

"""Orphans: unreferenced files, what was found beside them, plans, reports and quarantines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph_ops.models.history import Work
from omnigraph_ops.models.outcomes import Outcome, StageReport
from omnigraph_ops.quantities import count

SAFE_AGE_SECONDS = 7 * 86_400
"""A younger file may belong to a long write, and goes only on an explicit demand."""


class OrphanKind(StrEnum):
    """What an orphan was part of."""

    DATA = "data"
    BLOB = "blob"
    DELETION = "deletion"
    INDEX = "index"
    TRANSACTION = "transaction"
    TEMPORARY = "temporary"
    """A half-written file of a killed writer."""
    DEAD_BRANCH = "dead branch"
    """A Lance branch that Lance itself no longer lists."""
    DROPPED_TABLE = "dropped table"
    """A dataset that no live branch and no retained graph version reaches."""
    OWN_STATE = "own state"
    """Journals and holds of this tool that ended long ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFile:
    """One file to remove; size and time are its identity when the plan is applied."""

    path: str
    """Graph-relative."""
    size: int
    modified_at: float
    """Seconds since the epoch; whole seconds on S3."""
    kind: OrphanKind


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFile:
    """A file that is no part of any known layout: reported, never removed."""

    path: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedDataset:
    """A dataset that is left out, and why: nothing goes, or only dead branches where an optimize is at work on it."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanGroup:
    """A dropped dataset or a dead branch: it goes as a whole, or stays for the reason in `kept`."""

    path: str
    """Graph-relative folder."""
    kind: OrphanKind
    files: int
    bytes: int
    kept: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTotal:
    """How much of one kind goes from one place."""

    path: str
    """A dataset, a dead branch or a folder of the graph."""
    kind: OrphanKind
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPart:
    """One Parquet file with files of a plan: `path`, `size`, `modified_at`, `kind`, `group`."""

    name: str
    rows: int
    sha256: str
    """Of the Parquet file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesInParts:
    """The files of a plan that are in Parquet files in the graph, because they may be many.

    A row with a `group` belongs to the plan only if that group goes.
    """

    folder: str
    """Relative to the graph."""
    parts: tuple[PlanPart, ...]
    places: tuple[PlaceTotal, ...]
    """What goes, largest first."""
    sample: tuple[OrphanFile, ...]
    """Some of the files, for a person."""
    unknown: int
    """Unknown files; the plan names the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphansPlan:
    """What `orphans` will remove, and whether that can be undone; `digest` binds an approval to exactly this."""

    uri: str
    stamp: int
    older_than_secs: int
    quarantine: bool
    """The files are moved aside, where they can be brought back from; else they are deleted for good."""
    planned_at_us: int
    expires_at_us: int
    cutoff: float
    """Only files modified before this moment (seconds since the epoch) are candidates."""
    files: tuple[OrphanFile, ...]
    """Empty when they are in parts."""
    folders: tuple[str, ...]
    """Empty folders of a local graph, children first."""
    groups: tuple[OrphanGroup, ...]
    unknown: tuple[UnknownFile, ...]
    skipped: tuple[SkippedDataset, ...]
    held_back: tuple[str, ...] = ()
    """Holds that move the cutoff."""
    listed_files: int = 0
    listed_bytes: int = 0
    young_files: int = 0
    """Unreferenced, but not old enough."""
    young_bytes: int = 0
    listing: str | None = None
    """The inventory file that was read instead of the store."""
    foreign_rows: int = 0
    """Rows of that file that are outside of the graph."""
    missing_rows: int = 0
    """Referenced files that it does not have: it is incomplete by at least so many."""
    parts: FilesInParts | None = None
    """Where the files are that Spark planned; None: they are in `files`."""
    digest: str = ""

    @property
    def total_files(self) -> int:
        return len(self.files) if self.parts is None else sum(p.files for p in self.parts.places)

    @property
    def total_bytes(self) -> int:
        return sum(f.size for f in self.files) if self.parts is None else sum(p.bytes for p in self.parts.places)

    @property
    def shown_files(self) -> tuple[OrphanFile, ...]:
        """All files, or a sample of very many."""
        return self.files if self.parts is None else self.parts.sample

    @property
    def unknown_files(self) -> int:
        return len(self.unknown) if self.parts is None else self.parts.unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SparedFile:
    """A planned file that was left where it is, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphansReport(StageReport):
    """Outcome of applying a plan."""

    stage = "orphans"
    uri: str
    digest: str
    quarantine_id: str | None
    """Where the files went, None when they were deleted."""
    files_removed: int = 0
    bytes_removed: int = 0
    folders_removed: int = 0
    already_gone: int = 0
    spared: tuple[SparedFile, ...] = ()
    failed: tuple[SparedFile, ...] = ()

    def outcome(self, plan: object = None) -> Outcome:
        failed, kept = len(self.failed), self.quarantine_id is not None
        done = f"moved to quarantine {self.quarantine_id}" if self.quarantine_id else "deleted for good"
        return Outcome(
            stage=self.stage,
            detail=f"{self.files_removed} files and {self.bytes_removed} bytes {done}, "
            f"{len(self.spared)} spared, {failed} failed",
            applied=not failed,
            changed=bool(self.files_removed or self.folders_removed),
            problem=f"{count(failed, 'file')} could not be removed, nothing that is needed was touched; run orphans "
            "again"
            if failed
            else "",
            errors=_each(self.failed),
            # Files that were only moved aside still cost their bytes.
            work=Work(files_removed=self.files_removed, bytes_reclaimed=0 if kept else self.bytes_removed),
        )

    def then(self, later: OrphansReport) -> OrphansReport:
        return replace(
            later,
            # One that moved nothing took its empty quarantine back.
            quarantine_id=later.quarantine_id or self.quarantine_id,
            files_removed=self.files_removed + later.files_removed,
            bytes_removed=self.bytes_removed + later.bytes_removed,
            folders_removed=self.folders_removed + later.folders_removed,
        )


def _each(failed: Iterable[SparedFile]) -> tuple[str, ...]:
    return tuple(f"{file.path}: {file.reason}" for file in failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRecord:
    """What one run of `orphans --quarantine` set out to move, written before the first move."""

    quarantine_id: str
    uri: str
    digest: str
    created_at_us: int
    files: tuple[OrphanFile, ...]
    parts: FilesInParts | None = None
    """Copies of the parts of its plan, below the quarantine, and the groups that went."""
    groups: tuple[OrphanGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineSummary:
    """One quarantine as it is now."""

    quarantine_id: str
    created_at_us: int
    digest: str
    files: int
    bytes: int
    problem: str | None = None
    """Why it can be neither restored nor purged by name, and what to do; its digest is empty then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineList:
    """Every quarantine of a graph, oldest first."""

    uri: str
    quarantines: tuple[QuarantineSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReport(StageReport):
    """Outcome of bringing a quarantine back, or of emptying it."""

    stage = "quarantine"
    uri: str
    quarantine_id: str
    digest: str
    """Of the plan that filled it."""
    action: str
    """`restored`, `purged` or `preview`."""
    files: int
    bytes: int
    failed: tuple[SparedFile, ...] = ()

    def outcome(self, plan: object = None) -> Outcome:
        failed = len(self.failed)
        return Outcome(
            stage=self.stage,
            detail=f"quarantine {self.quarantine_id} {self.action}: {self.files} files, {failed} failed",
            applied=not failed,
            changed=bool(self.files),
            problem=f"the quarantine keeps {count(failed, 'file')}; see why in the report" if failed else "",
            errors=_each(self.failed),
            work=Work(files_removed=self.files, bytes_reclaimed=self.bytes) if self.action == "purged" else Work(),
        )

    def then(self, later: QuarantineReport) -> QuarantineReport:
        return replace(later, files=self.files + later.files, bytes=self.bytes + later.bytes)

    @property
    def is_preview(self) -> bool:
        return self.action == "preview"

    @property
    def audited_as(self) -> str:
        return "" if self.is_preview else self.digest

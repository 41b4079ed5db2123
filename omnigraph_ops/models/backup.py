"""Backups: what one consists of, how it was made, and what verifying, restoring and listing them report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from omnigraph_ops.models.freeze import CutFile, CutFileKind, FrozenBranch
from omnigraph_ops.models.outcomes import Outcome, StageReport
from omnigraph_ops.quantities import human_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedFile:
    """One file of a backup."""

    file: str
    """Where it belongs, relative to the root of the graph, and where it is below `files/`."""
    size: int
    kind: CutFileKind
    records_root: bool = False
    """A restore under another root has to rewrite it."""
    checksum: str | None = None
    """`sha256:…`; None where the store copied it by itself and nobody asked for checksums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Files and their bytes."""

    files: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, files: Iterable[CutFile | BackedFile]) -> Tally:
        """How many files and bytes these are. Pure."""
        sizes = [file.size for file in files]
        return cls(files=len(sizes), bytes=sum(sizes))

    def __add__(self, other: Tally) -> Tally:
        return Tally(files=self.files + other.files, bytes=self.bytes + other.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRoot:
    """A root that files of the backup record, and which place of the graph that is."""

    recorded: str
    place: str | None
    """None: outside of the graph, where nothing of the backup was; it stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """How many rows one published version of a table has."""

    branch: str | None
    """The graph branch that publishes it, None for main and for plain Lance."""
    table_key: str
    path: str
    lance_branch: str | None
    version: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupStart:
    """`started.json`: a backup that is being made. Times are seconds since the epoch."""

    backup_id: str
    uri: str
    started_at: float
    freeze_id: str
    own_freeze: bool
    """Whether the backup took that freeze by itself."""
    tool_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRecord:
    """`backup.json`: written last and sealed, so that having a valid one is being finished."""

    backup_id: str
    uri: str
    stamp: int
    freeze_id: str
    started_at: float
    cut_at: float
    """When the graph was as the backup has it."""
    finished_at: float
    tool_version: str
    incremental_from: str | None
    """Id of the backup whose files were not read again; this one is whole without it."""
    one_instant: bool
    branches: tuple[FrozenBranch, ...]
    files: tuple[BackedFile, ...]
    roots: tuple[RecordedRoot, ...]
    rows: tuple[RowCount, ...]
    digest: str = ""

    @property
    def total(self) -> Tally:
        return Tally.of(self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalledFile:
    """A file that a backup has, for whoever continues it."""

    file: str
    size: int
    checksum: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalledFiles:
    """One file of the journal of an unfinished backup."""

    freeze_id: str
    files: tuple[JournalledFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOfBackup:
    """Where another process finds a backup."""

    root: str
    backup_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOrder:
    """What all parts of a submitted copy share."""

    order_id: str
    """Of one attempt: a worker whose attempt is over finds another one, or none."""
    parts: int
    source: str
    """The root of the graph, as workers reach it."""
    backup_id: str
    freeze_id: str
    earlier: PlaceOfBackup | None
    need_checksums: bool
    bytes_per_second: int | None
    """Of all parts together; None: no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPart:
    """The files of one part of a submitted copy, by what is done with them."""

    copy: tuple[CutFile, ...]
    link: tuple[CutFile, ...]
    unproven: tuple[CutFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDone:
    """What came of parts of a submitted copy; the files themselves are in the journal of the backup."""

    copied: Tally
    linked: Tally
    kept: Tally
    unlinked: tuple[str, ...] = ()
    """Files that the earlier backup should have had, and that were copied instead."""
    refused: int = 0
    """Those of them that the store of the earlier backup did not give."""
    refusal: str | None = None
    """Why, for the first of them."""
    error: str | None = None
    retryable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupLeft(StageReport):
    """What lies in the place of a backup, whose run may have been cut off."""

    stage = "backup"
    backup: str
    backup_id: str
    finished: bool
    total: Tally
    """Of an unfinished one: so far."""

    def outcome(self, plan: object = None) -> Outcome:
        state = "finished" if self.finished else "unfinished, the next backup to that place goes on with it"
        what = f"{state}; {self.total.files:,} files, {human_bytes(self.total.bytes)}"
        return Outcome(stage=self.stage, detail=_at(self, what), changed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport(StageReport):
    """What `backup` did."""

    stage = "backup"
    uri: str
    backup: str
    """Where it is: what `verify` and `restore` take."""
    backup_id: str
    freeze_id: str
    incremental_from: str | None
    resumed: bool
    total: Tally
    copied: Tally
    linked: Tally
    """Taken from the earlier backup."""
    kept: Tally
    """There already from an attempt that did not end."""
    seconds: float

    def outcome(self, plan: object = None) -> Outcome:
        what = f"{self.total.files:,} files, {human_bytes(self.copied.bytes)} copied"
        return Outcome(stage=self.stage, detail=_at(self, what), changed=True)

    def then(self, later: BackupReport | BackupLeft) -> BackupReport:
        return later if isinstance(later, BackupReport) else self


def _at(backup: BackupReport | BackupLeft, what: str) -> str:
    return f"backup {backup.backup_id}: {what}, at {backup.backup}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """One thing that is wrong with a backup or with a restored graph."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(StageReport):
    """What `verify` found."""

    stage = "verify"
    backup: str
    uri: str
    total: Tally
    without_checksum: int
    """Files of which only the size could be compared."""
    compared_with_graph: int
    problems: tuple[FileProblem, ...]
    not_recorded: str | None = None
    """Why the outcome could not be written to the backup; null where it was written."""

    @property
    def exit_code(self) -> int:
        return 1 if self.problems else 0

    def outcome(self, plan: object = None) -> Outcome:
        """Nothing: a backup that is sound is as it was. Pure."""
        return Outcome(stage=self.stage, detail="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """`verified.json`: what the last `verify` found in the backup. The next one replaces it."""

    verified_at: float
    """When it began to read, in seconds since the epoch."""
    problems: tuple[FileProblem, ...]
    """Of the backup only, not of a graph that it was compared with."""

    @property
    def sound(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What `restore` did, and whether the result is what was backed up."""

    backup: str
    uri: str
    """The restored graph."""
    total: Tally
    relocated: int
    """Files that recorded the old root and name the new one now."""
    branches: int
    tables: int
    rows: int
    """Over all branches."""
    seconds: float
    problems: tuple[FileProblem, ...]
    note_stays: str | None = None
    """Why `__maintenance/restoring.json`, which is of no use any more, could not be deleted."""

    @property
    def exit_code(self) -> int:
        return 1 if self.problems else 0


class BackupState(StrEnum):
    """Whether a backup can be restored."""

    FINISHED = "finished"
    UNFINISHED = "unfinished"
    """It is being made, or its making was killed; the next `backup` of the graph to this place continues it."""
    DAMAGED = "damaged"
    """Its record cannot be trusted."""
    UNREADABLE = "unreadable"
    """The store does not give its record: no right to read it, for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBackup:
    """One line of `backups`."""

    backup_id: str
    backup: str
    state: BackupState
    uri: str = ""
    started_at: float | None = None
    age_seconds: int | None = None
    """Since the cut of a finished one, since the start of another."""
    total: Tally | None = None
    incremental_from: str | None = None
    verified_at: float | None = None
    """When the last `verify` that recorded its outcome began, in seconds since 1970."""
    sound: bool | None = None
    """What that `verify` found; null where none recorded its outcome, false where the outcome cannot be read."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupList:
    """The backups of one place, newest first."""

    destination: str
    backups: tuple[ListedBackup, ...]

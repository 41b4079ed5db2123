"""Freezes: one exact cut of a graph, who keeps it and until when, and the files it consists of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

DEFAULT_TTL_SECONDS = 86_400


class PinRole(StrEnum):
    """Why a version belongs to a cut."""

    GRAPH = "graph"
    """A version of the graph manifest: main's or a branch's."""
    LINEAGE = "lineage"
    """The other datasets of a graph that are no tables."""
    TABLE = "table"
    """A version that main or a branch publishes; of a plain dataset, a HEAD or what somebody tagged."""
    FORK = "fork"
    """Where a Lance branch that the cut reads begins: files of that version are read through the branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPin:
    """One version of one dataset that belongs to a cut."""

    role: PinRole
    table_key: str
    path: str
    """Graph-relative path of the dataset."""
    branch: str | None
    """The Lance branch that owns the version, None for the main chain."""
    version: int
    tag: str
    """The Lance tag that keeps it from everybody's version cleanup."""
    lifetime: tuple[tuple[int, str], ...] = ()
    """Identifier of the Lance branch: another one of the same name is not this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenBranch:
    """A graph branch at the moment of the cut."""

    branch: str | None
    """None for main."""
    manifest_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenCut:
    """One version of the graph manifest per branch, and everything that these reach."""

    stamp: int
    branches: tuple[FrozenBranch, ...]
    """Main first; empty for plain Lance."""
    pins: tuple[FrozenPin, ...]
    contract: tuple[str, ...]
    """Files of the root, kept as they were under `__maintenance/freezes/<id>/`."""
    one_instant: bool
    """Whether all branches were seen at one instant; each by itself always is."""
    contract_digest: str | None = None
    """`sha256:…` of these files; None in a freeze of an earlier release."""
    dropped: tuple[str, ...] | None = None
    """Folders by which engines of stamp 3 tell that the name of a dropped type was used. None in a freeze of single
    tables, of plain Lance, or of an earlier release."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Paths of the datasets of the cut, sorted. Pure."""
        return tuple(self.by_dataset())

    def by_dataset(self) -> dict[str, list[FrozenPin]]:
        """The pins of each dataset of the cut, by its path, sorted. Pure."""
        found: dict[str, list[FrozenPin]] = {}
        for pin in self.pins:
            found.setdefault(pin.path, []).append(pin)
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """A cut that somebody keeps. Times are seconds since the epoch."""

    freeze_id: str
    uri: str
    owner: str
    reason: str
    created_at: float
    expires_at: float
    tables: tuple[str, ...]
    """Keys of the tables it is about; empty for the whole graph."""
    cut: FrozenCut


class CutFileKind(StrEnum):
    """What a file of a cut is."""

    CONTRACT = "contract"
    REFERENCE = "reference"
    """A Lance branch, or somebody's tag on a version of the cut."""
    MANIFEST = "manifest"
    DATA = "data"
    EXTERNAL = "external"
    """A blob that is a file of a registered base, under a name that its owner gave it and may give again."""
    DELETION = "deletion"
    INDEX = "index"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutFile:
    """One file of a cut: read it at `source`, put it at `file`. Both are relative to the root of the graph."""

    file: str
    source: str
    size: int
    kind: CutFileKind
    records_root: bool = False
    """It names the root of the graph and has to be rewritten for a copy under another one (`relocation`)."""
    checksum: str | None = None
    """`sha256:…` of the content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """A row of `omnigraph-ops files`."""

    file: str
    normalized: str
    """Absolute, where to read it."""
    size: int
    kind: CutFileKind
    records_root: bool
    checksum: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutFiles:
    """The file list of a freeze."""

    uri: str
    freeze_id: str
    files: tuple[FileRow, ...]

    @property
    def total_bytes(self) -> int:
        return sum(f.size for f in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocatedFile:
    """A file of a cut as it must be in a copy under another root."""

    file: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CutProblem:
    """Something of a cut that is gone or cannot be read."""

    path: str
    branch: str | None
    version: int
    reason: str


class HoldState(StrEnum):
    """Where a listed hold stands."""

    ACTIVE = "active"
    STARTING = "starting"
    """A freeze that is being taken right now."""
    UNKNOWN = "unknown"
    """A record that cannot be read, or tags of a freeze without its record: kept until somebody ends them by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedHold:
    """One line of `omnigraph-ops holds`: who holds what, why and until when."""

    hold_id: str
    kind: str
    state: HoldState
    owner: str
    reason: str
    what: str
    versions: int
    created_at: float | None = None
    expires_at: float | None = None
    age_seconds: int | None = None
    problems: tuple[CutProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldList:
    """Everything that holds versions of a graph right now."""

    uri: str
    holds: tuple[ListedHold, ...]
    swept: tuple[str, ...] = ()
    """Ids of holds that had ended and were removed with their tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfreezeReport:
    """What `unfreeze` or `release` ended."""

    uri: str
    released: tuple[str, ...]
    tags_removed: int

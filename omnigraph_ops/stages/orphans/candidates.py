"""The files that nothing refers to: sorted out by verdict and age, all at once or a batch at a time, and kept in parts.

The parts are Parquet files in the graph, written by tasks and read one after the other:

    __maintenance/plans/<id>/files-<task>-<number>.<attempt>.parquet

A part that is not named, with its checksum, in a sealed plan counts for nothing.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from omnigraph_ops.coordination.environment import clock_problem
from omnigraph_ops.coordination.sealed import KEPT_AFTER_EXPIRY_US
from omnigraph_ops.coordination.state import PLANS_DIR
from omnigraph_ops.errors import StalePlan
from omnigraph_ops.graph.layout import dataset_of, is_plain, is_ulid, made_at_us, now_us
from omnigraph_ops.models.orphans import (
    FilesInParts,
    OrphanFile,
    OrphanGroup,
    OrphanKind,
    OrphansPlan,
    PlaceTotal,
    PlanPart,
    UnknownFile,
)
from omnigraph_ops.stages.orphans.survey import Judge, Standing
from omnigraph_ops.storage.inventory import Stored, folders_in, look_again
from omnigraph_ops.storage.parquet import from_parquet, to_parquet
from omnigraph_ops.storage.store import Storage


@dataclass(slots=True, kw_only=True)
class Group:
    """A dropped dataset or dead branch while it is collected."""

    kind: OrphanKind
    needed: str = ""
    """The first of its files, by path, that is needed, and why."""
    young: str = ""
    """The first of its files, by path, that is not old enough."""
    changed: bool = False
    """Some of its files are not as an inventory says."""

    @property
    def kept(self) -> str | None:
        """Why it stays, as far as its own files tell. Pure."""
        if self.needed or self.young:
            return self.needed or f"{self.young} is not old enough"
        return "it changed since the inventory was taken" if self.changed else None

    def joined(self, other: Group) -> Group:
        """What two batches found about it. Pure."""
        return Group(
            kind=self.kind,
            needed=_first(self.needed, other.needed),
            young=_first(self.young, other.young),
            changed=self.changed or other.changed,
        )


def _first(*texts: str) -> str:
    return min((text for text in texts if text), default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file that nothing refers to."""

    file: OrphanFile
    group: str | None = None
    """The dropped dataset or dead branch that it goes with."""

    @property
    def place(self) -> str:
        """Where a person looks for it: a dataset, a dead branch or a folder of the graph. Pure."""
        return self.group or dataset_of(self.file.path) or self.file.path.partition("/")[0]


@dataclass(slots=True, kw_only=True)
class Folders:
    """The empty folders of a local graph, as far as its files are known."""

    judge: Judge
    empty: dict[str, float] = field(default_factory=dict)
    """Folders of datasets with nothing in them so far, with their time."""

    def add(self, item: Stored) -> None:
        """Take a folder for empty, or the folders above a file not any more. A folder comes before what is in it."""
        if not item.is_folder:
            self.fill(item.path.rpartition("/")[0])
        elif self.judge.dataset_of(item.path) is not None:
            self.empty[item.path] = item.modified_at

    def fill(self, folder: str) -> None:
        """Note that a folder, and so those above it, are not empty."""
        while folder:
            self.empty.pop(folder, None)
            folder = folder.rpartition("/")[0]

    def old(self, cutoff: float) -> tuple[str, ...]:
        """Old folders without a file at any depth, children first. Pure."""
        young = {f for f, modified in self.empty.items() if modified >= cutoff}
        kept = young | {str(parent) for f in young for parent in PurePosixPath(f).parents}
        good = [f for f in self.empty if f not in kept and self.judge.may_remove_folder(f)]
        return tuple(sorted(good, key=lambda f: (-f.count("/"), f)))


@dataclass(slots=True, kw_only=True)
class Sorted:
    """Stored files, sorted by verdict and age."""

    candidates: list[Candidate] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    unknown: list[UnknownFile] = field(default_factory=list)
    seen_references: int = 0
    files: int = 0
    bytes: int = 0
    young_files: int = 0
    young_bytes: int = 0

    def add(self, item: Stored, judge: Judge, cutoff: float) -> None:
        """Judge one stored file."""
        self.files, self.bytes = self.files + 1, self.bytes + item.size
        if item.is_special:
            self.unknown.append(UnknownFile(path=item.path, size=item.size))
            return
        verdict = judge.verdict(item.path)
        if item.path in judge.references.exact:
            self.seen_references += 1
        if verdict.standing is Standing.UNKNOWN:
            self.unknown.append(UnknownFile(path=item.path, size=item.size))
        elif verdict.standing is Standing.NEEDED:
            if verdict.group is not None:
                needed = f"{item.path}: {verdict.reason}"
                self._tell(verdict.group, Group(kind=OrphanKind.DROPPED_TABLE, needed=needed))
        elif verdict.kind is not None:
            self._orphan(item, verdict.kind, verdict.group, is_old=item.modified_at < cutoff)

    def join(self, other: Sorted) -> None:
        """Add what another batch had."""
        self.candidates += other.candidates
        for path, found in other.groups.items():
            self._tell(path, found)
        self.unknown += other.unknown
        self.seen_references += other.seen_references
        self.files += other.files
        self.bytes += other.bytes
        self.young_files += other.young_files
        self.young_bytes += other.young_bytes

    def verify(self, storage: Storage, cutoff: float) -> None:
        """Replace what an inventory says about candidates by what is stored now; drop what is gone. Reads."""
        found = look_again(storage, [c.file.path for c in self.candidates])
        kept = []
        for candidate, now in zip(self.candidates, found, strict=True):
            if isinstance(now, Stored) and not (now.is_special or now.is_folder) and now.modified_at < cutoff:
                file = replace(candidate.file, size=now.size, modified_at=now.modified_at)
                kept.append(replace(candidate, file=file))
            elif candidate.group is not None:
                self._tell(candidate.group, Group(kind=candidate.file.kind, changed=True))
        self.candidates = kept

    def _orphan(self, item: Stored, kind: OrphanKind, group: str | None, *, is_old: bool) -> None:
        if not is_old:
            self.young_files, self.young_bytes = self.young_files + 1, self.young_bytes + item.size
        if group is not None:
            self._tell(group, Group(kind=kind, young="" if is_old else item.path))
        elif not is_old:
            return
        file = OrphanFile(path=item.path, size=item.size, modified_at=item.modified_at, kind=kind)
        self.candidates.append(Candidate(file=file, group=group))

    def _tell(self, path: str, found: Group) -> None:
        known = self.groups.get(path)
        self.groups[path] = found if known is None else known.joined(found)


@dataclass(slots=True, kw_only=True)
class Totals:
    """How many files go, and their bytes, by where they are and what they are."""

    files: Counter[tuple[str, OrphanKind]] = field(default_factory=Counter)
    bytes: Counter[tuple[str, OrphanKind]] = field(default_factory=Counter)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Count some more."""
        for candidate in candidates:
            key = (candidate.place, candidate.file.kind)
            self.files[key] += 1
            self.bytes[key] += candidate.file.size

    def join(self, places: Iterable[PlaceTotal]) -> None:
        """Add other totals."""
        for place in places:
            self.files[place.path, place.kind] += place.files
            self.bytes[place.path, place.kind] += place.bytes

    def places(self, without: Collection[str] = ()) -> tuple[PlaceTotal, ...]:
        """The totals, largest first. Pure.

        Args:
            without: places that are left out.
        """
        found = [
            PlaceTotal(path=path, kind=kind, files=self.files[path, kind], bytes=self.bytes[path, kind])
            for path, kind in self.files
            if path not in without
        ]
        return tuple(sorted(found, key=lambda p: (-p.bytes, p.path, p.kind)))


MOST_IN_PART = 100_000
"""Rows of a part: what a process that reads it holds in memory."""
_MOST_SHOWN = 1000
_TYPES = {"path": "string", "size": "int64", "modified_at": "float64", "kind": "string", "group": "string"}


def folder_of(plan_id: str) -> str:
    """Where the parts of a plan are, relative to the graph. Pure."""
    return f"{PLANS_DIR}/{plan_id}"


def put_part(storage: Storage, folder: str, name: str, candidates: Sequence[Candidate]) -> PlanPart:
    """Write one part. Writes."""
    rows = [(c.file.path, c.file.size, c.file.modified_at, c.file.kind.value, c.group) for c in candidates]
    data = to_parquet(_TYPES, rows)
    storage.write(f"{folder}/{name}", data)
    return PlanPart(name=name, rows=len(rows), sha256=hashlib.sha256(data).hexdigest())


def sweep_parts(storage: Storage, plan_ttl_seconds: float) -> None:
    """Drop the parts of plans that expired long ago, and what a lost submit left so long ago. Destroys files."""
    for folder in folders_in(storage, PLANS_DIR):
        plan_id, kept = folder.rpartition("/")[2], int(plan_ttl_seconds * 1e6) + KEPT_AFTER_EXPIRY_US
        if is_ulid(plan_id) and now_us() > made_at_us(plan_id) + kept and clock_problem(storage) is None:
            storage.delete_tree(folder)


def described(storage: Storage, parts: FilesInParts, totals: Totals, staying: Collection[str]) -> FilesInParts:
    """The parts with what a person is shown of them. Reads the first of them.

    Args:
        staying: groups that do not go.
    """
    files = (c.file for c in _candidates(storage, parts) if c.group not in staying)
    sample = sorted(itertools.islice(files, _MOST_SHOWN), key=lambda f: f.path)
    return replace(parts, places=totals.places(without=staying), sample=tuple(sample))


def files_of(storage: Storage, plan: OrphansPlan) -> Iterator[OrphanFile]:
    """Every file of a plan, part by part where they are in parts. Reads.

    Raises:
        StalePlan: a part is gone or was altered.
    """
    return iter(plan.files) if plan.parts is None else files_in_parts(storage, plan.parts, plan.groups)


def files_in_parts(storage: Storage, parts: FilesInParts, groups: Sequence[OrphanGroup]) -> Iterator[OrphanFile]:
    """Every file in parts, without the groups that stay. As `files_of`."""
    going = {None, *(g.path for g in groups if g.kept is None)}
    return (c.file for c in _candidates(storage, parts) if c.group in going)


def check_parts(storage: Storage, parts: FilesInParts) -> None:
    """Raise `StalePlan` if a part is gone or was altered. Reads all of them."""
    for part in parts.parts:
        _content(storage, parts.folder, part)


def copy_parts(storage: Storage, parts: FilesInParts, folder: str) -> FilesInParts:
    """Copy the parts into another folder of the graph. Writes."""
    for part in parts.parts:
        storage.write(f"{folder}/{part.name}", _content(storage, parts.folder, part))
    return replace(parts, folder=folder, sample=())


def _candidates(storage: Storage, parts: FilesInParts) -> Iterator[Candidate]:
    for part in parts.parts:
        for row in from_parquet(_content(storage, parts.folder, part)):
            file = OrphanFile(
                path=row["path"], size=row["size"], modified_at=row["modified_at"], kind=OrphanKind(row["kind"])
            )
            yield Candidate(file=file, group=row["group"])


def _content(storage: Storage, folder: str, part: PlanPart) -> bytes:
    path = f"{folder}/{part.name}"
    if not is_plain(path):
        raise StalePlan(f"{path!r} is no place of a part of a plan; plan again")
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise StalePlan(f"{path}, a part of the plan, is gone; nothing of it was deleted; plan again") from None
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise StalePlan(f"{path} was altered after the plan was made; nothing of it was deleted; plan again")
    return data

"""Holds and announced removals: versions that maintenance may not remove, and those that it is about to.

A rewrite holds the version that it reads, a freeze holds a cut of the graph, a reader may announce what it
reads. `cleanup` and `orphans` ask `active_holds` and nothing else. A hold ends with its expiry; one
whose process was killed on this machine ends at once. A hold that cannot be read protects everything.
A freeze also has Lance tags, so it is ended by `freeze.release` and never swept here.

Announced removals: the versions that a cleanup is about to remove, for whoever wants to hold one of them. A cleanup
announces before it looks for holds, and a holder places its hold before it looks for announcements. So one of the two
always sees the other, also when the cleanup was stopped right before its effect for as long as you like.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph_ops.coordination.environment import is_running, process_name, this_process
from omnigraph_ops.coordination.state import HOLDS_DIR, REMOVALS_DIR, Records
from omnigraph_ops.errors import CorruptGraph, InvalidInput, StalePlan, StorageError
from omnigraph_ops.graph.layout import is_ulid, made_at_us, new_ulid
from omnigraph_ops.models.freeze import FrozenCut
from omnigraph_ops.storage.store import Storage

_LOG = logging.getLogger(__name__)


class HoldKind(StrEnum):
    """Who holds."""

    PLAN = "plan"
    """A running rewrite that reads the version."""
    FREEZE = "freeze"
    """A person or a backup that wants a cut of the graph to stay."""
    READER = "reader"
    """A reader that announced what it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldVersion:
    """One version of one dataset of the graph."""

    table_path: str
    """Graph-relative path of the dataset."""
    version: int
    branch: str | None = None
    """The Lance branch that owns the version, None for the main chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeTerms:
    """What makes a hold a freeze: our own stages leave its tables alone."""

    tables: tuple[str, ...]
    """Keys; empty for the whole graph."""
    cut: FrozenCut | None = None
    """None until it is known; it names every tag before the first is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Versions that stay until `expires_at`, and who wants it. Times are seconds since the epoch."""

    hold_id: str
    kind: HoldKind
    owner: str
    reason: str
    created_at: float
    expires_at: float
    versions: tuple[HeldVersion, ...]
    pid: int = 0
    machine: str = ""
    """Where `pid` means something; empty when the hold outlives its process."""
    process_started: str = ""
    """Which process has that number; empty in files of earlier releases."""
    freeze: FreezeTerms | None = None

    @property
    def starting(self) -> bool:
        """Whether it is a freeze that is being taken: not all of its tags are there yet. Pure."""
        return self.freeze is not None and bool(self.pid)

    def label(self) -> str:
        """The hold in a few words, for a list of reasons. Pure."""
        return f"{self.kind} hold {self.hold_id} of {self.owner}: {self.reason}"


def _id_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")


def _unknown(path: str, error: InvalidInput) -> None:
    hold_id = _id_of(path)
    # Never by hand where it may be a freeze: its tags would stay.
    end_it = f"run `omnigraph-ops unfreeze GRAPH {hold_id}`" if is_ulid(hold_id) else "delete it"
    raise CorruptGraph(
        f"{path} cannot be read, so what it protects is unknown: {error}; nothing was deleted; "
        f"restore the file, or {end_it} when you know that nobody needs the hold"
    ) from None


_HOLDS = Records(Hold, unreadable=_unknown)
_READABLE = Records(Hold)
"""For what protects nothing by it."""
_NO_FREEZES = set[str]()
"""Holds that are none and never will be. Each table of a run has one, and each asks for freezes under the lease."""
_MOST_REMEMBERED = 10_000


def place_hold(
    storage: Storage,
    versions: Sequence[HeldVersion],
    *,
    kind: HoldKind,
    reason: str,
    ttl_seconds: float,
    bound_to_process: bool = False,
    owner: str | None = None,
    freeze: FreezeTerms | None = None,
) -> Hold:
    """Hold these versions; with `bound_to_process` only as long as this process lives. Writes."""
    now = time.time()
    hold = Hold(
        hold_id=new_ulid(),
        kind=kind,
        owner=owner or process_name(),
        reason=reason,
        created_at=now,
        expires_at=now + ttl_seconds,
        versions=tuple(versions),
        freeze=freeze,
    )
    if bound_to_process:
        hold = replace(hold, **this_process())
    write_hold(storage, hold)
    return hold


def write_hold(storage: Storage, hold: Hold) -> None:
    """Put a hold, in place of the one of that id if there is one. Writes."""
    _HOLDS.write(storage, hold_path(hold.hold_id), hold)


def read_hold(storage: Storage, hold_id: str) -> Hold | None:
    """One hold, whether it counts or not; None when there is none, `CorruptGraph` for a damaged one. Reads."""
    return _HOLDS.read(storage, hold_path(hold_id))


def release_hold(storage: Storage, hold_id: str) -> None:
    """End a hold; a missing one is success. Destroys only the hold."""
    storage.delete(hold_path(hold_id))


@contextlib.contextmanager
def plan_hold(storage: Storage, version: HeldVersion, *, reason: str, ttl_seconds: float) -> Iterator[Hold]:
    """Hold the version that a rewrite reads for the block, in every outcome. Writes the hold."""
    hold = place_hold(
        storage, (version,), kind=HoldKind.PLAN, reason=reason, ttl_seconds=ttl_seconds, bound_to_process=True
    )
    _remember(hold_path(hold.hold_id))
    try:
        yield hold
    finally:
        try:
            release_hold(storage, hold.hold_id)
        except StorageError as error:
            # What was done beneath it stands.
            _LOG.warning("%s could not be released and ends with this process: %s", hold.label(), error)


def active_holds(storage: Storage) -> tuple[Hold, ...]:
    """Every hold that counts now, oldest first. Reads.

    Raises:
        CorruptGraph: a hold cannot be read, so what it protects is unknown.
    """
    holds, unreadable = holds_and_faults(storage)
    for reason in unreadable.values():
        raise CorruptGraph(reason)
    return holds


def holds_and_faults(storage: Storage) -> tuple[tuple[Hold, ...], Mapping[str, str]]:
    """Every hold that counts now, oldest first; by id, why others cannot be read and what to do. Reads."""
    found, unreadable = list[Hold](), dict[str, str]()
    for path in _HOLDS.paths(storage, HOLDS_DIR):
        try:
            hold = _HOLDS.read(storage, path)
        except CorruptGraph as error:
            unreadable[_id_of(path)] = str(error)
            continue
        found += [hold] if hold is not None and is_active(hold) else []
    return tuple(sorted(found, key=lambda h: (h.created_at, h.hold_id))), unreadable


def freezes(storage: Storage) -> tuple[Hold, ...]:
    """Every freeze that has a record, ended or not, oldest first; damaged records are left out. Reads."""
    found = list[Hold]()
    for path in _READABLE.paths(storage, HOLDS_DIR):
        if path in _NO_FREEZES:
            continue
        hold = _READABLE.read(storage, path)
        if hold is not None and hold.freeze is not None:
            found.append(hold)
        elif hold is not None and is_ulid(_id_of(path)):
            _remember(path)
    return tuple(sorted(found, key=lambda h: (h.created_at, h.hold_id)))


def _remember(path: str) -> None:
    if len(_NO_FREEZES) >= _MOST_REMEMBERED:
        _NO_FREEZES.clear()
    _NO_FREEZES.add(path)


def sweep_holds(storage: Storage) -> None:
    """Drop holds that no longer count; one that cannot be read stays for a person. Destroys dead holds."""
    for path, hold in _READABLE.all(storage, HOLDS_DIR):
        if hold.freeze is None and not is_active(hold):
            storage.delete(path)


def is_active(hold: Hold) -> bool:
    """Whether a hold still counts. Reads the clock and the process table."""
    return time.time() < hold.expires_at and is_running(hold)


def hold_path(hold_id: str) -> str:
    """The file of a hold, relative to the graph. Pure."""
    if not is_ulid(hold_id):
        raise InvalidInput(
            f"{hold_id!r} is not the id of a hold or freeze; nothing was changed; `omnigraph-ops holds` lists them"
        )
    return f"{HOLDS_DIR}/{hold_id}.json"


_DEAD_AFTER_SECONDS = 86_400.0
"""After so long a process on another machine, which nobody can ask, is taken for dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What a process is about to remove of one chain of a dataset."""

    table_path: str
    branch: str | None
    versions: tuple[int, ...] | None
    """None for the whole branch."""
    owner: str
    pid: int
    machine: str
    announced_at: float
    """Seconds since the epoch."""
    process_started: str = ""

    def takes(self, held: HeldVersion) -> bool:
        """Whether it removes that version. Pure."""
        same_chain = (self.table_path, self.branch) == (held.table_path, held.branch)
        return same_chain and (self.versions is None or held.version in self.versions)


def _unknown_removal(path: str, error: InvalidInput) -> None:
    if not _may_count(path):
        return
    raise CorruptGraph(
        f"{path} cannot be read, so what a cleanup is about to remove is unknown: {error}; nothing is held; "
        "remove the file when no cleanup is at work"
    ) from None


def _may_count(path: str) -> bool:
    """Whether an announcement that cannot be read may be of a process at work, by its name. Reads the clock."""
    name = _id_of(path)
    return is_ulid(name) and time.time() - made_at_us(name) / 1e6 <= _DEAD_AFTER_SECONDS


_REMOVALS = Records(Removal, unreadable=_unknown_removal)
_READABLE_REMOVALS = Records(Removal)


@contextlib.contextmanager
def announced(
    storage: Storage, table_path: str, *, branch: str | None, versions: Sequence[int] | None
) -> Iterator[None]:
    """Announce a removal for the block, which looks for holds and then removes. Writes under `__maintenance/`."""
    removal = Removal(
        table_path=table_path,
        branch=branch,
        versions=None if versions is None else tuple(versions),
        owner=process_name(),
        announced_at=time.time(),
        **this_process(),
    )
    path = f"{REMOVALS_DIR}/{new_ulid()}.json"
    _REMOVALS.write(storage, path, removal)
    try:
        yield
    finally:
        storage.delete(path)


def refuse_removed(storage: Storage, versions: Sequence[HeldVersion]) -> None:
    """Raise `StalePlan` when a cleanup is removing one of these versions; ask after the hold is placed. Reads."""
    for _, removal in _REMOVALS.all(storage, REMOVALS_DIR):
        taken = [held for held in versions if _is_active(removal) and removal.takes(held)]
        if taken:
            raise StalePlan(
                f"version {taken[0].version} of {taken[0].table_path} is being removed by a cleanup ({removal.owner}); "
                "nothing is held; hold a newer version, or try again when that cleanup has ended"
            )


def sweep_removals(storage: Storage) -> None:
    """Drop the announcements of processes that are gone. Destroys them."""
    for path in _READABLE_REMOVALS.paths(storage, REMOVALS_DIR):
        removal = _READABLE_REMOVALS.read(storage, path)
        is_dead = is_ulid(_id_of(path)) and not _may_count(path) if removal is None else not _is_active(removal)
        if is_dead:
            storage.delete(path)


def _is_active(removal: Removal) -> bool:
    return is_running(removal) and time.time() - removal.announced_at < _DEAD_AFTER_SECONDS

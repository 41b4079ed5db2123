"""Leases: one maintenance process at a time, on a graph (the committer lease, held per effect) or on a table.

A lease is a row of small files, `<path>-<number>.json`. The file with the highest number names the holder, and a
process becomes the holder only by creating the next number exclusively. So two processes never hold one lease,
whatever they believed before: the number is the fencing token. The last file stays when its holder releases the
lease, so numbers only grow.

The holder renews its file from a thread. Whoever waits watches that file by its own monotonic clock: a file that did
not change for one TTL belongs to a dead process. No wall clock is compared with that of another machine.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from omnigraph_ops.config.settings import LONGEST_TTL_SECONDS
from omnigraph_ops.coordination.environment import is_running, process_name, refuse_unsafe_store, this_process, was_here
from omnigraph_ops.coordination.state import LEASE_FILE, LEASE_PATH, Records, refuse
from omnigraph_ops.errors import InvalidInput, LeaseHeld, OpsError, StorageError
from omnigraph_ops.parallel import asked
from omnigraph_ops.quantities import age
from omnigraph_ops.storage.inventory import folders_in
from omnigraph_ops.storage.store import Storage

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

_LOG = logging.getLogger(__name__)
Pause = Callable[[float], None]
_POLL_SECONDS = 0.05
_POLL_OWN_SECONDS = 0.5
"""Where the holder is a thread of this process, which wakes the next one."""
_READ_ATTEMPTS = 5
_TTL_SECONDS, _BEYOND_TTL_SECONDS = 60.0, 5.0
_GIVEN_UP = set[str]()
"""The tokens of the leases that this process holds no more, and could not release."""
_CLOCK_BOUND_SECONDS = 300.0
"""How far the clocks of two machines may differ before a holder that works is overlooked by `working_holder`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What the file of a lease says: who may act, and whether it has ended."""

    number: int
    token: str
    owner: str
    purpose: str
    ttl_seconds: float
    pid: int
    machine: str
    """Host, boot and process namespace: where `pid` means something."""
    process_started: str = ""
    """Which process has that number; empty in files of earlier releases."""
    renewals: int = 0
    released: bool = False
    note: str = ""
    """What a holder leaves for the next one; each passes on what it does not change."""


_LEASES = Records(Lease, unreadable=refuse)
_WATCHED = dict[tuple[str, str], tuple[Lease, float]]()
"""What this process last saw of the holder at each place, and since when it has not changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlace:
    """Where a lease is, relative to the graph and without its number, and what a person calls it."""

    path: str
    name: str


_COMMITTER = LeasePlace(path=LEASE_PATH, name="the committer lease")


class LeaseKeeper:
    """Renews one lease until it is released. `assert_held` is the check right before an effect."""

    def __init__(self, storage: Storage, place: LeasePlace, lease: Lease, taken_at: float) -> None:
        self._storage, self._place, self._lease = storage, place, lease
        self._renewed_at = taken_at
        """When the newest renewal that landed was begun, by `_clock`."""
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_forever, name="lease", daemon=True)
        self._thread.start()

    @property
    def note(self) -> str:
        """What the holders before left."""
        return self._lease.note

    def leave(self, note: str) -> None:
        """Leave a note for the next holder; it is written with the release."""
        with self._writing:
            self._lease = replace(self._lease, note=note)

    @property
    def number(self) -> int:
        """The fencing number: higher than that of every earlier holder of this lease."""
        return self._lease.number

    def assert_held(self) -> None:
        """Return only while nobody else can hold the lease, for a third of its TTL at least. Reads, and may renew.

        Raises:
            LeaseHeld: another process took the lease over; the caller must not act any more.
        """
        while True:
            asked_at = _clock()
            if asked_at - self._renewed_at > self._lease.ttl_seconds / 2:
                self._renew()
            self._refuse_taken_over()
            # This process may have been stopped between the question and here.
            if _clock() - self._renewed_at <= self._lease.ttl_seconds * 2 / 3:
                return

    def assert_lately(self) -> None:
        """As `assert_held`, but after a recent renewal by the clock alone: for whoever asks often. May read."""
        if _clock() - self._renewed_at > self._lease.ttl_seconds * 2 / 3:
            self.assert_held()

    def release(self) -> None:
        """Stop renewing and mark the lease as free if it is still ours; a failure is told, not raised. Writes."""
        self._stop.set()
        self._thread.join()
        with self._writing:
            try:
                if self._is_ours():
                    self._write(replace(self._lease, released=True))
            except OpsError as error:
                # A full disk for one: what was done under it stands, and nobody in this process does more.
                _GIVEN_UP.add(self._lease.token)
                lease, wait = f"{self._place.name} of {self._storage.root}", age(self._lease.ttl_seconds)
                _LOG.warning("%s could not be released, so other machines wait for %s: %s", lease, wait, error)

    def _renew_forever(self) -> None:
        while not self._stop.wait(self._lease.ttl_seconds / 3):
            try:
                self._renew()
            except LeaseHeld:
                return
            except OpsError:
                continue  # a store that fails for a moment costs one renewal; the TTL allows two

    def _renew(self) -> None:
        with self._writing:
            began = _clock()
            self._refuse_taken_over()
            self._lease = replace(self._lease, renewals=self._lease.renewals + 1)
            self._write(self._lease)
            self._renewed_at = began

    def _write(self, lease: Lease) -> None:
        _LEASES.write(self._storage, _file_of(self._place.path, lease.number), lease)

    def _refuse_taken_over(self) -> None:
        if not self._is_ours():
            raise LeaseHeld(
                f"{self._place.name} of {self._storage.root} was taken over by another run; "
                "nothing was changed since; run again"
            )

    def _is_ours(self) -> bool:
        # The number alone tells, but for a row of files that somebody removed while this lease was held.
        storage, path, lease = self._storage, self._place.path, self._lease
        own = partial(_LEASES.read, storage, _file_of(path, lease.number))
        try:
            numbers, found = asked(partial(_numbers, storage, path), own, at_once=not storage.is_local)
        except InvalidInput:
            return False
        return max(numbers, default=0) == lease.number and found is not None and found.token == lease.token


@contextlib.contextmanager
def committer_lease(
    storage: Storage,
    *,
    purpose: str,
    ttl_seconds: float,
    wait_seconds: float,
    place: LeasePlace = _COMMITTER,
    pause: Pause | None = None,
) -> Iterator[LeaseKeeper]:
    """Hold the committer lease of a graph, or the lease at another place, for the block. Writes its file.

    Args:
        wait_seconds: how long to wait for a live holder. A dead holder on this machine is replaced at once; on
            another machine it is known to be dead only after one TTL of watching.
        pause: how to wait for a moment; whatever it raises ends the waiting.

    Raises:
        LeaseHeld: a holder that may be alive kept it for longer than `wait_seconds`.
        StorageError: the object store cannot create exclusively.
    """
    refuse_unsafe_store(storage)
    deadline = _clock() + wait_seconds
    turns = _turns_of(storage.root, place.path)
    while (keeper := _try(storage, place, purpose, ttl_seconds, deadline)) is None:
        turns.wait(pause or time.sleep)
    with turns.taken():
        try:
            yield keeper
        finally:
            keeper.release()


class _Turns:
    """The threads of this process that want one lease: they wake each other, so that they need not poll the store."""

    def __init__(self) -> None:
        self._left = threading.Condition()
        self._holders = 0

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """A thread of this process holds the lease for the block, and then wakes the next one."""
        with self._left:
            self._holders += 1
        try:
            yield
        finally:
            with self._left:
                self._holders -= 1
                self._left.notify()

    def wait(self, pause: Pause) -> None:
        """Wait for a moment; whatever `pause` raises ends the waiting."""
        with self._left:
            woken = bool(self._holders) and self._left.wait(_POLL_OWN_SECONDS)
        pause(0.0 if woken else _POLL_SECONDS)


@cache
def _turns_of(root: str, path: str) -> _Turns:
    return _Turns()


def committer_turn(
    graph: Graph, purpose: str, *, wait_seconds: float | None = None
) -> AbstractContextManager[LeaseKeeper]:
    """The committer lease of an open graph, with the times of its settings. Writes under `__maintenance/`."""
    settings = graph.settings
    return committer_lease(
        graph.storage,
        purpose=purpose,
        ttl_seconds=settings.lease_ttl_seconds,
        wait_seconds=settings.lease_wait_seconds if wait_seconds is None else wait_seconds,
        pause=graph.run.pause,
    )


def read_lease(storage: Storage, path: str = LEASE_PATH) -> Lease | None:
    """The newest lease at a place, released or not; None when there never was one. Reads.

    A file that cannot be read is a lease of nobody that is not released: only watching it shows that it is dead.
    """
    for _ in range(_READ_ATTEMPTS):
        number = max(_numbers(storage, path), default=0)
        if number == 0:
            return None
        try:
            lease = _LEASES.read(storage, _file_of(path, number))
        except InvalidInput:
            break
        if lease is None:
            continue  # its successor removed it meanwhile
        # No process asks for longer: whoever waited for that would wait for good.
        if not lease.ttl_seconds <= LONGEST_TTL_SECONDS:
            break
        return replace(lease, number=number)
    return Lease(number=number, token="", owner="an unreadable lease", purpose=path, ttl_seconds=0.0, pid=0, machine="")


def is_held(storage: Storage, number: int) -> bool:
    """Whether that is the newest committer lease, not released, and its process not known to be gone. Reads."""
    lease = read_lease(storage)
    return lease is not None and lease.number == number and _may_be_held(lease)


def working_holder(storage: Storage, path: str = LEASE_PATH) -> Lease | None:
    """Who seems to hold a lease, for a person to read or to wait for; None when nobody does. Reads.

    The age of the file is judged by this host's clock, so this decides about no effect.
    """
    lease = read_lease(storage, path)
    if lease is None or not _may_be_held(lease):
        return None
    with contextlib.suppress(FileNotFoundError):
        written = storage.stat(_file_of(path, lease.number)).modified_at
        if written is None or time.time() - written < 3 * lease.ttl_seconds + _CLOCK_BOUND_SECONDS:
            return lease
    return None


def patient_lease(
    storage: Storage, place: LeasePlace, *, purpose: str, ttl_seconds: float = _TTL_SECONDS, pause: Pause | None = None
) -> AbstractContextManager[LeaseKeeper]:
    """A lease for which one waits so as to tell a dead holder from one at work; on its own machine that is known.

    Writes a small file at that place. `pause` as in `committer_lease`.
    """
    holder = read_lease(storage, place.path)
    ours = holder is not None and was_here(holder)
    wait = 0.0 if ours else max(ttl_seconds, holder.ttl_seconds if holder else 0.0) + _BEYOND_TTL_SECONDS
    return committer_lease(
        storage, purpose=purpose, ttl_seconds=ttl_seconds, wait_seconds=wait, place=place, pause=pause
    )


def _may_be_held(lease: Lease) -> bool:
    """Whether a lease is not released and its process not known to be gone from this machine. Reads."""
    return not lease.released and lease.token not in _GIVEN_UP and is_running(lease)


def _clock() -> float:
    """Seconds that only grow, time in suspension included where the system counts it. Reads the clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _is_dead(storage: Storage, place: LeasePlace, holder: Lease, ttl: float) -> bool:
    """Whether a holder is gone from this machine, or did not renew while this process watched for a TTL. Reads."""
    if not _may_be_held(holder):
        return True
    seen, since = _WATCHED.get((storage.root, place.path), (None, 0.0))
    if seen != holder:
        since = _clock()
        _WATCHED[storage.root, place.path] = (holder, since)
    return _clock() - since > max(ttl, holder.ttl_seconds)


def _try(storage: Storage, place: LeasePlace, purpose: str, ttl: float, deadline: float) -> LeaseKeeper | None:
    """Become the holder; None while another one may be alive, `LeaseHeld` once it is too late. Writes."""
    while True:
        holder = read_lease(storage, place.path)
        if holder is None or _is_dead(storage, place, holder, ttl):
            keeper = _take(storage, place, purpose, ttl, holder)
            if keeper is not None:
                return keeper
            continue
        if _clock() >= deadline:
            raise LeaseHeld(
                f"{holder.owner} ({holder.purpose}) holds {place.name} of {storage.root}; "
                "nothing was changed; run again when it is done"
            )
        return None


def _take(storage: Storage, place: LeasePlace, purpose: str, ttl: float, before: Lease | None) -> LeaseKeeper | None:
    """Become the holder after `before`; None when another process was faster. Writes."""
    lease = Lease(
        number=before.number + 1 if before else 1,
        note=before.note if before else "",
        token=uuid.uuid4().hex,
        owner=process_name(),
        purpose=purpose,
        ttl_seconds=ttl,
        **this_process(),
    )
    began, path = _clock(), _file_of(place.path, lease.number)
    if not _LEASES.create(storage, path, lease):
        if path in folders_in(storage, path.rpartition("/")[0]):
            raise StorageError(f"{storage.root}/{path} is a folder, and {place.name} needs a file there; remove it")
        if storage.is_broken_link(path):
            raise StorageError(
                f"{storage.root}/{path} is a link to nothing, where {place.name} needs a file; remove it"
            )
        return None
    numbers = _numbers(storage, place.path)
    if max(numbers, default=0) > lease.number:
        # The number was free because its holder came, went and was tidied away since it was read.
        storage.delete(_file_of(place.path, lease.number))
        return None
    for number in numbers:
        if number < lease.number:
            # Only the highest number counts: where nobody may delete, the others stay.
            with contextlib.suppress(StorageError):
                storage.delete(_file_of(place.path, number))
    return LeaseKeeper(storage, place, lease, began)


def _numbers(storage: Storage, path: str) -> list[int]:
    folder, _, stem = path.rpartition("/")
    pattern = re.compile(re.escape(stem) + LEASE_FILE)
    return [int(found[1]) for name in storage.list(folder) if (found := pattern.fullmatch(name)) is not None]


def _file_of(path: str, number: int) -> str:
    return f"{path}-{number:020d}.json"

"""Leases: one maintenance writer at a time, on a graph (the committer lease, held per effect) or on a table.

A lease is a small file under `__maintenance/`, created exclusively and renewed by a thread. A
holder that stops renewing for one TTL is dead and may be replaced. The lease is a courtesy between
maintenance processes; the compare-and-swap of the graph manifest and the sidecars are what keeps a
graph correct if it is ever broken.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph_ops import serde
from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.edges.store_check import refuse_unsafe_store
from omnigraph_ops.errors import InvalidInput, LeaseHeld, OpsError
from omnigraph_ops.graph.layout import MAINTENANCE_DIR
from omnigraph_ops.settings import LONGEST_TTL_SECONDS

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

LEASE_PATH = f"{MAINTENANCE_DIR}/lease.json"
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who may commit, until when. Times are seconds since the epoch."""

    token: str
    owner: str
    purpose: str
    expires_at: float
    pid: int = 0
    machine: str = ""
    """Host, boot and process namespace: where `pid` means something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlace:
    """Where a lease is, relative to the graph, and what a person calls it."""

    path: str
    name: str


_COMMITTER = LeasePlace(path=LEASE_PATH, name="the committer lease")


class LeaseKeeper:
    """Renews one lease until it is released; `assert_held` is the check right before an effect."""

    def __init__(self, storage: Storage, place: LeasePlace, lease: Lease, ttl: float) -> None:
        self._storage, self._place, self._lease, self._ttl = storage, place, lease, ttl
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_forever, name="lease", daemon=True)
        self._thread.start()

    def assert_held(self) -> None:
        """Raise `LeaseHeld` if another process took the lease over. Reads."""
        if self._lost.is_set() or not _is_ours(read_lease(self._storage, self._place.path), self._lease):
            raise LeaseHeld(
                f"{self._place.name} of {self._storage.root} was taken over by another run; "
                "nothing was changed since; run again"
            )

    def release(self) -> None:
        """Stop renewing and give the lease back if it is still ours. Destroys the lease."""
        self._stop.set()
        self._thread.join()
        if _is_ours(read_lease(self._storage, self._place.path), self._lease):
            self._storage.delete(self._place.path)

    def _renew_forever(self) -> None:
        while not self._stop.wait(self._ttl / 3):
            try:
                if not _is_ours(read_lease(self._storage, self._place.path), self._lease):
                    self._lost.set()
                    return
                self._lease = replace(self._lease, expires_at=time.time() + self._ttl)
                self._storage.write(self._place.path, serde.dumps(self._lease).encode())
            except OpsError:
                # A store that fails for a moment costs one renewal; the TTL allows two.
                continue


@contextlib.contextmanager
def committer_lease(
    storage: Storage, *, purpose: str, ttl_seconds: float, wait_seconds: float, place: LeasePlace = _COMMITTER
) -> Iterator[LeaseKeeper]:
    """Hold the committer lease of a graph, or the lease at another place, for the block. Writes under `__maintenance/`.

    Raises:
        LeaseHeld: another live holder kept it for longer than `wait_seconds`.
        StorageError: the object store cannot create exclusively.
    """
    refuse_unsafe_store(storage)
    keeper = _acquire(storage, place, purpose, ttl_seconds, time.monotonic() + wait_seconds)
    try:
        yield keeper
    finally:
        keeper.release()


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
    )


def process_name() -> str:
    """This process as `host:pid`, for whoever reads who holds what. Reads."""
    return f"{socket.gethostname()}:{os.getpid()}"


def read_lease(storage: Storage, path: str = LEASE_PATH) -> Lease | None:
    """The current lease, None when nobody holds it or the file is unreadable. Reads."""
    try:
        lease = serde.from_json(Lease, storage.read(path))
    except (FileNotFoundError, InvalidInput):
        return None
    # A time that is no number never compares equal, not even to itself: such a file is unreadable too.
    return lease if math.isfinite(lease.expires_at) else None


def lease_is_alive(lease: Lease | None) -> bool:
    """Whether somebody holds the lease right now. Reads the clock and the process table.

    A holder that was killed on this very machine is dead at once; any other only after its TTL. No lease
    of ours ends further away than the longest TTL, so one that does is damage, not a holder.
    """
    if lease is None or not time.time() < lease.expires_at < time.time() + LONGEST_TTL_SECONDS:
        return False
    return is_running(lease.machine, lease.pid)


def is_running(machine: str, pid: int) -> bool:
    """False only when that process is known to be gone: it was on this very machine. Reads the process table."""
    return not (machine and machine == this_machine() and not _process_exists(pid))


def this_machine() -> str:
    """Host, boot and process namespace of this process; empty where the system does not tell. Reads."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _acquire(storage: Storage, place: LeasePlace, purpose: str, ttl: float, deadline: float) -> LeaseKeeper:
    while True:
        lease = Lease(
            token=uuid.uuid4().hex,
            owner=process_name(),
            purpose=purpose,
            expires_at=time.time() + ttl,
            pid=os.getpid(),
            machine=this_machine(),
        )
        if storage.create(place.path, serde.dumps(lease).encode()):
            return LeaseKeeper(storage, place, lease, ttl)
        holder = read_lease(storage, place.path)
        if storage.exists(place.path) and not lease_is_alive(holder):
            _evict(storage, place, holder)
            continue
        if time.monotonic() >= deadline:
            raise LeaseHeld(_held_message(storage, place, holder))
        time.sleep(_POLL_SECONDS)


def _evict(storage: Storage, place: LeasePlace, dead: Lease | None) -> None:
    """Remove a dead holder's lease unless it changed since it was read. Destroys the lease.

    Two evictors may both get here; the exclusive create that follows lets one of them win, and the
    loser of a takeover notices in `assert_held` before its first effect.
    """
    if read_lease(storage, place.path) == dead:
        storage.delete(place.path)


def _held_message(storage: Storage, place: LeasePlace, holder: Lease | None) -> str:
    who = f"{holder.owner} ({holder.purpose})" if holder else "another run"
    return f"{who} holds {place.name} of {storage.root}; nothing was changed; run again when it is done"


def _is_ours(current: Lease | None, ours: Lease) -> bool:
    return current is not None and current.token == ours.token

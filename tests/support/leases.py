"""Leases as a test needs them: of a process that died, or taken over by another one."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination.environment import this_machine
from omnigraph_ops.coordination.holds import HoldKind
from omnigraph_ops.coordination.lease import Lease, committer_lease, read_lease
from omnigraph_ops.coordination.state import HOLDS_DIR, LEASE_FILE, LEASE_PATH, RUNS_DIR
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph.layout import MAINTENANCE_DIR
from omnigraph_ops.storage.inventory import below_folder
from omnigraph_ops.storage.store import Storage

_ANY = re.compile(rf".*{LEASE_FILE}")


def is_lease(path: str) -> bool:
    """Whether a path is that of a file of a lease."""
    return _ANY.fullmatch(path) is not None


def is_free(storage: Storage, path: str = LEASE_PATH) -> bool:
    """Whether nobody holds the lease at a place."""
    lease = read_lease(storage, path)
    return lease is None or lease.released


def refuse_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the store takes no lease that is marked as released: the credentials have expired, for one."""
    write = Storage.write

    def refusing(self: Storage, path: str, data: bytes) -> None:
        if is_lease(path) and json.loads(data)["released"]:
            raise StorageError("ExpiredToken")
        write(self, path, data)

    monkeypatch.setattr(Storage, "write", refusing)


def dead_pid() -> int:
    """The pid of a process of this machine that has just ended."""
    # Not `fork`, which copies the page tables of a process that has Lance in it: that costs 10 ms.
    child = os.posix_spawnp("true", ["true"], os.environ)
    os.waitpid(child, 0)
    return child


def bury_holders(storage: Storage) -> None:
    """Make every lease and every hold of a running rewrite look like one of a process killed on this machine."""
    pid = dead_pid()
    for stored in list(below_folder(storage, MAINTENANCE_DIR)):
        held = stored.path.startswith(f"{HOLDS_DIR}/") and stored.path.endswith(".json")
        if is_lease(stored.path) or held:
            document = json.loads(storage.read(stored.path))
            if held and document["kind"] != HoldKind.PLAN:
                continue
            gone = {"pid": pid, "machine": this_machine()}
            storage.write(stored.path, json.dumps(document | gone).encode())


def bury_runs(storage: Storage, folder: str = RUNS_DIR) -> None:
    """Make every journal of a run, or of a task, look like one of a process killed on this machine."""
    for stored in list(below_folder(storage, folder)):
        if stored.path.endswith("/intent.json"):
            document = json.loads(storage.read(stored.path))
            storage.write(stored.path, json.dumps(document | {"pid": dead_pid()}).encode())


def take_over(storage: Storage, path: str = LEASE_PATH) -> Lease:
    """Be another machine that takes a lease over from whoever holds it, and keeps it."""
    holder = read_lease(storage, path)
    assert holder is not None
    thief = replace(
        holder, number=holder.number + 1, token="thief", owner="elsewhere:1", pid=1, machine="elsewhere", released=False
    )
    assert storage.create(f"{path}-{thief.number:020d}.json", serde.dumps(thief).encode())
    return thief


def left_held(
    storage: Storage, path: str, *, ttl_seconds: float = 0.3, pid: int = 1, machine: str = "elsewhere"
) -> str:
    """Leave the lease at a place as that process has it, or had it when it was killed there; its file."""
    lease = Lease(number=7, token="t", owner="o:1", purpose="p", ttl_seconds=ttl_seconds, pid=pid, machine=machine)
    file = f"{path}-{lease.number:020d}.json"
    storage.write(file, serde.dumps(lease).encode())
    return file


def most_holders(opened: Callable[[], Storage], *, waiters: int, rounds: int) -> list[int]:
    """The most holders at once in each round, where all waiters find the lease of a killed process."""
    return [_one_round(opened, waiters) for _ in range(rounds)]


def _one_round(opened: Callable[[], Storage], waiters: int) -> int:
    inside: list[int] = []
    most: list[int] = []
    start = threading.Barrier(waiters)

    def wait(number: int) -> None:
        storage = opened()
        start.wait()
        with committer_lease(storage, purpose="race", ttl_seconds=30, wait_seconds=600):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.01)
            inside.remove(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(waiters)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The last one did not come to release it.
    storage = opened()
    newest = read_lease(storage)
    assert newest is not None
    left = replace(newest, released=False, pid=dead_pid(), machine=this_machine())
    storage.write(f"{LEASE_PATH}-{left.number:020d}.json", serde.dumps(left).encode())
    assert len(most) == waiters
    return max(most)

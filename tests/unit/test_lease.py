"""When a committer lease counts as held."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.errors import LeaseHeld
from omnigraph_ops.lease import Lease, committer_lease, lease_is_alive, read_lease, this_machine
from omnigraph_ops.settings import LONGEST_TTL_SECONDS


def lease(expires_in: float, *, pid: int = 0, machine: str = "") -> Lease:
    return Lease(token="t", owner="o", purpose="p", expires_at=time.time() + expires_in, pid=pid, machine=machine)


def dead_pid() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def test_time_decides_about_other_machines() -> None:
    assert lease_is_alive(lease(30, pid=1, machine="elsewhere"))
    assert not lease_is_alive(lease(-1))
    assert not lease_is_alive(None)


def test_a_lease_from_beyond_the_longest_ttl_is_damage() -> None:
    assert not lease_is_alive(lease(LONGEST_TTL_SECONDS * 1000))


def test_a_killed_holder_on_this_machine_is_dead_at_once() -> None:
    assert lease_is_alive(lease(30, pid=os.getpid(), machine=this_machine()))
    assert not lease_is_alive(lease(30, pid=dead_pid(), machine=this_machine()))


def test_a_held_lease_is_waited_for_then_named(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with (
        committer_lease(storage, purpose="first", ttl_seconds=30, wait_seconds=0),
        pytest.raises(LeaseHeld, match="first"),
        committer_lease(storage, purpose="second", ttl_seconds=30, wait_seconds=0),
    ):
        pass
    assert read_lease(storage) is None


def test_renewal_keeps_it_beyond_its_ttl(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with committer_lease(storage, purpose="long", ttl_seconds=0.3, wait_seconds=0) as keeper:
        first = read_lease(storage)
        deadline = time.monotonic() + 10
        while read_lease(storage) == first and time.monotonic() < deadline:
            time.sleep(0.05)
        renewed = read_lease(storage)
        assert first is not None and renewed is not None
        assert renewed.expires_at > first.expires_at
        keeper.assert_held()


def test_a_holder_notices_a_takeover(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with (
        pytest.raises(LeaseHeld, match="taken over"),
        committer_lease(storage, purpose="mine", ttl_seconds=30, wait_seconds=0) as keeper,
    ):
        storage.delete("__maintenance/lease.json")
        keeper.assert_held()

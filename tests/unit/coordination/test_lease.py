"""Who holds a lease, and that it is never two processes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination.environment import start_of, this_machine
from omnigraph_ops.coordination.lease import Lease, LeaseKeeper, committer_lease, read_lease, working_holder
from omnigraph_ops.coordination.state import LEASE_PATH
from omnigraph_ops.errors import LeaseHeld, OpsError, StorageError
from omnigraph_ops.storage.store import Storage
from tests.support.edges import when_asked
from tests.support.leases import dead_pid, is_free, most_holders, refuse_releases, take_over
from tests.support.waits import instead_of_sleep, stop_lease_clock

TOO_LONG_TO_RENEW = 1800.0
"""With this TTL no test lasts until its holder renews the lease."""
LEASE = Lease(number=3, token="t", owner="o", purpose="p", ttl_seconds=0.3, pid=1, machine="elsewhere")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def watcher_sleeps(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Whoever waits for a lease sees time pass only while it sleeps, and each time these are called: no machine is
    too busy for the others to act meanwhile."""
    clock, meanwhile = stop_lease_clock(monkeypatch), list[Callable[[], object]]()

    def sleep(seconds: float) -> None:
        clock.seconds += seconds
        for act in meanwhile:
            act()

    instead_of_sleep(monkeypatch, sleep)
    return meanwhile


def put(storage: Storage, lease: Lease = LEASE) -> None:
    storage.write(f"{LEASE_PATH}-{lease.number:020d}.json", serde.dumps(lease).encode())


def test_numbers_only_grow(storage: Storage) -> None:
    numbers = []
    for _ in range(3):
        with committer_lease(storage, purpose="work", ttl_seconds=30, wait_seconds=0) as keeper:
            numbers.append(keeper.number)
        assert is_free(storage)
    assert numbers == [1, 2, 3]
    assert storage.list("__maintenance") == (f"lease-{3:020d}.json",)


@pytest.mark.usefixtures("watcher_sleeps")
def test_a_release_that_cannot_be_written_is_told_and_stops_no_other_thread_of_the_process(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_releases(monkeypatch)
    with committer_lease(storage, purpose="one", ttl_seconds=90, wait_seconds=0):
        pass
    assert caplog.messages == [
        f"the committer lease of {storage.root} could not be released, so other machines wait for 1 min: ExpiredToken"
    ]
    with committer_lease(storage, purpose="two", ttl_seconds=30, wait_seconds=0) as keeper:
        assert keeper.number == 2


def test_a_release_that_cannot_be_written_hides_no_error(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_releases(monkeypatch)
    with (
        pytest.raises(OpsError, match="what went wrong"),
        committer_lease(storage, purpose="one", ttl_seconds=30, wait_seconds=0),
    ):
        raise OpsError("what went wrong")


@pytest.mark.usefixtures("watcher_sleeps")
def test_a_holder_on_another_machine_is_dead_after_a_ttl_of_watching(storage: Storage) -> None:
    put(storage)
    with pytest.raises(LeaseHeld), committer_lease(storage, purpose="w", ttl_seconds=0.3, wait_seconds=0.1):
        pass
    with committer_lease(storage, purpose="w", ttl_seconds=0.3, wait_seconds=30) as keeper:
        assert keeper.number == LEASE.number + 1


def test_a_holder_that_renews_is_never_replaced(storage: Storage, watcher_sleeps: list[Callable[[], object]]) -> None:
    renewals = itertools.count(1)
    watcher_sleeps.append(lambda: put(storage, replace(LEASE, renewals=next(renewals))))
    put(storage)
    with pytest.raises(LeaseHeld), committer_lease(storage, purpose="w", ttl_seconds=0.3, wait_seconds=1.5):
        pass
    assert next(renewals) > 6, "it was watched for several TTLs"


@pytest.mark.parametrize("wall", [-8 * 86_400, 8 * 86_400], ids=["behind", "ahead"])
def test_the_wall_clock_decides_nothing(storage: Storage, wall: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + wall)
    put(storage, replace(LEASE, ttl_seconds=30))
    with pytest.raises(LeaseHeld), committer_lease(storage, purpose="w", ttl_seconds=30, wait_seconds=0.2):
        pass


def test_a_lease_for_longer_than_anybody_may_ask_is_watched_as_an_unreadable_one(storage: Storage) -> None:
    put(storage, replace(LEASE, ttl_seconds=1e12))
    with committer_lease(storage, purpose="w", ttl_seconds=0.3, wait_seconds=30) as keeper:
        keeper.assert_held()


def test_a_killed_holder_on_this_machine_is_replaced_at_once(storage: Storage) -> None:
    put(storage, replace(LEASE, ttl_seconds=3600, pid=dead_pid(), machine=this_machine()))
    with committer_lease(storage, purpose="w", ttl_seconds=3600, wait_seconds=0) as keeper:
        keeper.assert_held()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process was started")
def test_a_holder_whose_number_another_process_has_now_is_replaced_at_once(storage: Storage) -> None:
    def here(pid: int, started: str) -> Lease:
        return replace(LEASE, ttl_seconds=3600, pid=pid, machine=this_machine(), process_started=started)

    for started in (start_of(os.getpid()), ""):
        put(storage, here(os.getpid(), started))
        with pytest.raises(LeaseHeld), committer_lease(storage, purpose="w", ttl_seconds=3600, wait_seconds=0):
            pass
    put(storage, here(os.getpid(), "1"))
    with committer_lease(storage, purpose="w", ttl_seconds=3600, wait_seconds=0):
        held = read_lease(storage)
        assert held is not None
        assert held.process_started == start_of(os.getpid())


def test_a_lease_of_an_earlier_release_and_one_of_a_later_release_are_read(storage: Storage) -> None:
    document = json.loads(serde.dumps(LEASE))
    del document["process_started"]
    storage.write(f"{LEASE_PATH}-{LEASE.number:020d}.json", json.dumps(document | {"of_tomorrow": 1}).encode())
    assert read_lease(storage) == LEASE


@pytest.mark.skipif(sys.platform != "linux", reason="what has ended and was not waited for is told by Linux alone")
def test_a_killed_holder_that_nobody_waited_for_is_gone(storage: Storage) -> None:
    child = subprocess.Popen(["sleep", "600"])
    lease = replace(LEASE, pid=child.pid, machine=this_machine())
    put(storage, lease)
    assert working_holder(storage) == lease
    child.kill()
    # Waits for its end and leaves it to be waited for, as by a supervisor that does not.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert working_holder(storage) is None
    child.wait()


def test_a_held_lease_is_waited_for_then_named(storage: Storage) -> None:
    with (
        committer_lease(storage, purpose="first", ttl_seconds=30, wait_seconds=0),
        pytest.raises(LeaseHeld, match="first"),
        committer_lease(storage, purpose="second", ttl_seconds=30, wait_seconds=0),
    ):
        pass
    assert is_free(storage)


def test_renewal_keeps_it_beyond_its_ttl(storage: Storage) -> None:
    with committer_lease(storage, purpose="long", ttl_seconds=0.3, wait_seconds=0) as keeper:
        first = read_lease(storage)
        deadline = time.monotonic() + 300
        while read_lease(storage) == first and time.monotonic() < deadline:
            time.sleep(0.05)
        renewed = read_lease(storage)
        assert first is not None and renewed is not None
        assert renewed.renewals > first.renewals
        keeper.assert_held()


def test_a_holder_notices_a_takeover(storage: Storage) -> None:
    with (
        pytest.raises(LeaseHeld, match="taken over"),
        committer_lease(storage, purpose="mine", ttl_seconds=30, wait_seconds=0) as keeper,
    ):
        take_over(storage)
        keeper.assert_held()
    found = read_lease(storage)
    assert found is not None and (found.token, found.released) == ("thief", False)


def test_a_holder_notices_that_its_row_was_removed_and_begun_anew(storage: Storage) -> None:
    with committer_lease(storage, purpose="mine", ttl_seconds=30, wait_seconds=0) as keeper:
        storage.delete_tree("__maintenance")
        put(storage, replace(LEASE, number=1))
        with pytest.raises(LeaseHeld, match="taken over"):
            keeper.assert_held()


def test_whoever_read_an_old_number_does_not_become_a_second_holder(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped between reading number 3 and creating number 4, which came and went meanwhile."""
    put(storage, replace(LEASE, released=True))
    holders = list[LeaseKeeper]()

    def come_and_go() -> None:
        with committer_lease(storage, purpose="a", ttl_seconds=30, wait_seconds=0):
            pass
        holders.append(others.enter_context(committer_lease(storage, purpose="b", ttl_seconds=30, wait_seconds=0)))
        assert (holders[0].number, len(storage.list("__maintenance"))) == (5, 1)

    with contextlib.ExitStack() as others:
        when_asked(monkeypatch, Storage, "create", come_and_go, about=f"{LEASE_PATH}-{4:020d}")
        with pytest.raises(LeaseHeld), committer_lease(storage, purpose="late", ttl_seconds=30, wait_seconds=0.2):
            pass
        holders[0].assert_held()


def test_a_stop_between_the_question_and_the_answer_does_not_pass(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a stop of more than two thirds of its TTL a holder renews before it goes on, or finds that it lost."""
    clock = stop_lease_clock(monkeypatch)
    with committer_lease(storage, purpose="mine", ttl_seconds=TOO_LONG_TO_RENEW, wait_seconds=0) as keeper:

        def stopped() -> None:
            clock.seconds += 4 * TOO_LONG_TO_RENEW
            take_over(storage)

        when_asked(monkeypatch, Storage, "list", stopped, after=True)
        with pytest.raises(LeaseHeld, match="taken over"):
            keeper.assert_held()


def test_who_asks_often_looks_at_the_store_when_no_renewal_landed_lately(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = stop_lease_clock(monkeypatch)
    with committer_lease(storage, purpose="mine", ttl_seconds=TOO_LONG_TO_RENEW, wait_seconds=0) as keeper:
        take_over(storage)
        clock.seconds = TOO_LONG_TO_RENEW * 0.66
        keeper.assert_lately()  # nobody can have taken it over by then
        clock.seconds = TOO_LONG_TO_RENEW * 0.67
        with pytest.raises(LeaseHeld, match="taken over"):
            keeper.assert_lately()


_HOLDER = """
import sys
from omnigraph_ops.storage.store import Storage
from omnigraph_ops.coordination.lease import committer_lease
with committer_lease(Storage(sys.argv[1]), purpose="stopped", ttl_seconds=1, wait_seconds=0) as keeper:
    print("held", flush=True)
    sys.stdin.readline()
    try:
        keeper.assert_held()
        print("acts", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.slow
def test_a_stopped_process_does_not_act_after_it_is_continued(tmp_path: Path, storage: Storage) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)
        with committer_lease(storage, purpose="next", ttl_seconds=1, wait_seconds=300) as keeper:
            process.send_signal(signal.SIGCONT)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "LeaseHeld\n"
            keeper.assert_held()


@pytest.mark.parametrize("found", ["{", "", '{"number":7}'], ids=["garbage", "empty", "incomplete"])
@pytest.mark.usefixtures("watcher_sleeps")
def test_a_lease_that_cannot_be_read_is_watched_like_any_other(storage: Storage, found: str) -> None:
    storage.write(f"{LEASE_PATH}-{7:020d}.json", found.encode())
    with pytest.raises(LeaseHeld), committer_lease(storage, purpose="w", ttl_seconds=0.3, wait_seconds=0.1):
        pass
    with committer_lease(storage, purpose="w", ttl_seconds=0.3, wait_seconds=30) as keeper:
        assert keeper.number == 8


def test_a_folder_in_the_way_is_named(storage: Storage) -> None:
    path = f"{LEASE_PATH}-{1:020d}.json"
    Path(storage.root, path).mkdir(parents=True)
    with (
        pytest.raises(StorageError, match=f"{path} is a folder, and the committer lease needs a file there; remove it"),
        committer_lease(storage, purpose="load", ttl_seconds=5, wait_seconds=0),
    ):
        pass


def test_a_broken_link_in_the_way_is_named(storage: Storage) -> None:
    path = f"{LEASE_PATH}-{1:020d}.json"
    Path(storage.root, path).parent.mkdir(parents=True)
    Path(storage.root, path).symlink_to("nowhere")
    with (
        pytest.raises(StorageError, match=f"{path} is a link to nothing, where the committer lease needs a file"),
        committer_lease(storage, purpose="load", ttl_seconds=5, wait_seconds=0),
    ):
        pass


def test_the_working_holder_is_named_until_it_is_released_gone_or_long_silent(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert working_holder(storage) is None
    put(storage)
    assert working_holder(storage) == LEASE
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    assert working_holder(storage) is None
    monkeypatch.undo()
    put(storage, replace(LEASE, pid=dead_pid(), machine=this_machine()))
    assert working_holder(storage) is None
    put(storage, replace(LEASE, released=True))
    assert working_holder(storage) is None


@pytest.mark.slow
def test_many_waiters_for_a_dead_holder_never_become_two(tmp_path: Path) -> None:
    assert most_holders(lambda: Storage(str(tmp_path)), waiters=8, rounds=10) == [1] * 10


def test_threads_of_one_process_wake_each_other_instead_of_polling(storage: Storage) -> None:
    reads, turns = [0], list[int]()
    count, real = threading.Lock(), storage.read

    class Counting(Storage):
        def read(self, path: str) -> bytes:
            with count:
                reads[0] += 1
            return real(path)

    watched = Counting(storage.root)

    def turn() -> None:
        with committer_lease(watched, purpose="turn", ttl_seconds=30, wait_seconds=60) as keeper:
            turns.append(keeper.number)
            time.sleep(0.15)

    threads = [threading.Thread(target=turn) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(turns) == list(range(1, 9))
    assert reads[0] < 120, "polling every 50 ms, all of them would read for 1.2 s"


def test_whoever_waits_in_the_same_process_can_be_stopped(storage: Storage) -> None:
    class Stop(Exception):
        pass

    def stop(seconds: float) -> None:
        raise Stop

    with (
        committer_lease(storage, purpose="long", ttl_seconds=30, wait_seconds=0),
        pytest.raises(Stop),
        committer_lease(storage, purpose="next", ttl_seconds=30, wait_seconds=60, pause=stop),
    ):
        pass

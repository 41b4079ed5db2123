"""Pace of windows, and the throttle of rewrites."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import pace, rewrite_journal
from omnigraph_ops.coordination.pace import Ceilings, Ledger, Pace, admitted, next_start, pace_of
from omnigraph_ops.coordination.state import THROTTLE_DIR
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.leases import is_free
from tests.support.manifest_times import set_commit_times
from tests.support.waits import Hurried, instead_of_sleep
from tests.support.writers import copies, write


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.mark.slow
@given(data=st.data(), gaps=st.lists(st.floats(0, 30), min_size=30, max_size=30), rate=st.integers(10**6, 10**9))
def test_between_any_two_starts_no_more_than_the_ceiling_is_admitted(
    data: st.DataObject, gaps: list[float], rate: int
) -> None:
    # Tasks as they are planned: 30 of them book less than the hour beyond which a ledger counts as damaged.
    largest = Ceilings(bytes_per_second=rate).task_bytes
    sizes = data.draw(st.lists(st.integers(1, largest), min_size=2, max_size=30))
    ledger, now, starts = Ledger(next_start=0.0), 1_000.0, []
    for size, gap in zip(sizes, gaps, strict=False):
        now += gap
        start, ledger = next_start(ledger, now, size, rate)
        assert start >= now
        starts.append(start)
    for first in range(len(sizes)):
        for last in range(first + 1, len(sizes)):
            admitted_bytes = sum(sizes[first:last])
            assert admitted_bytes <= (starts[last] - starts[first]) * rate * (1 + 1e-6) + 1


def test_a_ledger_far_in_the_future_is_damage_and_waits_no_longer_than_an_hour() -> None:
    start, _ = next_start(Ledger(next_start=1e18), 1_000.0, 10, 10)
    assert start == 1_000.0 + 3600


def test_no_ceiling_touches_nothing(storage: Storage) -> None:
    with admitted(storage, Ceilings(), 10**12):
        pass
    assert not storage.exists(THROTTLE_DIR)


def test_never_more_at_once_than_there_are_slots(storage: Storage) -> None:
    # Each task waits for another one, so that two are inside together however slow this machine is.
    running, most, guard, two = 0, 0, threading.Lock(), threading.Barrier(2, timeout=300)

    def task(_number: int) -> None:
        nonlocal running, most
        with admitted(storage, Ceilings(concurrent_rewrites=2), 1):
            with guard:
                running += 1
                most = max(most, running)
            two.wait()
            time.sleep(0.05)  # long enough for a third one to come in, if it could
            with guard:
                running -= 1

    with ThreadPoolExecutor(max_workers=6) as pool:
        list(pool.map(task, range(6)))
    assert most == 2
    slots = [f"{THROTTLE_DIR}/slot-{number}" for number in range(2)]
    assert all(is_free(storage, slot) for slot in slots), "slots are given back"


def test_tasks_of_all_processes_share_the_bytes(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still, so what a task waits for is what the others have booked."""
    ceilings, waited = Ceilings(bytes_per_second=1_000), list[float]()
    monkeypatch.setattr(time, "time", lambda: 1_000.0)

    def task(_number: int) -> None:
        pauses = list[float]()

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            time.sleep(0.001)

        # As another process would: it shares nothing with the others but the files in the graph.
        with admitted(Storage(storage.root), ceilings, 200, pause):
            waited.append(pauses[-1])  # those before it are for the lock of the ledger

    with ThreadPoolExecutor(max_workers=3) as pool:
        list(pool.map(task, range(3)))
    assert sorted(waited) == pytest.approx([0.0, 0.2, 0.4]), "200 bytes at 1,000 bytes a second are 0.2 s apart"


def test_a_store_that_is_too_busy_slows_everybody_down(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    instead_of_sleep(monkeypatch, slept.append)
    ceilings = Ceilings(bytes_per_second=10**9)
    with pytest.raises(StorageError), admitted(storage, ceilings, 1):
        raise StorageError("PutObject: 503 SlowDown: please reduce your request rate")
    with admitted(storage, ceilings, 1):
        pass
    assert max(slept) > 4


def test_a_slot_is_given_back_when_the_task_fails(storage: Storage) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError), admitted(storage, Ceilings(concurrent_rewrites=1), 1):
            raise RuntimeError


def test_every_task_of_a_rewrite_asks_for_admission(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(small_table_bytes=0, max_concurrent_rewrites=1, max_rewrite_bytes_per_second=10**9)
    graph = demo_graph(loads=3, rows=12, node_types=1, settings=settings)
    asked: list[tuple[Ceilings, int]] = []

    @contextlib.contextmanager
    def admit(_storage: Storage, ceilings: Ceilings, size: int, _pause: object) -> Iterator[None]:
        asked.append((ceilings, size))
        yield

    monkeypatch.setattr(rewrite_journal, "admitted", admit)
    optimize_table(graph, "node:Person")
    assert [c for c, _ in asked] == [Ceilings(concurrent_rewrites=1, bytes_per_second=10**9)]
    assert all(size > 0 for _, size in asked)


PERSON, KNOWS = "node:Person", "edge:Knows"


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_ACTIVE_SECONDS", 5.0)


def closed(share: float = 0.005, seconds: float = 0.03) -> Pace:
    """After a window that ended at 100 and made version 7."""
    return Pace().after(manifest_version=7, window_seconds=seconds, share=share, now=100.0)


def test_beside_nobody_there_is_no_pause() -> None:
    assert closed().knows(7)
    assert closed().pause(100.1) == 0
    assert Pace().noticing(7, 100.0).pause(3600.0) == 0


def test_the_first_window_waits_for_a_writer_that_has_just_published() -> None:
    assert not Pace().knows(7)
    first = Pace().noticing(7, 100.0)
    assert first.pause(101.0) == pytest.approx(4.0)
    assert first.noticing(9, 104.9).pause(105.1) == 0, "and no longer, whoever goes on"


@pytest.mark.parametrize(("share", "pause"), [(0.005, 5.0), (0.01, 2.97), (0.5, 0.03), (1.0, 0.0)])
def test_a_pause_keeps_windows_to_their_share_and_ends_in_a_look(share: float, pause: float) -> None:
    assert not closed(share).knows(8)
    assert closed(share).noticing(8, 100.0).pause(100.0) == pytest.approx(pause)


def test_a_writer_that_has_stopped_is_given_no_way() -> None:
    noticed = closed().noticing(8, 100.0)
    assert noticed.pause(104.9) == pytest.approx(0.1)
    assert noticed.pause(105.1) == 0


def test_a_note_that_cannot_be_read_knows_nothing() -> None:
    assert pace_of("") == pace_of("[]") == pace_of('{"published_version": "x"}') == Pace()
    assert pace_of(serde.dumps(closed())) == closed()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of windows, without the waiting."""
    waits: list[float] = []
    real = time.sleep

    def sleep(seconds: float) -> None:
        if seconds > 0.5:
            waits.append(seconds)
        real(min(seconds, 0.01))

    instead_of_sleep(monkeypatch, sleep)
    return waits


@pytest.mark.slow
def test_a_window_waits_after_another_writer_published_and_not_for_ever(
    demo_graph: DemoGraph, stamp: int, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, settings=Settings(window_share=0.0001))
    optimize_table(graph, KNOWS)
    slept.clear()
    write(open_graph(graph.uri), PERSON, copies("other-"))
    assert optimize_table(graph, PERSON).committed
    assert 0 < sum(slept) <= 10.0


@pytest.mark.slow
def test_alone_and_in_an_exclusive_run_nothing_waits(demo_graph: DemoGraph, stamp: int) -> None:
    class Noted(Hurried):
        def pause(self, seconds: float) -> None:
            waited.append(seconds)

    waited = list[float]()
    graph = demo_graph(stamp=stamp, node_types=1, settings=Settings(window_share=0.0001)).with_run(Noted())
    set_commit_times(Path(graph.uri, MANIFEST_DIR), int(time.time()) - 3600)
    assert not optimize_all(graph).failed
    write(open_graph(graph.uri), PERSON, copies("other-"))
    graph = graph.with_settings(graph.settings.model_copy(update={"exclusive": True}))
    assert not optimize_all(graph).failed
    assert [seconds for seconds in waited if seconds > 0.5] == []


class Enough(Exception):
    """Of waiting."""


def test_who_waits_long_says_for_what_once(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if sum(waited) > 90:
            raise Enough

    one = Ceilings(concurrent_rewrites=1)
    with admitted(storage, one, 1), pytest.raises(Enough), admitted(storage, one, 1, pause):
        pass
    (said,) = caplog.messages
    assert said == f"{storage.root}: a rewrite waits until fewer than 1 are at work on this graph"


def test_a_long_wait_for_the_ceiling_of_bytes_is_said(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    slow, waited = Ceilings(bytes_per_second=1), list[float]()
    for _ in range(2):
        with admitted(storage, slow, 100, waited.append):
            pass
    assert max(waited) > 90
    (said,) = caplog.messages
    assert said == f"{storage.root}: a rewrite waits for 1 min, by the ceiling of bytes per second"

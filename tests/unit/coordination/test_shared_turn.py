"""Threads of one run share a turn of the committer lease; nobody else is in it, and nobody is kept out for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest

from omnigraph_ops.coordination import shared_turn as shared_module
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn, read_lease
from omnigraph_ops.coordination.shared_turn import shared_turn
from omnigraph_ops.errors import LeaseHeld
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.progress import Run, Stopped
from tests.conftest import DemoGraph
from tests.support.leases import is_free


@pytest.fixture
def graph(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv("OMNIGRAPH_OPS_LEASE_WAIT_SECONDS", "0")
    return open_graph(demo_graph(loads=1, rows=3, node_types=1).uri)


def turns(graph: Graph) -> int:
    lease = read_lease(graph.storage)
    return lease.number if lease is not None else 0


def at_once(work: Callable[[int], object], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, n) for n in range(threads)]:
            done.result()


@pytest.mark.parametrize(("most", "taken"), [(4, 1), (2, 2), (1, 4)])
def test_so_many_threads_share_a_turn(graph: Graph, most: int, taken: int) -> None:
    before, together = turns(graph), threading.Barrier(most)

    def one(number: int) -> None:
        with shared_turn(graph, f"part {number}", most=most) as keeper:
            together.wait(60)
            keeper.assert_held()

    at_once(one, 4)
    assert turns(graph) - before == taken
    assert is_free(graph.storage)


def test_another_run_has_no_part_until_the_last_thread_has_left(graph: Graph) -> None:
    entered, first_left, go = threading.Barrier(3), threading.Event(), threading.Event()

    def one(number: int) -> None:
        with shared_turn(graph, f"part {number}", most=2):
            entered.wait(60)
            (go if number else threading.Event()).wait(60 if number else 0)
        if number == 0:
            first_left.set()

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(one, n) for n in range(2)]
        entered.wait(60)
        assert first_left.wait(60)
        with pytest.raises(LeaseHeld), committer_turn(graph, "another run"):
            pass
        go.set()
        assert [d.result() for d in done] == [None, None]
    with committer_turn(graph, "another run"):
        pass


def test_no_two_threads_do_the_same_at_once(graph: Graph) -> None:
    inside, seen = set[int](), list[int]()

    def one(number: int) -> None:
        with shared_turn(graph, "the same", most=8):
            inside.add(number)
            seen.append(len(inside))
            inside.remove(number)

    at_once(one, 6)
    assert seen == [1] * 6


def test_a_thread_that_fails_leaves_the_turn_to_the_others(graph: Graph) -> None:
    both = threading.Barrier(2)

    def one(number: int) -> None:
        with shared_turn(graph, f"part {number}", most=2) as keeper:
            both.wait(60)
            if number:
                raise ValueError("fails")
            keeper.assert_held()

    with pytest.raises(ValueError, match="fails"):
        at_once(one, 2)
    assert is_free(graph.storage)


def test_who_cannot_have_the_lease_keeps_no_other_thread_from_trying(graph: Graph) -> None:
    with committer_turn(graph, "another run"):
        for _ in range(2):
            with pytest.raises(LeaseHeld), shared_turn(graph, "part", most=2):
                pass
    with shared_turn(graph, "part", most=2):
        pass


def test_threads_that_come_first_at_once_share_a_turn(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    made, together = shared_module._Shared.__init__, threading.Barrier(2)

    def slowly(shared: shared_module._Shared) -> None:
        time.sleep(0.2)
        made(shared)

    monkeypatch.setattr(shared_module._Shared, "__init__", slowly)
    mine = graph.with_run(Run())

    def one(number: int) -> None:
        with shared_turn(mine, f"part {number}", most=2):
            together.wait(60)

    at_once(one, 2)


def test_threads_wait_for_another_run_together(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[str]()

    def trying(mine: Graph, purpose: str) -> AbstractContextManager[LeaseKeeper]:
        tried.append(purpose)
        return committer_turn(mine, purpose)

    monkeypatch.setattr(shared_module, "committer_turn", trying)
    patient = graph.with_settings(graph.settings.model_copy(update={"lease_wait_seconds": 1.0}))
    start = threading.Barrier(6)

    def one(number: int) -> None:
        start.wait(60)
        with pytest.raises(LeaseHeld, match="another run"), shared_turn(patient, f"part {number}", most=6):
            pass

    with committer_turn(graph, "another run"):
        at_once(one, 6)
    assert len(tried) < 6


def test_after_a_full_turn_others_have_time_to_take_the_lease(graph: Graph) -> None:
    paused = list[float]()

    class Pausing(Run):
        def pause(self, seconds: float) -> None:
            paused.append(seconds)

    mine = graph.with_run(Pausing())
    for number, most in enumerate((2, 1, 1)):
        with shared_turn(mine, f"part {number}", most=most):
            pass
    assert len(paused) == 1, "the first turn had room, the last one has no successor"


def test_a_thread_that_waits_ends_when_its_run_stops(graph: Graph) -> None:
    class Stopping(Run):
        def pause(self, seconds: float) -> None:
            raise Stopped

    mine = graph.with_run(Stopping())
    held, over = threading.Event(), threading.Event()

    def holds() -> None:
        with shared_turn(mine, "the same", most=2):
            held.set()
            over.wait(60)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(holds)
        assert held.wait(60)
        with pytest.raises(Stopped), shared_turn(mine, "the same", most=2):
            pass
        over.set()
        first.result()

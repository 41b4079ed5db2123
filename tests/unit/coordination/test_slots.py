"""How many threads of a run are at work, and which is next."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.slots import SLOTS, OfRun, Slots, in_slots
from omnigraph_ops.graph import Graph
from omnigraph_ops.progress import Run
from tests.conftest import DemoGraph

LONG = 60.0


def begun(pool: ThreadPoolExecutor, slots: Slots, most: int, go: threading.Event) -> threading.Event:
    """Another thread wants a slot, and keeps it until `go`; the event tells that it has it."""
    working, asks = threading.Event(), threading.Event()

    def work() -> None:
        asks.set()
        with slots.at_work(most):
            working.set()
            assert go.wait(LONG)

    pool.submit(work)
    assert asks.wait(LONG)
    return working


def until_wanted(slots: Slots, threads: int) -> None:
    """Wait until so many threads wait for a slot."""
    while len(slots._wanted) < threads:
        time.sleep(0.001)


def test_no_more_are_at_work_than_may_be() -> None:
    slots, go = Slots(), threading.Event()
    with ThreadPoolExecutor(3) as pool:
        first, second = (begun(pool, slots, 2, go) for _ in range(2))
        assert first.wait(LONG)
        assert second.wait(LONG)
        third = begun(pool, slots, 2, go)
        assert not third.wait(0.1)
        go.set()
        assert third.wait(LONG)


def test_a_thread_that_rests_leaves_its_slot_and_has_it_again_before_those_that_only_begin() -> None:
    slots, order, go = Slots(), list[str](), threading.Event()

    def begin() -> None:
        with slots.at_work(1):
            order.append("another begins")

    with ThreadPoolExecutor(2) as pool, slots.at_work(1):
        with slots.resting():
            busy = begun(pool, slots, 1, go)
            assert busy.wait(LONG), "the slot was left"
            late = pool.submit(begin)
            until_wanted(slots, 1)
            threading.Timer(0.05, go.set).start()
        order.append("this one goes on")
        with slots.resting():
            late.result(LONG)
    assert order == ["this one goes on", "another begins"]


def test_a_thread_without_a_slot_may_rest() -> None:
    slots = Slots()
    with slots.resting():
        pass
    with slots.at_work(1):
        pass


def test_slots_go_to_threads_in_the_order_in_which_they_came() -> None:
    slots, order = Slots(), list[int]()

    def work(number: int) -> None:
        with slots.at_work(1):
            order.append(number)

    with ThreadPoolExecutor(8) as pool:
        with slots.at_work(1):
            for number in range(8):
                pool.submit(work, number)
                until_wanted(slots, number + 1)
        pool.shutdown()
    assert order == list(range(8))


def test_one_waits_until_all_others_rest_or_enough_do() -> None:
    slots, go = Slots(), threading.Event()
    slots.wait(lambda: False, LONG)  # nobody is at work
    with ThreadPoolExecutor(1) as pool:
        working = begun(pool, slots, 2, go)
        assert working.wait(LONG)
        slots.wait(lambda: True, LONG)
        threading.Timer(0.05, go.set).start()
        slots.wait(lambda: False, LONG)
        assert go.is_set(), "it waited for the one at work"


def test_one_does_not_wait_for_long_work() -> None:
    slots = Slots()
    with ThreadPoolExecutor(1) as pool:
        go = threading.Event()
        assert begun(pool, slots, 2, go).wait(LONG)
        slots.wait(lambda: False, 0.01)
        assert not go.is_set()
        go.set()


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(loads=1, rows=3, node_types=1).with_settings(Settings(concurrency=2))


def test_nothing_begins_after_a_fault(graph: Graph) -> None:
    begun, both, slots = list[int](), threading.Barrier(2), SLOTS.of(graph)

    def work(number: int) -> None:
        begun.append(number)
        if both.wait(LONG) == 0:  # one of the two that are the first, whichever they are
            raise ValueError("fails")
        while len(slots._at_work) > 1:  # the other slot is free before this one
            time.sleep(0.001)

    with pytest.raises(ValueError, match="fails"):
        in_slots(graph, work, range(12))
    assert len(begun) == 2


def test_a_concurrency_of_one_does_one_thing_after_the_other(graph: Graph) -> None:
    alone, begun = graph.with_settings(Settings(concurrency=1)), list[int]()

    def work(number: int) -> int:
        begun.append(number)
        with SLOTS.of(alone).resting():
            time.sleep(0.005)
        assert begun[-1] == number
        return number

    assert in_slots(alone, work, range(4)) == [0, 1, 2, 3]


def test_what_came_of_each_is_in_the_order_of_the_items(graph: Graph) -> None:
    def work(number: int) -> int:
        with SLOTS.of(graph).resting():
            time.sleep(0.001 * (20 - number))
        return number

    assert in_slots(graph, work, range(20)) == list(range(20))


def test_threads_that_ask_first_at_once_get_the_same(graph: Graph) -> None:
    def slowly() -> object:
        time.sleep(0.2)
        return object()

    kept, start = OfRun(slowly), threading.Barrier(4)

    def ask(_: int) -> object:
        start.wait(LONG)
        return kept.of(graph)

    with ThreadPoolExecutor(4) as pool:
        (first,) = set(pool.map(ask, range(4)))
    assert kept.of(graph) is first
    assert kept.of(graph.with_run(Run())) is not first

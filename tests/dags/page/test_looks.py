"""Slow reads of the page: begun once, waited for so long, kept for a moment."""

from __future__ import annotations

import threading
import time

import pytest
from omnigraph_airflow.page.reads import BUSY, STILL, Deadline, Looks, ReadLimits


def test_a_read_that_hangs_is_begun_once_and_waited_for_no_longer_than_asked() -> None:
    looks, begun, release = Looks(keep_seconds=60), [], threading.Event()

    def read() -> int:
        begun.append(1)
        release.wait(60)
        return 7

    first, second = looks.begin("graph", "health", read), looks.begin("graph", "health", read)
    assert Deadline(0.01).wait(first, str).pending == STILL
    release.set()
    assert Deadline(60).wait(second, str).value == 7 and begun == [1]


def test_what_was_read_is_read_again_after_a_while() -> None:
    looks, begun = Looks(keep_seconds=0.0), []
    for _ in range(2):
        Deadline(60).wait(looks.begin("graph", "health", lambda: begun.append(1)), str)
        time.sleep(0.001)
    assert len(begun) == 2


def test_a_timeout_of_the_read_itself_is_a_problem_not_a_wait() -> None:
    def read() -> int:
        raise TimeoutError("the store")

    assert Deadline(60).wait(Looks(keep_seconds=60).begin("graph", "health", read), str).problem == "the store"


def test_reads_of_a_graph_that_hangs_leave_threads_for_the_others_and_do_not_pile_up() -> None:
    bounds = ReadLimits(threads=3, threads_per_graph=2, reads_per_graph=4)
    looks, release, begun = Looks(keep_seconds=60, bounds=bounds), threading.Event(), threading.Semaphore(0)
    threads = set[threading.Thread]()

    def hang() -> str:
        threads.add(threading.current_thread())
        begun.release()
        release.wait(60)
        return "done"

    hanging = [looks.begin("hangs", number, hang) for number in range(20)]
    assert begun.acquire(timeout=60) and begun.acquire(timeout=60)
    assert Deadline(60).wait(looks.begin("other", 1, lambda: "read"), str).value == "read"
    assert {Deadline(60).wait(future, str).pending for future in hanging[4:]} == {BUSY}
    release.set()
    assert [Deadline(60).wait(future, str).value for future in hanging[:4]] == ["done"] * 4, "two waited for a thread"
    assert len(threads) == 2
    assert Deadline(60).wait(looks.begin("hangs", 5, hang), str).value == "done", "it is asked again"


def test_more_graphs_than_threads_are_read_one_after_the_other() -> None:
    looks = Looks(keep_seconds=60, bounds=ReadLimits(threads=2))
    futures = [looks.begin(graph, "runs", lambda graph=graph: graph) for graph in range(50)]
    assert [Deadline(60).wait(future, str).value for future in futures] == list(range(50))


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        (["running", "queued"], "a"),
        (["success", "queued"], "b"),
        (["running", "queued", "failed"], "a"),
        (["success", "failed"], "b"),
    ],
)
def test_a_run_that_runs_is_shown_before_those_that_queue_behind_it(
    airflow_db: None, states: list[str], shown: str
) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType
    from omnigraph_airflow.page.listing import newest_runs

    dag_id = "-".join(states)
    with create_session() as session:
        for name, state in zip("abc", states, strict=False):
            session.add(DagRun(dag_id=dag_id, run_id=name, run_type=DagRunType.MANUAL, state=state))
            session.flush()
    assert newest_runs([dag_id])[dag_id].run_id == shown

"""Slow reads of the page: begun once, waited for so long, kept for a moment."""

from __future__ import annotations

import threading
import time

from omnigraph_airflow.page.looks import Deadline, Looks


def test_a_read_that_hangs_is_begun_once_and_waited_for_no_longer_than_asked() -> None:
    looks, begun, release = Looks(keep_seconds=60), [], threading.Event()

    def read() -> int:
        begun.append(1)
        release.wait(60)
        return 7

    first, second = looks.begin("graph", read), looks.begin("graph", read)
    assert Deadline(0.01).wait(first, str).pending
    release.set()
    assert Deadline(60).wait(second, str).value == 7 and begun == [1]


def test_what_was_read_is_read_again_after_a_while() -> None:
    looks, begun = Looks(keep_seconds=0.0), []
    for _ in range(2):
        Deadline(60).wait(looks.begin("graph", lambda: begun.append(1)), str)
        time.sleep(0.001)
    assert len(begun) == 2


def test_a_timeout_of_the_read_itself_is_a_problem_not_a_wait() -> None:
    def read() -> int:
        raise TimeoutError("the store")

    assert Deadline(60).wait(Looks(keep_seconds=60).begin("graph", read), str).problem == "the store"

"""What long work tells, where no bar is shown."""

from __future__ import annotations

import threading
import time

import pytest

from omnigraph_ops.progress import SILENT, About, Lines, Meter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as its one element."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_line_has_bytes_rate_and_time_left_and_comes_every_few_seconds(clock: list[float]) -> None:
    said: list[str] = []
    meter = Meter(Lines(said.append), "copying", 4096, "bytes")
    meter.add(1024)
    assert said == []
    clock[0] = 8.0
    meter.add(1024)
    assert said == ["copying: 2.0 KiB of 4.0 KiB, 256 B/s, 8 s left"]
    clock[0] = 9.0
    meter.add(1)
    assert len(said) == 1
    meter.add(2047)
    assert said[-1] == "copying: 4.0 KiB of 4.0 KiB, 455 B/s"
    meter.add(1)
    assert len(said) == 2, "what is more than was estimated is not told"


def test_what_has_no_size_is_not_told(clock: list[float]) -> None:
    said: list[str] = []
    Meter(Lines(said.append), "copying", 0, "bytes").add(0)
    assert said == []


def test_a_figure_without_a_total_and_the_name_of_one_among_several(clock: list[float]) -> None:
    said: list[str] = []
    progress = About(Lines(said.append), "node:Person")
    progress("rewriting")
    progress.at("listing", 5, None, "files")
    clock[0] = 10.0
    progress.at("listing", 1000, None, "files")
    assert said == ["node:Person: rewriting", "node:Person: listing: 1,000 files"]
    SILENT("nothing")
    SILENT.at("listing", 1, 1, "files")


def test_a_line_of_one_thread_does_not_begin_in_the_middle_of_another() -> None:
    said: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def write(text: str) -> None:
        said.append(f"{text}(")
        begun.set()
        assert go_on.wait(10)
        said.append(")")

    lines = Lines(write)
    threads = [threading.Thread(target=lines, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    threads[1].join(0.05)
    assert len(said) == 1
    go_on.set()
    for thread in threads:
        thread.join()
    assert said[1::2] == [")", ")"]

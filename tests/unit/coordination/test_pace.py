"""Windows give way to writers that are active, for a bounded time."""

from __future__ import annotations

import pytest

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import pace, window
from omnigraph_ops.coordination.pace import Pace, pace_of
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize import optimize_all, optimize_table
from tests.conftest import DemoGraph
from tests.support.writers import copies, write

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
    real = window.time.sleep
    monkeypatch.setattr(window.time, "sleep", lambda s: (waits.append(s) if s > 0.5 else None, real(min(s, 0.01)))[1])
    return waits


def test_a_window_waits_after_another_writer_published_and_not_for_ever(
    demo_graph: DemoGraph, stamp: int, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, settings=Settings(window_share=0.0001))
    optimize_table(graph, KNOWS)
    slept.clear()
    write(open_graph(graph.uri), PERSON, copies("other-"))
    assert optimize_table(graph, PERSON).committed
    assert 0 < sum(slept) <= 10.0


def test_alone_and_in_an_exclusive_run_nothing_waits(
    demo_graph: DemoGraph, stamp: int, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, node_types=1, settings=Settings(window_share=0.0001))
    with monkeypatch.context() as patch:
        patch.setattr(pace, "_published_at", lambda _graph, _version: 0.0)
        assert not optimize_all(graph).failed
    write(open_graph(graph.uri), PERSON, copies("other-"))
    graph = graph.with_settings(graph.settings.model_copy(update={"exclusive": True}))
    assert not optimize_all(graph).failed
    assert slept == []

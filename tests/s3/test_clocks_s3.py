"""A host whose clock is wrong, beside an object store that knows better: even plans are refused, and write nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from omnigraph_ops.coordination import environment
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import ClockWrong
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.storage.inventory import walk

pytestmark = pytest.mark.s3
SPEC = DemoSpec(node_types=1, loads=3, rows=8)
KEEP_1 = RetentionPolicy(keep_versions=1)


@pytest.fixture
def graph(s3_graph: Callable[[DemoSpec], str]) -> Graph:
    return open_graph(s3_graph(SPEC))


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Sets this process's clock 8 days ahead; the server's stays."""
    real, real_ns = time.time, time.time_ns

    def set_clock() -> None:
        monkeypatch.setattr(time, "time", lambda: real() + 8 * 86_400)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 8 * 86_400 * 10**9)

    yield set_clock
    monkeypatch.undo()
    environment._KNOWN.clear()


def test_a_plan_is_refused_by_the_date_of_the_reply(graph: Graph, ahead: Callable[[], None]) -> None:
    before = sorted(s.path for s in walk(graph.storage))
    plan_cleanup(graph, KEEP_1)
    plan_orphans(graph)
    ahead()
    for plan in (lambda: plan_cleanup(graph, KEEP_1), lambda: plan_orphans(graph)):
        with pytest.raises(ClockWrong, match=r"691,(199|20[0-9]) s apart.*nothing was planned"):
            plan()
    assert sorted(s.path for s in walk(graph.storage)) == before, "a plan writes nothing, not even a probe"


def test_an_apply_is_refused_by_the_time_of_a_new_object(graph: Graph, ahead: Callable[[], None]) -> None:
    cleanup, orphans = plan_cleanup(graph, KEEP_1), plan_orphans(graph)
    before = sorted(s.path for s in walk(graph.storage))
    ahead()
    # A plan that was made in time expires by that clock; its own refusal comes first.
    for apply in (lambda: cleanup_all(graph, cleanup), lambda: apply_orphans(graph, orphans)):
        with pytest.raises(Exception, match="nothing was deleted"):
            apply()
    with pytest.raises(ClockWrong):
        environment.refuse_wrong_clock(graph.storage, "nothing was deleted")
    assert sorted(s.path for s in walk(graph.storage)) == before

"""Kill a freeze, an unfreeze and a sweep at every mutating call: no tag is left behind, nothing is blocked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.freezes import sweep_ended, unfreeze
from omnigraph_ops.coordination.holds import Hold, freezes, write_hold
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.stages.freeze.observe import verify_cut
from omnigraph_ops.stages.freeze.take import freeze_graph, list_holds, read_freeze
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.crash.conftest import stage_of
from tests.support.converged import assert_no_leftovers
from tests.support.freezes import freeze_tags
from tests.support.kills import Killed, Killer, killing_tags
from tests.support.leases import bury_holders
from tests.support.rows import Rows, rows_everywhere

pytestmark = pytest.mark.crash
# One table at a time: the calls come in the same order every time.
SETTINGS = Settings(concurrency=1, lease_wait_seconds=1)
ACTS: dict[str, Callable[[Graph], object]] = {
    "freeze": freeze_graph,
    "unfreeze": lambda graph: unfreeze(graph, _only(graph)),
    "sweep": sweep_ended,
}


def _only(graph: Graph) -> str:
    return freezes(graph.storage)[0].hold_id


def opened(root: Path) -> Graph:
    return open_graph(str(root), SETTINGS)


def dead(graph: Graph) -> None:
    """The killed process is this one: let its lease and its announced freezes look like a dead process's. Writes."""
    bury_holders(graph.storage)
    for hold in freezes(graph.storage):
        if hold.pid:
            write_hold(graph.storage, replace(hold, pid=2**22 + 1))


@pytest.fixture(params=[3, 6], ids=["stamp3", "stamp6"])
def template(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small graph with a fork."""
    root = tmp_path / "graph.omni"
    write_demo_graph(str(root), DemoSpec(stamp=request.param, node_types=1, loads=2, rows=4, written_branches=1))
    return root


@pytest.mark.night("combinations")
@pytest.mark.parametrize("name", ACTS)
def test_a_kill_at_any_call_is_swept_by_the_next_stage(template: Path, name: str) -> None:
    if name != "freeze":
        freeze_graph(opened(template))
    if name == "sweep":
        hold = freezes(opened(template).storage)[0]
        write_hold(opened(template).storage, replace(hold, expires_at=time.time() - 1))
    stage = replace(stage_of(template, ACTS[name], SETTINGS), guard=killing_tags)
    kills = stage.kills()
    assert ("tag" if name == "freeze" else "untag") in {kill.point.call for kill in kills}
    for kill in kills:
        stage.kill(kill)
        _judge(opened(template), stage.rows, f"{name} killed {kill}")


def _judge(graph: Graph, rows: dict[str | None, Rows], moment: str) -> None:
    dead(graph)
    sweep_ended(graph)
    left = [h for h in freezes(graph.storage) if _whole(graph, h)]
    tagged = {tag for h in left if h.freeze and h.freeze.cut for tag in (p.tag for p in h.freeze.cut.pins)}
    assert {Path(t).name.removesuffix(".json") for t in freeze_tags(graph.uri)} == tagged, moment
    assert len(left) == len(freezes(graph.storage)), moment
    assert rows_everywhere(graph) == rows, moment
    for hold in left:
        unfreeze(graph, hold.hold_id)
    list_holds(graph)
    assert freeze_tags(graph.uri) == set(), moment


def _whole(graph: Graph, hold: Hold) -> bool:
    """A freeze that stands is whole, whatever was killed."""
    freeze = read_freeze(graph, hold.hold_id)
    return not verify_cut(graph, freeze)


def test_after_a_kill_between_tags_maintenance_goes_on_at_once(template: Path) -> None:
    killer = Killer(root=template, when=lambda p: p.call == "tag" and p.index > 8)
    with killing_tags(killer), pytest.raises(Killed):
        freeze_graph(opened(template))
    assert freeze_tags(template)
    dead(opened(template))
    assert not optimize_all(opened(template)).failed
    assert freeze_tags(template) == set()
    assert_no_leftovers(opened(template))

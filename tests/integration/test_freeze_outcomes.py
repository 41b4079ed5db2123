"""A freeze that ended before it was taken stays ended, SIGTERM ends it; scratch branches are in no cut."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lance.dataset import Tags

from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.coordination.freezes import unfreeze
from omnigraph_ops.coordination.holds import freezes, write_hold
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.errors import InvalidInput, LeaseHeld
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import EXPIRY_BRANCH_PREFIX
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.freeze.observe import verify_cut
from omnigraph_ops.stages.freeze.take import freeze_graph, read_freeze
from tests.conftest import DemoGraph
from tests.support.edges import when_asked
from tests.support.freezes import freeze_tags
from tests.support.leases import take_over

SMALL = {"loads": 2, "rows": 9, "node_types": 1}


def unfrozen(graph: Graph) -> None:
    """Somebody ends every freeze by its name. Destroys."""
    for hold in freezes(graph.storage):
        unfreeze(graph, hold.hold_id)


def over(graph: Graph) -> None:
    """The time of every freeze is over. Writes."""
    for hold in freezes(graph.storage):
        write_hold(graph.storage, replace(hold, expires_at=time.time() - 1))


@pytest.mark.parametrize("end", [unfrozen, over])
def test_a_freeze_that_ended_while_it_waited_is_not_brought_back(
    demo_graph: DemoGraph, end: Callable[[Graph], None]
) -> None:
    graph = demo_graph(**SMALL)
    with pytest.raises(InvalidInput, match="ended before it was taken"):
        freeze_graph(graph, progress=Lines(lambda text: end(graph) if "announced" in text else None))
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())


def test_a_freeze_whose_time_is_over_when_it_is_tagged_is_none(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    when_asked(monkeypatch, Tags, "create", lambda: over(graph), after=True)
    with pytest.raises(InvalidInput, match="ended before it was taken"):
        freeze_graph(graph)
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())


def test_a_freeze_that_lost_the_lease_while_it_tagged_is_none(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run may have removed what was found there a moment ago."""
    graph = demo_graph(**SMALL)

    def when_looking() -> None:
        when_asked(monkeypatch, LanceGateway, "open", lambda: take_over(graph.storage))

    when_asked(monkeypatch, Tags, "create", when_looking, after=True)
    with pytest.raises(LeaseHeld, match="taken over"):
        freeze_graph(graph)
    assert [hold for hold in freezes(graph.storage) if not hold.starting] == []


@pytest.mark.slow
def test_sigterm_gives_everything_back(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    command = [sys.executable, "-m", "omnigraph_ops", "freeze", graph.uri]
    with committer_turn(graph, "optimize node:Person"):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert any("waiting for running maintenance" in line for line in process.stderr)
        assert len(freezes(graph.storage)) == 1
        process.terminate()
        assert process.wait(timeout=300) == 128 + 15
    process.stderr.close()
    assert freezes(graph.storage) == ()


def test_a_branch_on_which_rows_expire_is_in_no_cut(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, lazy_branches=1, **SMALL)
    (theirs,) = graph.branches()
    graph.manifest().create_branch(f"{EXPIRY_BRANCH_PREFIX}x")
    freeze = freeze_graph(graph)
    assert {b.branch for b in freeze.cut.branches} == {None, theirs}
    graph.lance.delete_branch(graph.manifest(), f"{EXPIRY_BRANCH_PREFIX}x")
    assert verify_cut(graph, freeze) == ()


def test_a_freeze_that_is_still_being_taken_is_none_yet(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph, refused = demo_graph(**SMALL), []

    def tagging() -> None:
        (hold,) = freezes(graph.storage)
        acts: list[Callable[[], object]] = [
            lambda: read_freeze(graph, hold.hold_id),
            lambda: backup_graph(graph, str(tmp_path / "backups"), BackupOptions(freeze_id=hold.hold_id)),
        ]
        for act in acts:
            with pytest.raises(InvalidInput, match="is still being taken"):
                act()
            refused.append(act)

    when_asked(monkeypatch, Tags, "create", tagging)
    freeze = freeze_graph(graph)
    assert len(refused) == 2
    assert read_freeze(graph, freeze.freeze_id) == freeze

"""An ended freeze stops nobody who may not delete its tags: they stay, a line says so, somebody else ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from lance.dataset import Tags

from omnigraph_ops.coordination import environment
from omnigraph_ops.coordination.freezes import refuse_frozen, sweep_ended, unfreeze
from omnigraph_ops.coordination.holds import hold_path, read_hold, write_hold
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import Graph
from omnigraph_ops.stages.freeze.take import freeze_graph, list_holds
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers
from tests.support.edges import raising, when_asked
from tests.support.freezes import freeze_tags

SMALL = {"loads": 3, "rows": 9, "node_types": 1}


def ended_freeze(graph: Graph) -> str:
    """A freeze whose time is over; its id. Writes."""
    freeze_id = freeze_graph(graph).freeze_id
    hold = read_hold(graph.storage, freeze_id)
    assert hold is not None
    write_hold(graph.storage, replace(hold, expires_at=time.time() - 1))
    return freeze_id


DENIED = raising(OSError("Access Denied"))


def optimize(graph: Graph) -> None:
    """Every table, and none fails. Writes."""
    assert [t.error for t in optimize_all(graph).tables if t.error] == []


def freeze(graph: Graph) -> None:
    """Take another one, and end that. Writes."""
    unfreeze(graph, freeze_graph(graph).freeze_id)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [optimize, recover, list_holds, freeze])
def test_what_may_not_delete_tags_works_beside_an_ended_freeze_and_says_so(
    demo_graph: DemoGraph,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stage: Callable[[Graph], object],
) -> None:
    graph = demo_graph(**SMALL)
    ended = ended_freeze(graph)
    tags = freeze_tags(graph.uri)
    with monkeypatch.context() as account:
        when_asked(account, Tags, "delete", DENIED, about=ended, times=None)
        stage(graph)
    assert freeze_tags(graph.uri) == tags
    assert f"ended freeze {ended}: tags stay until a run that may delete them comes by; cannot remove" in caplog.text
    assert sweep_ended(graph) == (ended,)
    assert freeze_tags(graph.uri) == set()
    assert_no_leftovers(graph)


def test_one_that_cannot_be_ended_keeps_no_other_one(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = demo_graph(**SMALL)
    kept, other = sorted((freeze_graph(graph).freeze_id, freeze_graph(graph).freeze_id))
    for freeze_id in (kept, other):
        hold = read_hold(graph.storage, freeze_id)
        assert hold is not None
        write_hold(graph.storage, replace(hold, expires_at=time.time() - 1))
    when_asked(monkeypatch, Tags, "delete", DENIED, about=kept, times=None)
    assert sweep_ended(graph) == (other,)


def test_who_may_only_read_sees_the_holds_beside_an_ended_freeze(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = demo_graph(**SMALL)
    ended = ended_freeze(graph)
    refused = raising(StorageError("cannot create it: Access Denied"))
    when_asked(monkeypatch, Storage, "create", refused, times=None)
    assert (list_holds(graph).holds, list_holds(graph).swept) == ((), ())
    assert "ended freezes: tags stay" in caplog.text
    when_asked(monkeypatch, Storage, "write", refused, times=None)
    environment._KNOWN.clear()
    refuse_frozen(graph)
    assert graph.storage.exists(hold_path(ended))
    assert freeze_tags(graph.uri)

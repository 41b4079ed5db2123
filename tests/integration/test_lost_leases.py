"""A run whose lease another one takes over right before its effect has none, and is credited with nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph_ops.coordination.landing import land
from omnigraph_ops.coordination.state import OPERATIONS_DIR
from omnigraph_ops.errors import LeaseHeld, OutcomeUnknown, StalePlan
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import version_path
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.graph.stamp3 import Stamp3
from omnigraph_ops.lance.commits import ConfigRemoval
from omnigraph_ops.models.optimize import OptimizeReport
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table
from omnigraph_ops.stages.optimize.units import optimize_internal
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.orphans.quarantine import purge, restore
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.beside import Beside
from tests.support.edges import raising, when_asked, when_committed, when_published
from tests.support.leases import bury_holders, take_over
from tests.support.orphans import plant, run
from tests.support.record_truth import Seen
from tests.support.sidecars import arm, move
from tests.support.waits import shorten_waits
from tests.support.writers import copies, delete_first, drift, entry_of, write

PERSON = "node:Person"
Effect = Callable[[Graph], object]


def _repair(graph: Graph) -> Effect:
    drift(graph, PERSON, delete_first())
    preview = preview_repair(graph)
    return lambda beside: apply_repair(beside, preview, force=True)


def _orphans(graph: Graph) -> Effect:
    plant(graph)
    plan = plan_orphans(graph)
    return lambda beside: apply_orphans(beside, plan)


def _restore(graph: Graph) -> Effect:
    return lambda beside: restore(beside, _quarantined(graph))


def _purge(graph: Graph) -> Effect:
    return lambda beside: purge(beside, _quarantined(graph))


def _quarantined(graph: Graph) -> str:
    plant(graph)
    name = run(graph, quarantine=True)[1].quarantine_id
    assert name is not None
    return name


def _internal(_graph: Graph) -> Effect:
    return optimize_internal


def _sidecar(graph: Graph) -> Effect:
    arm(graph)
    move(graph)
    return recover


def _unpublished(graph: Graph) -> Effect:
    with pytest.MonkeyPatch.context() as patch:
        when_published(patch, raising(OSError("the store is away")), times=None)
        with pytest.raises(OutcomeUnknown):
            optimize_table(graph, PERSON)
    for name in sidecar_names(graph.storage):
        graph.storage.delete(f"__recovery/{name}")
    return recover


def _late(graph: Graph) -> Effect:
    drift(graph, PERSON, delete_first())
    return recover


@pytest.mark.parametrize("begun", [_repair, _orphans, _restore, _purge, _internal, _sidecar, _unpublished, _late])
def test_a_unit_that_lost_its_lease_did_nothing(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, begun: Callable[[Graph], Effect]
) -> None:
    monkeypatch.setattr(Stamp3, "engines_lance", "lance 13.")  # the Lance of these tests is an engine's
    shorten_waits(monkeypatch)
    graph = demo_graph(stamp=3, loads=3, rows=20, node_types=1)
    effect = begun(open_graph(graph.uri))
    alone = open_graph(graph.uri, graph.settings.model_copy(update={"exclusive": True}))
    before = list[Seen]()

    def taken() -> None:
        take_over(alone.storage)
        before.append(Seen.of(alone))

    beside = Beside(taken)
    try:
        effect(alone.with_run(beside))
    except LeaseHeld as error:
        assert "taken over" in str(error)
    assert list(beside.came.values()) == [None]
    assert [Seen.of(alone)] == before


def test_a_table_that_another_run_optimized_is_not_told_of_the_one_that_lost_its_lease(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, stamp: int
) -> None:
    """Its commits have a mark, too."""
    graph = demo_graph(stamp=stamp, loads=3, rows=20, node_types=1)
    others = list[OptimizeReport]()

    def taken() -> None:
        take_over(graph.storage)
        bury_holders(graph.storage)
        others.append(optimize_all(open_graph(graph.uri), tables=[PERSON]))

    beside, came = open_graph(graph.uri), None
    when_asked(monkeypatch, Storage, "write", taken, about=OPERATIONS_DIR)
    (came,) = optimize_all(beside, tables=[PERSON]).tables
    assert [table.committed for table in others[0].tables] == [True]
    assert "taken over" in str(came.error)
    assert (came.committed, came.fragments_removed, came.published_version) == (False, 0, None)


def test_a_commit_that_lands_below_what_others_published_is_not_told_as_published(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, stamp: int
) -> None:
    """It hung until the lease was taken over, and a cleanup had removed the version that has its number."""
    graph = demo_graph(stamp=stamp, loads=3, rows=20, node_types=1)
    before = entry_of(graph, PERSON)

    def overtaken() -> None:
        take_over(graph.storage)
        for name in sidecar_names(graph.storage):
            graph.storage.delete(f"__recovery/{name}")
        for prefix in ("one", "two"):
            write(graph, PERSON, copies(prefix))
        graph.storage.delete(version_path(before.path, before.version + 1, None))

    when_committed(monkeypatch, overtaken)
    with pytest.raises(StalePlan, match="another writer published"):
        land(graph, before, [ConfigRemoval(keys=("none",))], unit="config")
    assert not sidecar_names(graph.storage)
    assert entry_of(graph, PERSON).version == before.version + 2

"""A write of engine 0.9.0 to Lance branches that another process removed: its sidecar goes, and all else stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import lance
import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.rows import rows_everywhere
from tests.support.sidecars import EDGE, OTHER, TABLE, Document, arm, pin_of
from tests.support.writers import copies, entry_of, write

pytestmark = pytest.mark.slow
SIDE = "side"
Change = Callable[[Document], None]


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    """One with a branch that publishes no table of its own."""
    made = demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)
    made.manifest().create_branch(SIDE)
    return made


def _fork(graph: Graph, table_key: str) -> lance.LanceDataset:
    entry = entry_of(graph, table_key, SIDE)
    fork = graph.open_pinned(entry).create_branch(SIDE, entry.version)
    copies("forked-")(fork)
    return fork


def _write(graph: Graph, change: Change = lambda _write: None) -> None:
    """Its commits to two tables, of which another process removed one, and its sidecar. Writes."""
    forks = [_fork(graph, table_key) for table_key in (TABLE, EDGE)]
    uuids = [fork.read_transaction(fork.latest_version).uuid for fork in forks]
    document: Document = {
        "lineage": {"graph_commit_id": new_ulid()},
        "rollback_graph_commit_id": new_ulid(),
        "effect_phase": "Armed",
        "effects": [{"planned_transaction": {"read_version": 1, "uuid": uuid}} for uuid in uuids],
        "rollback_audit_outcomes": [{"table_key": TABLE, "from_version": 4, "to_version": 3}],
    }
    change(document)
    pins = [pin_of(graph, key, SIDE) | {"table_branch": SIDE} for key in (TABLE, EDGE)]
    fields = {"branch": SIDE, "writer_kind": "Load", "tables": pins, "protocol_v3": document}
    arm(graph, change=lambda sidecar: sidecar.update(fields))


def _confirmed(write: Document) -> None:
    write |= {"effect_phase": "EffectsConfirmed"}
    del write["rollback_audit_outcomes"]


@pytest.mark.parametrize("change", [lambda _write: None, _confirmed], ids=["rolled back", "confirmed"])
def test_its_sidecar_goes(graph: Graph, change: Change) -> None:
    rows = rows_everywhere(graph)
    _write(graph, change)
    graph.lance.delete_branch(graph.open_pinned(entry_of(graph, TABLE)), SIDE)
    assert "removed what it had committed" in check(graph).sidecars[0].detail
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    check_lineage(graph, None)


def test_what_the_branch_publishes_since_is_on_another_chain(graph: Graph) -> None:
    """Its version may be higher than that of a Lance branch which is still there."""
    _write(graph)
    graph.lance.delete_branch(graph.open_pinned(entry_of(graph, TABLE)), SIDE)
    for _ in range(4):
        write(graph, EDGE, copies("merged-"))
    entry = entry_of(graph, EDGE, SIDE)
    publish(graph, (table_update(graph, entry, graph.open_head(entry)),), actor=None, branch=SIDE)
    rows = rows_everywhere(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


def _nothing_is_gone(graph: Graph) -> None:
    _write(graph)


def _nothing_was_made(graph: Graph) -> None:
    """The first write on a branch looks like this while it is at work."""
    _write(graph, lambda write: write.update(rollback_audit_outcomes=None))
    graph.lance.delete_branch(graph.open_pinned(entry_of(graph, TABLE)), SIDE)


def _one_is_published(graph: Graph) -> None:
    _write(graph)
    graph.lance.delete_branch(graph.open_pinned(entry_of(graph, TABLE)), SIDE)
    entry = entry_of(graph, EDGE, SIDE)
    forked = graph.lance.open(graph.table_uri(entry), branch=SIDE)
    publish(graph, (table_update(graph, replace(entry, branch=SIDE), forked),), actor=None, branch=SIDE)


def _it_is_published(graph: Graph) -> None:
    entry = entry_of(graph, OTHER, SIDE)
    publish(graph, (table_update(graph, entry, graph.open_pinned(entry)),), actor=None, branch=SIDE)
    visible = list(graph.format.commits(graph.context, SIDE))[-1].commit_id
    _write(graph, lambda write: write.update(lineage={"graph_commit_id": visible}))
    graph.lance.delete_branch(graph.open_pinned(entry_of(graph, TABLE)), SIDE)


@pytest.mark.parametrize("act", [_nothing_is_gone, _nothing_was_made, _one_is_published, _it_is_published])
def test_what_the_engine_can_settle_or_a_person_has_to_is_left(graph: Graph, act: Callable[[Graph], None]) -> None:
    act(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["left_to_engine"]

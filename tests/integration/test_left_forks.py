"""A write of engine 0.9.0 that was killed before it made Lance branches anew: its sidecar goes, and all else stays."""

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


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    """One with a branch that publishes newer versions of main than those from which its old Lance branches fork."""
    made = demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)
    made.manifest().create_branch(SIDE)
    for table_key in (TABLE, EDGE):
        main = made.open_pinned(entry_of(made, table_key))
        main.create_branch("another", main.version)
        copies("forked-")(_fork(made, table_key))
        write(made, table_key, copies("merged-"))
        entry = entry_of(made, table_key, SIDE)
        publish(made, (table_update(made, entry, made.open_head(entry)),), actor=None, branch=SIDE)
    return made


def _fork(graph: Graph, table_key: str) -> lance.LanceDataset:
    entry = entry_of(graph, table_key, SIDE)
    return graph.open_pinned(entry).create_branch(SIDE, entry.version)


def _arm(graph: Graph, *, kind: str = "Load", tables: tuple[str, ...] = (TABLE, EDGE), **write: object) -> None:
    pins = [pin_of(graph, key, SIDE) | {"table_branch": SIDE} for key in tables]
    document: Document = {
        "lineage": {"graph_commit_id": new_ulid()},
        "rollback_graph_commit_id": new_ulid(),
        "effect_phase": "Armed",
        **write,
    }
    protocol = {"Load": "protocol_v3", "BranchMerge": "protocol_v4", "EnsureIndices": "protocol_v8"}[kind]
    fields = {"branch": SIDE, "writer_kind": kind, "tables": pins, protocol: document}
    arm(graph, change=lambda sidecar: sidecar.update(fields))


def _remade(graph: Graph, table_key: str) -> lance.LanceDataset:
    graph.lance.delete_branch(graph.open_pinned(entry_of(graph, table_key)), SIDE)
    return _fork(graph, table_key)


def _none(_graph: Graph) -> None:
    """It was killed before it deleted the first one."""


def _one_is_gone(graph: Graph) -> None:
    graph.lance.delete_branch(graph.open_pinned(entry_of(graph, TABLE)), SIDE)


def _one_is_made(graph: Graph) -> None:
    _remade(graph, TABLE)


@pytest.mark.parametrize("act", [_none, _one_is_gone, _one_is_made])
def test_its_sidecar_goes(graph: Graph, act: Callable[[Graph], None]) -> None:
    rows = rows_everywhere(graph)
    act(graph)
    _arm(graph)
    assert "before it made the Lance branches of its tables anew" in check(graph).sidecars[0].detail
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    check_lineage(graph, None)


def test_a_table_on_a_chain_of_the_branch_is_rolled_back(graph: Graph) -> None:
    """A merge commits table by table, and makes the Lance branch of each when its turn comes."""
    forked = _remade(graph, TABLE)
    publish(
        graph, (table_update(graph, replace(entry_of(graph, TABLE), branch=SIDE), forked),), actor=None, branch=SIDE
    )
    rows = rows_everywhere(graph)
    entry = entry_of(graph, TABLE, SIDE)
    pin = {"identity": pin_of(graph, TABLE, SIDE)["identity"], "table_key": TABLE}
    copies("half-")(forked)
    uuid = graph.lance.open(graph.table_uri(entry), branch=SIDE).read_transaction(entry.version + 1).uuid
    effects = [pin | {"kind": {"kind": "MultiCommitHead", "planned_transactions": [{"read_version": 1, "uuid": uuid}]}}]
    _arm(graph, kind="BranchMerge", effects=effects)
    (outcome,) = recover(graph, grace_seconds=0).outcomes
    assert "the same merge fails until a load" in outcome.detail
    assert (outcome.action, outcome.from_version, outcome.to_version) == (
        "rolled_back",
        entry.version + 1,
        entry.version,
    )
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)


def _all_are_made(graph: Graph) -> None:
    for table_key in (TABLE, EDGE):
        _remade(graph, table_key)
    _arm(graph)


def _its_commit_landed(graph: Graph) -> None:
    effects = []
    for table_key in (TABLE, EDGE):
        version = entry_of(graph, table_key, SIDE).version
        forked = _remade(graph, table_key)
        copies("own-")(forked)
        uuid = forked.read_transaction(version + 1).uuid
        effects.append({"planned_transaction": {"read_version": version, "uuid": uuid}})
    _arm(graph, effects=effects)


def _a_merge_forks_where_they_are(graph: Graph) -> None:
    """Where a merge makes a Lance branch is a version of its source."""
    entry = entry_of(graph, OTHER, SIDE)
    graph.open_version(entry, entry.version - 1).create_branch(SIDE, entry.version - 1)
    pin = {"identity": pin_of(graph, OTHER, SIDE)["identity"], "table_key": OTHER}
    effects = [pin | {"kind": {"kind": "RefOnlyFork", "source_version": entry.version - 1}}]
    _arm(graph, kind="BranchMerge", tables=(OTHER,), effects=effects)


def _all_are_confirmed(graph: Graph) -> None:
    _arm(graph, effect_phase="EffectsConfirmed")


def _it_is_published(graph: Graph) -> None:
    visible = list(graph.format.commits(graph.context, SIDE))[-1].commit_id
    _arm(graph, lineage={"graph_commit_id": visible})


def _it_is_another_table(graph: Graph) -> None:
    _arm(graph, tables=(EDGE,))
    (path,) = graph.storage.list("__recovery")
    document = graph.storage.read(f"__recovery/{path}").replace(
        b'"table_incarnation_id": ', b'"table_incarnation_id": 9'
    )
    graph.storage.write(f"__recovery/{path}", document)


@pytest.mark.parametrize(
    "act",
    [
        _all_are_made,
        _its_commit_landed,
        _a_merge_forks_where_they_are,
        _all_are_confirmed,
        _it_is_published,
        _it_is_another_table,
    ],
)
def test_what_the_engine_can_settle_or_a_person_has_to_is_left(graph: Graph, act: Callable[[Graph], None]) -> None:
    act(graph)
    assert [outcome.action for outcome in recover(graph, grace_seconds=0).outcomes] == ["left_to_engine"]

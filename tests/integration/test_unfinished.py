"""Loads and mutations of engine 0.7 that did not commit to all of their tables, beside a server that opens nothing."""

from __future__ import annotations

import pytest

from omnigraph_ops.errors import PublishConflict, StalePlan
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.graph.stamp3 import Stamp3
from omnigraph_ops.models.health import CheckStatus, RecoveryOutcome
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.support.rows import rows_everywhere
from tests.support.sidecars import Document, arm
from tests.support.waits import shorten_waits
from tests.support.writers import copies, drift, entry_of

PERSON, KNOWS = "node:Person", "edge:Knows"


@pytest.fixture
def graph(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """A graph of stamp 3 whose engine writes with the Lance of these tests."""
    monkeypatch.setattr(Stamp3, "engines_lance", "lance 13.")
    shorten_waits(monkeypatch)
    return demo_graph(stamp=3, node_types=1)


def announce(graph: Graph, *, kind: str = "Load", is_confirmed: bool = False, age_seconds: float = 3600) -> None:
    """The sidecar of a write to two tables, each of which it is to move by one version. Writes."""

    def change(document: Document) -> None:
        knows = entry_of(graph, KNOWS)
        (other,) = graph.format.sidecar(knows, graph.table_uri(knows), new_ulid(), 0)["tables"]
        document |= {"writer_kind": kind, "tables": [*document["tables"], other]}
        for pin in document["tables"]:
            pin["post_commit_pin"] = pin["expected_version"] + 1
            pin.update({"confirmed_version": pin["post_commit_pin"]} if is_confirmed else {})

    arm(graph, PERSON, age_seconds=age_seconds, change=change)


def settled(graph: Graph, grace_seconds: float = 0) -> RecoveryOutcome:
    (outcome,) = recover(open_graph(graph.uri), grace_seconds=grace_seconds).outcomes
    return outcome


@pytest.mark.parametrize("kind", ["Load", "Mutation", "BranchMerge"])
@pytest.mark.parametrize("moved", [(PERSON,), (KNOWS,), ()])
def test_it_is_rolled_back_and_no_row_is_lost(graph: Graph, kind: str, moved: tuple[str, ...]) -> None:
    rows = rows_everywhere(graph)
    announce(graph, kind=kind)
    for key in moved:
        drift(graph, key, copies("late", 2))
    found = check(graph)
    assert (found.status, found.sidecars[0].recoverable) == (CheckStatus.PENDING, True)
    assert "was not done with all of its tables" in found.sidecars[0].detail
    assert settled(graph).action == "rolled_back"
    after = open_graph(graph.uri)
    assert (sidecar_names(after.storage), check(after).status) == (frozenset(), CheckStatus.CLEAN)
    assert rows_everywhere(after) == rows


def test_a_writer_that_is_alive_cannot_publish_afterwards(graph: Graph) -> None:
    announce(graph)
    drift(graph, PERSON, copies("late", 2))
    late = table_update(graph, entry_of(graph, PERSON), graph.open_head(entry_of(graph, PERSON)))
    rows = rows_everywhere(graph)
    assert settled(graph).action == "rolled_back"
    with pytest.raises((PublishConflict, StalePlan)):
        publish(open_graph(graph.uri), (late,), actor=None)
    assert rows_everywhere(open_graph(graph.uri)) == rows


def all_moved(graph: Graph) -> None:
    for key in (PERSON, KNOWS):
        drift(graph, key, copies("late", 2))


def test_what_a_server_finishes_by_itself_is_left_to_it(graph: Graph) -> None:
    announce(graph)
    all_moved(graph)
    heads = {key: graph.open_head(entry_of(graph, key)).version for key in (PERSON, KNOWS)}
    assert settled(graph).action == "left_to_engine"
    assert {key: graph.open_head(entry_of(graph, key)).version for key in heads} == heads


def test_a_merge_whose_tables_moved_is_rolled_back_until_it_says_that_it_is_done(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    announce(graph, kind="BranchMerge")
    all_moved(graph)
    assert settled(graph).action == "rolled_back"
    assert rows_everywhere(open_graph(graph.uri)) == rows


def test_a_merge_that_says_that_it_is_done_is_left_to_a_server(graph: Graph) -> None:
    announce(graph, kind="BranchMerge", is_confirmed=True)
    all_moved(graph)
    assert settled(graph).action == "left_to_engine"


def test_what_another_lance_wrote_is_left_to_the_engine(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(graph)
    drift(graph, PERSON, copies("late", 2))
    monkeypatch.setattr(Stamp3, "engines_lance", "lance 7.")
    head = graph.open_head(entry_of(graph, PERSON)).version
    assert settled(graph).action == "left_to_engine"
    assert graph.open_head(entry_of(graph, PERSON)).version == head


def test_one_that_may_be_at_work_is_left_for_the_grace_period(graph: Graph) -> None:
    announce(graph, age_seconds=5)
    drift(graph, PERSON, copies("late", 2))
    assert settled(graph, grace_seconds=900).action == "deferred"
    assert settled(graph).action == "rolled_back"


def test_one_that_is_published_is_left_to_the_server(graph: Graph) -> None:
    announce(graph)
    all_moved(graph)
    entries = [entry_of(graph, key) for key in (PERSON, KNOWS)]
    publish(graph, tuple(table_update(graph, entry, graph.open_head(entry)) for entry in entries), actor=None)
    assert settled(graph).action == "left_to_engine"

"""Writes of two processes of the engine that crossed: rolled back, or left alone where anything is not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models.health import CheckStatus, SidecarClass
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.conftest import DemoGraph
from tests.crash.harness_state import QUICK, check_lineage
from tests.support.rows import rows_everywhere
from tests.support.sidecars import EDGE, OTHER, TABLE, append_foreign_row, audit_rows, commit_rows, cross
from tests.support.writers import copies, entry_of, write


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(stamp=6, loads=3, rows=8, settings=QUICK)


def _sidecars(graph: Graph) -> list[str]:
    return [f"__recovery/{name}" for name in sorted(sidecar_names(graph.storage))]


def test_both_are_rolled_back_and_the_tables_can_be_written(graph: Graph) -> None:
    rows = rows_everywhere(graph)
    cross(graph)
    found = [(s.classification, s.recoverable) for s in check(graph).sidecars]
    assert found == [(SidecarClass.ROLL_BACK, True)] * 2
    assert [outcome.action for outcome in recover(graph).outcomes] == ["rolled_back"] * 2
    assert (check(graph).status, rows_everywhere(graph)) == (CheckStatus.CLEAN, rows)
    assert all(graph.open_head(entry_of(graph, key)).version == entry_of(graph, key).version for key in (TABLE, EDGE))
    assert [row["recovery_kind"] for row in audit_rows(graph)] == ["RolledBack"] * 2
    check_lineage(graph, None)


def test_it_waits_for_the_youngest_of_them(graph: Graph) -> None:
    cross(graph)
    Path(graph.uri, _sidecars(graph)[1]).touch()
    assert [outcome.action for outcome in recover(graph, grace_seconds=600).outcomes] == ["deferred"] * 2


def _one_is_published(graph: Graph) -> None:
    write(graph, OTHER, lambda _head: None)
    document = json.loads(graph.storage.read(_sidecars(graph)[0]))
    document["protocol_v3"]["lineage"]["graph_commit_id"] = commit_rows(graph)[-1]["graph_commit_id"]
    graph.storage.write(_sidecars(graph)[0], json.dumps(document).encode())


def _one_is_gone(graph: Graph) -> None:
    graph.storage.delete(_sidecars(graph)[0])


LEFT: dict[str, Callable[[Graph], object]] = {
    "somebody else committed": append_foreign_row,
    "somebody else published": lambda graph: write(graph, TABLE, copies("later-")),
    "one of them is published": _one_is_published,
    "one of them is unknown": _one_is_gone,
}


@pytest.mark.parametrize("act", LEFT.values(), ids=LEFT)
def test_what_is_not_known_is_left_to_a_person(graph: Graph, act: Callable[[Graph], object]) -> None:
    cross(graph)
    act(graph)
    before = {key: (entry_of(graph, key), graph.open_head(entry_of(graph, key)).version) for key in (TABLE, EDGE)}
    assert check(graph).status is CheckStatus.NEEDS_PERSON
    assert {outcome.action for outcome in recover(graph).outcomes} == {"left_to_engine"}
    after = {key: (entry_of(graph, key), graph.open_head(entry_of(graph, key)).version) for key in (TABLE, EDGE)}
    assert after == before

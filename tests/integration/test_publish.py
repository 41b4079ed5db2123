"""A publish is all or nothing: one pin that moved refuses every table of it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lance.dataset import MergeInsertBuilder

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import OpsError, OutcomeUnknown, PublishConflict, StalePlan
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.schema import TableIdentity
from omnigraph_ops.lance.gateway import LanceFailure
from omnigraph_ops.models.repair import RepairAction
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.conftest import DemoGraph
from tests.crash.harness_state import check_lineage
from tests.support.beside import Beside
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.edges import when_published
from tests.support.rows import rows_of
from tests.support.sidecars import commit_rows
from tests.support.writers import copies, entry_of, write

DRIFTED = ("node:Doc", "node:Person")
TWO = {"loads": 3, "rows": 8, "drift_tables": DRIFTED}

_EXECUTE = MergeInsertBuilder.execute


def heads(graph: Graph) -> dict[str, int]:
    return {key: graph.open_head(entry_of(graph, key)).version for key in DRIFTED}


def pins(graph: Graph) -> dict[str, int]:
    return {key: entry_of(graph, key).version for key in DRIFTED}


def publish_one(graph: Graph, key: str) -> None:
    """Another repair heals one of the tables."""
    entry = entry_of(graph, key)
    publish(graph, (table_update(graph, entry, graph.open_head(entry)),), actor="rival")


@pytest.mark.slow
@pytest.mark.parametrize("moved", DRIFTED)
def test_a_pin_that_moves_before_the_publish_refuses_all_tables(demo_graph: DemoGraph, stamp: int, moved: str) -> None:
    graph = demo_graph(stamp=stamp, **TWO)
    preview, before = preview_repair(graph), pins(graph)

    rival = Beside(lambda: write(graph, moved, copies("rival-")))
    with pytest.raises(StalePlan, match=f"stale view of '{moved}': expected manifest table version {before[moved]}"):
        apply_repair(graph.with_run(rival), preview)
    (other,) = set(DRIFTED) - {moved}
    assert pins(graph) == {other: before[other], moved: heads(graph)[moved]}
    assert [c["actor_id"] for c in commit_rows(graph) if c["actor_id"]] == []
    assert_no_leftovers(graph)
    assert apply_repair(graph, preview_repair(graph)).manifest_version == graph.manifest().version
    assert_pins_are_heads(graph)


@pytest.mark.slow
def test_the_publish_itself_checks_every_expectation(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **TWO)
    updates = tuple(table_update(graph, e, graph.open_head(e)) for e in (entry_of(graph, key) for key in DRIFTED))
    publish_one(graph, DRIFTED[1])
    version, before, commits = graph.manifest().version, pins(graph), commit_rows(graph)
    with pytest.raises(StalePlan, match="stale view of 'node:Person'"):
        publish(graph, updates, actor=None)
    other_life = TableIdentity(stable_table_id=77, table_incarnation_id=77)
    with pytest.raises(StalePlan, match="stale view of 'node:Doc'"):
        publish(graph, (replace(updates[0], entry=replace(updates[0].entry, identity=other_life)),), actor=None)
    assert (graph.manifest().version, pins(graph), commit_rows(graph)) == (version, before, commits)


@pytest.mark.slow
def test_of_two_overlapping_publishers_one_wins(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **TWO)
    rows, preview = rows_of(graph), preview_repair(graph)
    before, commits = pins(graph), len(commit_rows(graph))
    rival = open_graph(graph.uri)
    when_published(monkeypatch, lambda: publish_one(rival, "node:Person"))
    with pytest.raises(StalePlan, match="stale view of 'node:Person'"):
        apply_repair(graph, preview)
    assert pins(graph) == {"node:Doc": before["node:Doc"], "node:Person": heads(graph)["node:Person"]}
    assert len(commit_rows(graph)) == commits + 1
    check_lineage(graph, None)
    assert rows_of(graph) == rows
    again = apply_repair(graph, preview_repair(graph))
    assert [r.table_key for r in again.tables if r.action is RepairAction.HEALED] == ["node:Doc"]


@pytest.mark.slow
@pytest.mark.parametrize("stamp", [6])
def test_a_publish_that_always_loses_publishes_nothing(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(stamp=stamp, **TWO, settings=Settings(publish_attempts=2))
    rival, before = open_graph(graph.uri), pins(graph)
    when_published(monkeypatch, lambda: publish(rival, (), actor="rival"), times=None)
    with pytest.raises(PublishConflict, match="exhausted 1 retries against concurrent writers"):
        apply_repair(graph, preview_repair(graph))
    assert pins(graph) == before
    assert [c["actor_id"] for c in commit_rows(graph) if c["actor_id"]] == ["rival", "rival"]


def landed(builder: MergeInsertBuilder, rows: Any, _graph: Graph) -> None:
    _EXECUTE(builder, rows)


def lost(_builder: MergeInsertBuilder, _rows: Any, _graph: Graph) -> None:
    """The request never arrived."""


def away(_builder: MergeInsertBuilder, _rows: Any, graph: Graph) -> None:
    Path(graph.uri, MANIFEST_DIR).rename(Path(graph.uri, "away"))


@pytest.mark.parametrize(
    ("act", "error"),
    [(landed, None), (lost, (LanceFailure, "connection reset")), (away, (OutcomeUnknown, "could not be read back"))],
)
def test_what_became_of_a_publish_without_a_reply_is_read_back(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, act: Any, error: tuple[type[OpsError], str] | None
) -> None:
    graph = demo_graph(**TWO)
    before, commits = pins(graph), len(commit_rows(graph))

    def without_a_reply(builder: MergeInsertBuilder, rows: Any) -> None:
        act(builder, rows, graph)
        raise OSError("connection reset")

    with monkeypatch.context() as network:
        network.setattr(MergeInsertBuilder, "execute", without_a_reply)
        with contextlib.nullcontext() if error is None else pytest.raises(error[0], match=error[1]):
            publish_one(graph, "node:Doc")
    if act is away:
        Path(graph.uri, "away").rename(Path(graph.uri, MANIFEST_DIR))
    assert pins(graph) == (before | {"node:Doc": heads(graph)["node:Doc"]} if act is landed else before)
    assert len(commit_rows(graph)) == commits + (act is landed)

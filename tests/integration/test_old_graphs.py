"""Graphs of stamp 3 that are older than the commit graph: all of it is optional, and nothing of it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import ACTORS_DIR, COMMITS_DIR
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.repair import RepairAction
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_pins_are_heads
from tests.support.rows import rows_of
from tests.support.sidecars import arm, audit_rows, move

PERSON = "node:Person"
ALONE = Settings(exclusive=True, recovery_grace_seconds=0)


def without(graph: Graph, *datasets: str) -> Graph:
    """The graph as an engine wrote it that did not know those datasets."""
    for name in datasets:
        graph.storage.delete_tree(name)
    return graph


@pytest.fixture(params=[(COMMITS_DIR, ACTORS_DIR), (ACTORS_DIR,)], ids=["no lineage", "no actors"])
def missing(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """What the old graph lacks."""
    return tuple(request.param)


@pytest.mark.slow
def test_optimize_lists_the_internal_tables_that_are_there(demo_graph: DemoGraph, missing: tuple[str, ...]) -> None:
    graph = without(demo_graph(stamp=3, loads=3, rows=10, node_types=1, settings=ALONE), *missing)
    rows = rows_of(graph)
    report = optimize_all(graph)
    assert not report.failed
    internal = [t.table_key for t in report.tables if t.table_key.startswith("_")]
    assert internal == ["__manifest"] + ([] if COMMITS_DIR in missing else ["_graph_commits"])
    assert rows_of(graph) == rows
    assert_converged(graph)
    assert not any(Path(graph.uri, name).exists() for name in missing)


@pytest.mark.slow
def test_repair_and_cleanup_do_without_lineage(demo_graph: DemoGraph, missing: tuple[str, ...]) -> None:
    drifted = demo_graph(stamp=3, loads=3, rows=10, node_types=1, drift_tables=(PERSON,), settings=ALONE)
    graph = without(drifted, *missing)
    rows, manifest = rows_of(graph), graph.manifest().version
    report = apply_repair(graph, preview_repair(graph))
    assert [r.table_key for r in report.tables if r.action is RepairAction.HEALED] == [PERSON]
    assert report.manifest_version == graph.manifest().version == manifest + 1
    assert_pins_are_heads(graph)
    assert not cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1))).failed
    assert rows_of(graph) == rows
    assert not any(Path(graph.uri, name).exists() for name in missing)


@pytest.mark.parametrize("moved", [True, False], ids=["roll_forward", "roll_back"])
def test_recover_does_without_lineage(demo_graph: DemoGraph, missing: tuple[str, ...], moved: bool) -> None:
    graph = without(demo_graph(stamp=3, loads=3, rows=10, node_types=1, settings=ALONE), *missing)
    rows, kept = rows_of(graph), COMMITS_DIR not in missing
    commits = _commit_ids(graph) if kept else []
    operation_id = arm(graph)
    if moved:
        move(graph)
    assert recover(graph).status is CheckStatus.CLEAN
    (audit,) = audit_rows(graph)
    assert (audit["operation_id"], audit["recovery_kind"]) == (operation_id, "RolledForward" if moved else "RolledBack")
    assert _commit_ids(graph)[len(commits) :] == ([audit["graph_commit_id"]] if kept else [])
    assert check(graph).drift == ()
    assert rows_of(graph) == rows
    assert not any(Path(graph.uri, name).exists() for name in missing)


def _commit_ids(graph: Graph) -> list[str]:
    if not Path(graph.uri, COMMITS_DIR).exists():
        return []
    return graph.lance.open(graph.storage.uri(COMMITS_DIR)).to_table()["graph_commit_id"].to_pylist()

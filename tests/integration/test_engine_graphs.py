"""Graphs that the real engines wrote: one optimize brings each to its converged state, rows as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import SkipReason
from omnigraph_ops.models.repair import Classification
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.support.converged import assert_converged
from tests.support.engine_graphs import NAMES, RELEASES, unpacked
from tests.support.rows import rows_everywhere, tree_of

pytestmark = pytest.mark.slow

STAMPS = {"0.7.2": 3, "0.9.0": 6}


@pytest.fixture(params=[f"{release}/{name}" for release in RELEASES for name in NAMES])
def engine_graph(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Graph]:
    """Each graph of both releases, private to the test."""
    release, _, name = str(request.param).partition("/")
    with unpacked(release, name, tmp_path) as root:
        graph = open_graph(str(root), Settings())
        assert graph.stamp == STAMPS[release]
        yield graph


def heal(graph: Graph) -> None:
    """Release 0.7.2 itself left drift in `churned`; a person publishes it."""
    preview = preview_repair(graph)
    if preview.drifted:
        assert {r.classification for r in preview.drifted} == {Classification.SUSPICIOUS}
        apply_repair(graph, preview, force=True)


@pytest.mark.night("combinations")
@pytest.mark.xdist_group("engine-graphs")
def test_a_night_on_it_changes_no_row(engine_graph: Graph) -> None:
    graph = engine_graph
    published = rows_everywhere(graph)
    drifted = {r.table_key for r in preview_repair(graph).drifted}
    assert check(graph).status is (CheckStatus.PENDING if drifted else CheckStatus.CLEAN)
    first = optimize_all(graph)
    assert first.failed == ()
    skipped = {t.table_key for t in first.tables if t.skipped is SkipReason.DRIFT}
    assert skipped == drifted
    assert rows_everywhere(graph) == published
    heal(graph)
    healed = rows_everywhere(graph)
    assert {k: v for k, v in healed[None].items() if k not in drifted} == {
        k: v for k, v in published[None].items() if k not in drifted
    }
    assert optimize_all(graph).failed == ()
    assert_converged(graph)
    clean_up(graph)
    assert rows_everywhere(graph) == healed
    tree = tree_of(graph.uri)
    assert not any(t.committed for t in optimize_all(graph).tables)
    assert tree_of(graph.uri) == tree


def test_recover_rolls_back_what_0_7_2_deleted_and_refused(tmp_path: Path) -> None:
    with unpacked("0.7.2", "churned", tmp_path) as root:
        graph = open_graph(str(root), Settings())
        published = rows_everywhere(graph)
        assert {o.action for o in recover(graph).outcomes} == {"rolled_back"}
        assert check(graph).status is CheckStatus.CLEAN
        assert not preview_repair(graph).drifted
        assert optimize_all(graph).failed == ()
        assert_converged(graph)
        assert rows_everywhere(graph) == published


def clean_up(graph: Graph) -> None:
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    report = cleanup_all(graph, plan)
    assert report.failed == ()
    assert [t.versions for t in report.tables] == [t.versions for t in plan.tables]


def test_the_drift_that_0_7_2_left_is_seen_as_the_engine_sees_it(tmp_path: Path) -> None:
    with unpacked("0.7.2", "churned", tmp_path) as root:
        drifted = preview_repair(open_graph(str(root), Settings())).drifted
    assert len(drifted) == 3
    assert all("Delete" in r.operations for r in drifted)

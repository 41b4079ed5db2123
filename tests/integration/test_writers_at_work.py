"""What a writer leaves between its commit and its publish is not taken for drift, nor its sidecar for a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from omnigraph_ops.coordination import guards
from omnigraph_ops.errors import RecoveryPending
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.sidecars import sidecar_path, write_sidecar
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import OptimizeDecision, SkipReason
from omnigraph_ops.models.repair import Classification, RepairAction
from omnigraph_ops.progress import Run
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.conftest import DemoGraph
from tests.support.tables import PERSON
from tests.support.writers import copies, delete_first, drift, entry_of

KEEP_1 = RetentionPolicy(keep_versions=1)
KNOWS = "edge:Knows"
SMALL = {"node_types": 1, "loads": 3, "rows": 8}


class Meanwhile(Run):
    """Lets something happen whenever it is waited."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def pause(self, seconds: float) -> None:
        self.act()


def beside(graph: Graph, act: Callable[[], object]) -> Graph:
    return graph.under(replace(graph.run_context, run=Meanwhile(act)))


def half_written(graph: Graph) -> Callable[[], object]:
    """Commit to a table as a writer does that is about to publish; what publishes that, once. Writes."""
    entry = entry_of(graph, PERSON)
    copies("half-")(graph.open_head(entry))
    updates = [(table_update(graph, entry, graph.open_head(entry)),)]
    return lambda: publish(graph, updates.pop(), actor=None) if updates else None


def armed(graph: Graph) -> str:
    """Put the sidecar of another writer; its path. Writes."""
    operation_id = new_ulid()
    write_sidecar(graph, entry_of(graph, PERSON), operation_id, graph.uri)
    return sidecar_path(operation_id)


@pytest.fixture
def graph(demo_graph: DemoGraph, stamp: int) -> Graph:
    return demo_graph(stamp=stamp, **SMALL)


@pytest.mark.slow
def test_a_commit_that_is_published_a_moment_later_is_no_drift(graph: Graph) -> None:
    assert check(beside(graph, half_written(graph))).status is CheckStatus.CLEAN
    plan = plan_optimize(beside(graph, half_written(graph)))
    assert {t.table_key: t.decision for t in plan.tables}[PERSON] is OptimizeDecision.OPTIMIZE
    refused = {t.table_key: t.refused for t in plan_cleanup(beside(graph, half_written(graph)), KEEP_1).tables}
    assert refused[PERSON] is None
    (row,) = preview_repair(beside(graph, half_written(graph)), tables=(PERSON,)).rows
    assert (row.classification, row.lance_head_version) == (Classification.NO_DRIFT, row.manifest_version)


@pytest.mark.slow
def test_a_table_that_is_written_when_its_turn_comes_is_optimized_and_cleaned_up_all_the_same(graph: Graph) -> None:
    stats = optimize_table(beside(graph, half_written(graph)), PERSON)
    assert (stats.skipped, stats.committed) == (None, True)
    plan = plan_cleanup(graph, KEEP_1)
    report = cleanup_all(beside(graph, half_written(graph)), plan)
    assert {t.table_key: t.error for t in report.tables}[PERSON] is None
    assert report.versions_removed > 0


def test_a_repair_is_applied_while_another_table_is_written(graph: Graph) -> None:
    drift(graph, KNOWS, delete_first())
    preview = preview_repair(graph)
    report = apply_repair(beside(graph, half_written(graph)), preview, force=True)
    assert {t.table_key: t.action for t in report.tables if t.action is not RepairAction.NO_OP} == {
        KNOWS: RepairAction.FORCED
    }
    assert check(graph).status is CheckStatus.CLEAN


@pytest.mark.slow
def test_what_stays_is_drift_as_before(graph: Graph) -> None:
    copies("left-")(graph.open_head(entry_of(graph, PERSON)))
    alone = beside(graph, lambda: None)
    found = check(alone)
    assert (found.status, [d.table_key for d in found.drift]) == (CheckStatus.DRIFTED, [PERSON])
    assert {t.table_key: t.skipped for t in optimize_all(alone).tables}[PERSON] is SkipReason.DRIFT
    stats = optimize_table(alone, PERSON)
    assert (stats.skipped, stats.committed) == (SkipReason.DRIFT, False)
    assert "drift" in str({t.table_key: t.refused for t in plan_cleanup(alone, KEEP_1).tables}[PERSON])


@pytest.mark.slow
def test_a_sidecar_that_goes_in_a_moment_stops_nobody(graph: Graph) -> None:
    def passing() -> Graph:
        path = armed(graph)
        return beside(graph, lambda: graph.storage.delete(path))

    assert check(passing()).status is CheckStatus.CLEAN
    assert preview_repair(passing()).rows
    assert plan_orphans(passing()).files == ()
    assert not optimize_all(passing()).failed
    plan = plan_cleanup(passing(), KEEP_1)
    assert cleanup_all(passing(), plan).versions_removed > 0


def test_a_busy_writer_has_another_sidecar_at_every_look_and_is_no_finding(graph: Graph) -> None:
    paths = [armed(graph)]

    def again() -> None:
        paths.append(armed(graph))
        graph.storage.delete(paths[-2])

    found = check(beside(graph, again))
    assert (found.status, found.sidecars, found.drift) == (CheckStatus.CLEAN, (), ())


def test_writers_one_after_the_other_stop_nobody(graph: Graph) -> None:
    paths = [armed(graph)]

    def again() -> None:
        paths.append(armed(graph))
        graph.storage.delete(paths[-2])

    for looked in (preview_repair, plan_orphans, lambda busy: plan_cleanup(busy, KEEP_1)):
        looked(beside(graph, again))
    assert len(paths) > 3 * 9


@pytest.mark.parametrize(("age", "looks"), [(0, 25), (120, 10)])
def test_a_writer_that_takes_long_is_waited_for_while_its_sidecar_is_young(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, age: int, looks: int
) -> None:
    monkeypatch.setattr(guards, "_MOST_LOOKS", 100)
    publishing, path, pauses = half_written(graph), armed(graph), list[None]()
    document = json.loads(graph.storage.read(path))
    document["started_at"] = str(int(document["started_at"]) - age * 1_000_000)
    graph.storage.write(path, json.dumps(document).encode())

    def at_work() -> None:
        pauses.append(None)
        if len(pauses) == 24:
            publishing()
            graph.storage.delete(path)

    busy = beside(graph, at_work)
    if age:
        with pytest.raises(RecoveryPending):
            optimize_table(busy, PERSON)
    else:
        assert optimize_table(busy, PERSON).committed
    assert len(pauses) == looks - 1


def test_a_sidecar_that_stays_is_pending_as_before(graph: Graph) -> None:
    armed(graph)
    alone = beside(graph, lambda: None)
    assert check(alone).status is CheckStatus.PENDING
    for refused in (optimize_all, preview_repair, plan_orphans):
        with pytest.raises(RecoveryPending, match="1 pending recovery sidecar"):
            refused(alone)

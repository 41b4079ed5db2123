"""Consent covers exact files, in time: more than was approved never goes, and what is held stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import sealed
from omnigraph_ops.coordination.holds import HeldVersion, HoldKind, active_holds, place_hold, release_hold
from omnigraph_ops.coordination.rewrite_journal import TaskOrder
from omnigraph_ops.coordination.state import HOLDS_DIR
from omnigraph_ops.errors import CorruptGraph, StalePlan
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.cleanup import CleanupPlan, RetentionPolicy, SnapshotExpiry, TableCleanupPlan
from omnigraph_ops.stages.cleanup.apply import cleanup_all, cleanup_table, remove_orphaned_forks
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor
from tests.conftest import DemoGraph
from tests.support.leases import is_lease
from tests.support.rows import rows_everywhere, tree_of
from tests.support.tables import versions
from tests.support.writers import copies, entry_of, write

SMALL = {"loads": 4, "rows": 12, "node_types": 1}
PERSON = "node:Person"
KEEP_1 = RetentionPolicy(keep_versions=1)


def person(plan: CleanupPlan) -> TableCleanupPlan:
    return next(t for t in plan.tables if t.table_key == PERSON)


def files_of(graph: Graph) -> set[str]:
    return {name for name, kind in tree_of(graph.uri).items() if kind != "folder" and not is_lease(name)}


@pytest.mark.slow
@pytest.mark.parametrize("branches", [{}, {"written_branches": 1, "lazy_branches": 1}], ids=["main", "branches"])
def test_the_plan_lists_every_file_that_goes_with_its_size(
    demo_graph: DemoGraph, stamp: int, branches: dict[str, int]
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, **branches)
    optimize_all(graph)
    plan = plan_cleanup(graph, KEEP_1)
    sizes = {f.path: f.size for t in plan.tables for f in t.files}
    assert {p: Path(graph.uri, p).stat().st_size for p in sizes} == sizes
    before = files_of(graph)
    cleanup_all(graph, plan)
    assert before - files_of(graph) == set(sizes)
    assert sum(sizes.values()) == plan.total_bytes


@pytest.mark.slow
def test_files_that_an_orphaned_fork_shares_are_in_the_plan(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    optimize_all(graph)
    graph.manifest().branches.delete("review/hires-1")
    plan = plan_cleanup(graph, KEEP_1)
    before = files_of(graph)
    report = cleanup_all(graph, plan)
    assert not report.failed
    approved = {f.path for t in plan.tables for f in t.files}
    approved |= {f.path for fork in plan.orphaned_forks for f in fork.files}
    gone = {f for f in before - files_of(graph) if "/_refs/" not in f}
    assert gone <= approved
    assert any("/data/" in f and "/tree/" not in f for f in gone), "what only the fork still read went with it"


def test_more_files_than_were_approved_never_go(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    plan = plan_cleanup(graph, KEEP_1)
    table = person(plan)
    missing = table.files[-1]
    fewer = sealed.seal(
        replace(plan, tables=tuple(replace(t, files=t.files[:-1]) if t is table else t for t in plan.tables))
    )
    tree = tree_of(graph.uri)
    with pytest.raises(StalePlan, match="1 file would go that were not in the approved plan") as refused:
        cleanup_table(graph, fewer, PERSON)
    assert f"{missing.path} ({missing.size} bytes)" in str(refused.value)
    assert {k: v for k, v in tree_of(graph.uri).items() if not k.startswith("__maintenance")} == tree


@pytest.mark.slow
def test_a_fork_that_grew_since_the_plan_stays(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    graph.manifest().branches.delete("review/hires-1")
    plan = plan_cleanup(graph, KEEP_1)
    fork = graph.lance.open(graph.table_uri(entry_of(graph, PERSON)), branch="review/hires-1")
    copies("late-")(fork)
    (outcome,) = (f for f in remove_orphaned_forks(graph, plan) if f.table_key == PERSON)
    assert "would go that were not in the approved plan" in (outcome.error or "")


@pytest.mark.slow
def test_a_tagged_or_held_fork_is_kept_with_the_reason(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=2)
    for name in ("review/hires-1", "review/hires-2"):
        graph.manifest().branches.delete(name)
    early = plan_cleanup(graph, KEEP_1)
    entry = entry_of(graph, PERSON)
    head = graph.open_head(entry)
    fork = graph.lance.open(graph.table_uri(entry), branch="review/hires-1")
    head.tags.create("audit", ("review/hires-1", fork.version))
    held = HeldVersion(table_path=entry.path, version=fork.version, branch="review/hires-2")
    place_hold(graph.storage, (held,), kind=HoldKind.FREEZE, reason="backup", ttl_seconds=60)
    plan = plan_cleanup(graph, KEEP_1)
    kept = {f.branch: f.error or "" for f in plan.kept_forks if f.table_key == PERSON}
    assert kept["review/hires-1"] == "tag 'audit' keeps it"
    assert kept["review/hires-2"].startswith("freeze hold ")
    assert [f for f in plan.orphaned_forks if f.table_key == PERSON] == []
    assert [f for f in remove_orphaned_forks(graph, early) if f.table_key == PERSON] == [], "subtracted since"
    assert fork.checkout_latest() is None
    assert fork.count_rows() > 0


@pytest.mark.parametrize("kind", list(HoldKind))
def test_a_held_version_stays_until_it_is_released(demo_graph: DemoGraph, stamp: int, kind: HoldKind) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    entry, plan = entry_of(graph, PERSON), plan_cleanup(graph, KEEP_1)
    held = HeldVersion(table_path=entry.path, version=3)
    hold = place_hold(graph.storage, (held,), kind=kind, reason="why not", ttl_seconds=60)
    reasons = {p.version: p.reasons for p in person(plan_cleanup(graph, KEEP_1)).protected}
    assert reasons[3] == (hold.label(),)
    stats = cleanup_table(graph, plan, PERSON)
    assert stats.skipped_since_protected == (3,)
    assert versions(graph) == [3, entry.version]
    release_hold(graph.storage, hold.hold_id)
    cleanup_all(graph, plan_cleanup(graph, KEEP_1))
    assert versions(graph) == [entry.version]


def test_versions_that_somebody_else_removed_are_told(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    plan = plan_cleanup(graph, KEEP_1)
    cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=3)))
    stats = cleanup_table(graph, plan, PERSON)
    assert (stats.old_versions_removed, stats.already_gone) == (2, len(person(plan).versions) - 2)
    assert cleanup_table(graph, plan, PERSON).already_gone == len(person(plan).versions)


def test_an_unreadable_hold_stops_plan_and_apply(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plan = plan_cleanup(graph, KEEP_1)
    graph.storage.write(f"{HOLDS_DIR}/x.json", b"?")
    tree = tree_of(graph.uri)
    with pytest.raises(CorruptGraph, match="what it protects is unknown"):
        plan_cleanup(graph, KEEP_1)
    assert all("what it protects is unknown" in (t.error or "") for t in cleanup_all(graph, plan).tables)
    assert {k: v for k, v in tree_of(graph.uri).items() if k in tree} == tree


def test_an_approval_expires(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, settings=Settings(plan_ttl_seconds=0.001))
    plan = plan_cleanup(graph, KEEP_1)
    tree = tree_of(graph.uri)
    for call in (cleanup_all, remove_orphaned_forks, lambda g, p: cleanup_table(g, p, PERSON)):
        with pytest.raises(StalePlan, match="expired"):
            call(graph, plan)
    assert tree_of(graph.uri) == tree


@pytest.mark.slow
def test_between_pins_removes_the_holes_and_every_pin_stays(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=1, written_branches=1)
    for n in range(3):
        write(graph, PERSON, copies(f"later-{n}-"))
    pin, head = entry_of(graph, PERSON, "lazy-1").version, entry_of(graph, PERSON).version
    rows = rows_everywhere(graph)
    assert max(person(plan_cleanup(graph, KEEP_1)).versions) < pin
    plan = plan_cleanup(graph, replace(KEEP_1, between_pins=True))
    kept = {p.version for p in person(plan).protected}
    assert set(person(plan).versions) == set(versions(graph)) - kept
    assert person(plan).blocked_by is None
    assert max(person(plan).versions) > pin
    assert not cleanup_all(graph, plan).failed
    assert set(versions(graph)) == kept
    assert {pin, head} <= kept
    assert rows_everywhere(graph) == rows


@pytest.mark.slow
def test_an_expiry_runs_in_steps_of_its_limit_until_nothing_is_left(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, loads=12, rows=6, node_types=1)
    policy = RetentionPolicy(expiry=SnapshotExpiry(retain_min=2, time_retained_secs=0, expire_limit=5))
    rows, before = rows_everywhere(graph), versions(graph)
    removed = []
    while True:
        report = cleanup_all(graph, plan_cleanup(graph, policy, tables=(PERSON,)))
        if not report.versions_removed:
            break
        removed.append(report.versions_removed)
    assert set(removed[:-1]) == {5}
    assert sum(removed) == len(before) - 2
    assert versions(graph) == before[-2:]
    assert rows_everywhere(graph) == rows


class _Watcher(InProcessExecutor):
    """Tries to clean everything up while the tasks execute."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.storage)
        self.graph = graph

    def execute(self, dataset, tasks):  # type: ignore[no-untyped-def]
        assert all(isinstance(t, TaskOrder) for t in tasks)
        self.holds = active_holds(self.graph.storage)
        write(self.graph, PERSON, copies("meanwhile-"))
        self.plan = person(plan_cleanup(self.graph, KEEP_1))
        cleanup_all(self.graph, plan_cleanup(self.graph, KEEP_1))
        yield from super().execute(dataset, tasks)


@pytest.mark.slow
def test_the_version_that_a_rewrite_reads_is_held_while_it_runs(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, settings=Settings(small_table_bytes=0))
    watcher = _Watcher(graph)
    report = optimize_all(graph, tables=(PERSON,), executor=watcher)
    assert not report.failed
    (hold,) = watcher.holds
    assert (hold.kind, hold.versions[0].table_path) == (HoldKind.PLAN, entry_of(graph, PERSON).path)
    read = hold.versions[0].version
    assert read not in watcher.plan.versions
    assert any("rewrite of node:Person" in r for p in watcher.plan.protected if p.version == read for r in p.reasons)
    assert active_holds(graph.storage) == ()

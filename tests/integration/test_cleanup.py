"""Cleanup removes exactly what a plan listed, and never what anybody reads."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest
from lance import LanceDataset

from omnigraph_ops import serde
from omnigraph_ops.coordination.lease import read_lease
from omnigraph_ops.errors import InvalidInput, RecoveryPending, StalePlan, UnknownTable
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import version_path
from omnigraph_ops.graph.sidecars import sidecar_path
from omnigraph_ops.models.cleanup import CleanupPlan, OrphanedFork, RetentionPolicy, TableCleanupPlan
from omnigraph_ops.progress import Lines
from omnigraph_ops.requests import build
from omnigraph_ops.stages.cleanup.apply import cleanup_all, cleanup_table, remove_orphaned_forks
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.cleanup.stage import CleanupRequest
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers
from tests.support.orphans import drop
from tests.support.rows import rows_everywhere, rows_of, tree_of
from tests.support.tables import versions
from tests.support.writers import copies, delete_first, drift, entry_of, write

SMALL = {"loads": 4, "rows": 12, "node_types": 1}
PERSON = "node:Person"
KEEP_1 = RetentionPolicy(keep_versions=1)


def table(plan: CleanupPlan, key: str = PERSON) -> TableCleanupPlan:
    return next(t for t in plan.tables if t.table_key == key)


def resigned(plan: CleanupPlan, **changes: object) -> CleanupPlan:
    """The plan with one change and a digest that fits it: a forger with the algorithm."""
    bare = replace(plan, digest="", **changes)
    return replace(bare, digest=serde.digest(bare))


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 1, 3, 100])
def test_exactly_the_planned_versions_go(demo_graph: DemoGraph, stamp: int, keep: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    before, rows, tree = versions(graph), rows_everywhere(graph), tree_of(graph.uri)
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=keep))
    assert tree_of(graph.uri) == tree
    assert table(plan).versions == tuple(before[: -max(keep, 1)])
    report = cleanup_all(graph, plan)
    assert {t.table_key: t.versions for t in report.tables} == {t.table_key: t.versions for t in plan.tables}
    assert versions(graph) == before[-max(keep, 1) :]
    assert sum(t.bytes_removed for t in report.tables) == plan.total_bytes
    assert sum(t.old_versions_removed for t in report.tables) == plan.total_versions
    assert rows_everywhere(graph) == rows
    assert_no_leftovers(graph)
    again = cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=keep)))
    assert sum(t.old_versions_removed for t in again.tables) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("per_second", "together", "of_each"), [(0, 6, None), (17, 6, 2), (2, 2, 1)])
def test_tables_are_cleaned_side_by_side_in_one_turn(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, per_second: int, together: int, of_each: int | None
) -> None:
    monkeypatch.setenv("OMNIGRAPH_OPS_MAX_DELETES_PER_SECOND", str(per_second))
    graph = open_graph(demo_graph(loads=1, rows=3).uri)
    plan, before, limits = plan_cleanup(graph, KEEP_1), read_lease(graph.storage), []
    assert len(plan.tables) == 6
    all_here = threading.Barrier(together)

    real = LanceDataset.cleanup_old_versions

    def remove(dataset: LanceDataset, *, delete_rate_limit: int | None, **options: Any) -> Any:
        all_here.wait(60)
        limits.append(delete_rate_limit)
        return real(dataset, **options)

    monkeypatch.setattr(LanceDataset, "cleanup_old_versions", remove)
    report = cleanup_all(graph, plan)
    assert [(t.table_key, t.versions, t.error) for t in report.tables] == [
        (t.table_key, t.versions, None) for t in plan.tables
    ]
    after = read_lease(graph.storage)
    assert after is not None and after.number - (before.number if before else 0) == 6 // together
    assert limits == [of_each] * 6


def test_the_manifests_of_a_table_are_read_side_by_side(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two reads that wait for each other prove it: one after another they would never end."""
    graph = demo_graph(stamp=stamp, **SMALL)
    there, read, both = versions(graph), Storage.read, threading.Barrier(2, timeout=60)
    oldest = {version_path(entry_of(graph, PERSON).path, version, None) for version in there[:2]}

    def reads(storage: Storage, path: str) -> bytes:
        if path in oldest:
            oldest.remove(path)
            both.wait()
        return read(storage, path)

    monkeypatch.setattr(Storage, "read", reads)
    lines: list[str] = []
    plan = plan_cleanup(graph, KEEP_1, tables=[PERSON], progress=Lines(lines.append))
    assert table(plan).versions == tuple(there[:-1])
    assert (oldest, lines) == (set(), ["looking at old versions: 1 of 1 tables"])


def test_a_table_of_which_an_old_manifest_is_damaged_is_refused(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    oldest = Path(graph.storage.full(version_path(entry_of(graph, PERSON).path, versions(graph)[0], None)))
    oldest.write_bytes(oldest.read_bytes()[:-9])
    row = table(plan_cleanup(graph, KEEP_1))
    assert (row.versions, row.files) == ((), ())
    assert "list the versions of" in (row.refused or "")


def test_both_bounds_must_agree(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    assert plan_cleanup(graph, RetentionPolicy(keep_versions=1, older_than_secs=3600)).total_versions == 0
    by_age = plan_cleanup(graph, RetentionPolicy(older_than_secs=0))
    assert table(by_age).versions == table(plan_cleanup(graph, KEEP_1)).versions


@pytest.mark.parametrize(("bad", "words"), [({}, "at least one of keep"), ({"keep": -1}, "^keep: ")])
def test_a_policy_without_a_bound_reads_nothing(bad: dict[str, object], words: str) -> None:
    """Nothing is planned without a request, and there is none of it."""
    with pytest.raises(InvalidInput, match=words):
        build(CleanupRequest, bad)


@pytest.mark.slow
def test_branches_stay_readable(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=2, written_branches=1)
    optimize_all(graph)
    rows, pin = rows_everywhere(graph), entry_of(graph, PERSON, "lazy-1").version
    plan = plan_cleanup(graph, KEEP_1)
    planned = table(plan)
    assert planned.versions == tuple(range(1, pin))
    assert planned.blocked_by is not None
    assert planned.blocked_by.startswith(f"version {pin}: ")
    reasons = {p.version: " ".join(p.reasons) for p in planned.protected}
    assert "'lazy-1'" in reasons[pin]
    assert "'review/hires-1' forks here" in reasons[pin]
    assert cleanup_all(graph, plan).failed == ()
    assert rows_everywhere(graph) == rows
    assert len(rows) == 4


def test_tags_hold_their_version(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    graph.open_head(entry_of(graph, PERSON)).tags.create("audit", 3)
    plan = plan_cleanup(graph, KEEP_1)
    assert 3 not in table(plan).versions
    assert [p.reasons for p in table(plan).protected if p.version == 3] == [("tag 'audit'",)]
    cleanup_all(graph, plan)
    assert versions(graph)[0] == 3


@pytest.mark.slow
def test_orphaned_forks_go_once_and_live_ones_stay(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=2)
    graph.manifest().branches.delete("review/hires-1")
    live = rows_of(graph, "review/hires-2")
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=100))
    path = entry_of(graph, PERSON).path
    (fork,) = (f for f in plan.orphaned_forks if f.table_key == PERSON)
    assert (fork.table_path, fork.branch) == (path, "review/hires-1")
    own = [
        name for name, kind in tree_of(graph.uri).items() if f"{path}/tree/review/hires-1/" in name and kind != "folder"
    ]
    assert [f.path for f in fork.files] == own
    assert all(Path(graph.uri, f.path).stat().st_size == f.size for f in fork.files)
    assert {f.branch for f in plan.orphaned_forks} == {"review/hires-1"}
    expected = {PERSON, "_graph_commits"} if stamp == 3 else {PERSON}
    assert {f.table_key for f in plan.orphaned_forks} == expected
    assert cleanup_all(graph, plan).orphaned_forks_removed == plan.orphaned_forks
    assert set(graph.open_head(entry_of(graph, PERSON)).branches.list()) == {"review/hires-2"}
    assert rows_of(graph, "review/hires-2") == live
    assert plan_cleanup(graph, RetentionPolicy(keep_versions=100)).orphaned_forks == ()
    assert remove_orphaned_forks(graph, plan) == ()


@pytest.mark.slow
def test_a_fork_that_came_back_to_life_is_spared(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    bare = plan_cleanup(graph, KEEP_1)
    assert bare.orphaned_forks == ()
    fork = OrphanedFork(table_key=PERSON, table_path=entry_of(graph, PERSON).path, branch="review/hires-1")
    rows = rows_everywhere(graph)
    assert remove_orphaned_forks(graph, resigned(bare, orphaned_forks=(fork,))) == ()
    assert rows_everywhere(graph) == rows


@pytest.mark.slow
def test_drift_refuses_that_table_only(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, drift_tables=(PERSON,))
    before = versions(graph)
    plan = plan_cleanup(graph, KEEP_1)
    assert table(plan).versions == ()
    assert "drift" in (table(plan).refused or "")
    report = cleanup_all(graph, plan)
    assert [t.table_key for t in report.failed] == [PERSON]
    assert versions(graph) == before
    assert len(versions(graph, "edge:Knows")) == 1


def test_a_table_that_cannot_be_read_refuses_that_table_only(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    shutil.rmtree(graph.table_uri(entry_of(graph, PERSON)) + "/_versions")
    plan = plan_cleanup(graph, KEEP_1)
    assert table(plan).refused is not None
    assert table(plan, "edge:Knows").refused is None


def test_an_unreadable_branch_refuses_everything(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, lazy_branches=1)
    shutil.rmtree(f"{graph.uri}/__manifest/tree/lazy-1")
    plan = plan_cleanup(graph, KEEP_1)
    assert plan.total_versions == 0
    assert all("'lazy-1' cannot be read" in (t.refused or "") for t in plan.tables)


def test_an_unopenable_pin_refuses_its_table(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, lazy_branches=1)
    entry = entry_of(graph, PERSON, "lazy-1")
    graph.storage.delete(f"{entry.path}/_versions/{2**64 - 1 - entry.version:020d}.manifest")
    plan = plan_cleanup(graph, KEEP_1)
    assert "cannot be opened" in (table(plan).refused or "")
    assert table(plan, "edge:Knows").refused is None


def test_an_altered_plan_is_refused_before_any_delete(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=3))
    greedy = replace(plan, tables=tuple(replace(t, versions=(1, 2, 3, 4, 5)) for t in plan.tables))
    tree = tree_of(graph.uri)
    for call in (cleanup_all, remove_orphaned_forks, lambda g, p: cleanup_table(g, p, PERSON)):
        with pytest.raises(StalePlan, match="altered"):
            call(graph, greedy)
    assert tree_of(graph.uri) == tree


@pytest.mark.slow
def test_even_a_signed_plan_never_takes_what_is_published(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, lazy_branches=1)
    optimize_all(graph)
    rows = rows_everywhere(graph)
    head = versions(graph)[-1]
    plan = plan_cleanup(graph, KEEP_1)
    greedy = resigned(plan, tables=tuple(replace(t, versions=tuple(range(1, head + 1))) for t in plan.tables))
    stats = cleanup_table(graph, greedy, PERSON)
    floor = entry_of(graph, PERSON, "lazy-1").version
    assert stats.versions == tuple(range(1, floor))
    assert stats.skipped_since_protected == tuple(range(floor, head + 1))
    assert rows_everywhere(graph) == rows


def test_what_a_plan_refused_is_refused_whatever_is_there_since(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plan, before = plan_cleanup(graph, KEEP_1), versions(graph)
    drifted = resigned(plan, tables=tuple(replace(t, refused="it had drifted") for t in plan.tables))
    assert {t.error for t in cleanup_all(graph, drifted).tables} == {"it had drifted"}
    with pytest.raises(StalePlan, match="was refused: it had drifted; nothing was deleted"):
        cleanup_table(graph, drifted, PERSON)
    assert versions(graph) == before


def test_what_became_protected_since_the_plan_is_spared(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    plan = plan_cleanup(graph, KEEP_1)
    first, second, *rest = table(plan).versions
    head = graph.open_head(entry_of(graph, PERSON))
    head.tags.create("since", second)
    head.create_branch("fork", rest[-1])
    stats = cleanup_table(graph, plan, PERSON)
    assert stats.skipped_since_protected == (second, rest[-1])
    assert stats.versions == (first, *rest[:-1])
    assert set(versions(graph)) == {second, rest[-1], head.version}


def test_a_version_that_came_after_the_plan_stays(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plan = plan_cleanup(graph, KEEP_1)
    pinned = entry_of(graph, PERSON).version
    write(graph, PERSON, copies("new-"))
    cleanup_all(graph, plan)
    assert versions(graph) == [pinned, entry_of(graph, PERSON).version]


def test_drift_since_the_plan_refuses_the_table(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plan = plan_cleanup(graph, KEEP_1)
    drift(graph, PERSON, delete_first())
    before = versions(graph)
    with pytest.raises(StalePlan, match="drift"):
        cleanup_table(graph, plan, PERSON)
    assert versions(graph) == before


def test_a_table_that_was_dropped_since_the_plan_keeps_every_version(demo_graph: DemoGraph, stamp: int) -> None:
    """A branch, or the engine's next look for what was dropped, may still need them; `orphans` decides about them."""
    graph = demo_graph(stamp=stamp, **SMALL)
    head, plan = graph.open_head(entry_of(graph, PERSON)), plan_cleanup(graph, KEEP_1)
    drop(graph, PERSON)
    before = head.versions()
    stats = cleanup_table(graph, plan, PERSON)
    assert stats.kept == f"{PERSON} was dropped, renamed or replaced since the plan; nothing was deleted"
    assert (stats.error, stats.old_versions_removed, head.versions()) == (None, 0, before)


def test_a_version_somebody_else_removed_is_no_error(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plan = plan_cleanup(graph, KEEP_1)
    head = graph.open_head(entry_of(graph, PERSON))
    head.cleanup_old_versions(versions=[1, 2], error_if_tagged_old_versions=False)
    assert cleanup_table(graph, plan, PERSON).versions == table(plan).versions[2:]


def test_nothing_is_collected_beside_a_recovery(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plan = plan_cleanup(graph, KEEP_1)
    graph.storage.write(sidecar_path("01ARYZ6S410000000000000000"), b"{}")
    tree = tree_of(graph.uri)
    for call in (plan_cleanup, cleanup_all):
        with pytest.raises(RecoveryPending):
            call(graph, KEEP_1 if call is plan_cleanup else plan)
    with pytest.raises(RecoveryPending):
        cleanup_table(graph, plan, PERSON)
    assert {k: v for k, v in tree_of(graph.uri).items() if not k.startswith("__maintenance")} == tree


def test_a_table_outside_of_the_plan_is_not_cleaned(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    plan = plan_cleanup(graph, KEEP_1, tables=(PERSON,))
    with pytest.raises(UnknownTable):
        cleanup_table(graph, plan, "edge:Knows")
    cleanup_all(graph, plan)
    assert len(versions(graph, "edge:Knows")) > 1


def test_a_branch_recorded_under_another_spelling_refuses_its_table(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, written_branches=1)
    moved = f"{graph.uri}-moved"
    shutil.move(graph.uri, moved)
    from omnigraph_ops.graph import open_graph

    plan = plan_cleanup(open_graph(moved, graph.settings), KEEP_1)
    assert all(t.versions == () for t in plan.tables if t.table_key == PERSON)
    assert all(t.refused for t in plan.tables if t.table_key == PERSON)


def test_a_plan_survives_its_trip_through_a_file(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, written_branches=1)
    plan = plan_cleanup(graph, KEEP_1)
    assert serde.from_json(CleanupPlan, serde.dumps(plan)) == plan
    assert lance.dataset(graph.table_uri(entry_of(graph, PERSON))).version == table(plan).lance_head_version

"""Old versions of the graph manifest go when nobody publishes; every commit that can be opened stays readable."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from lance import LanceDataset

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.fence import INTERNAL_COMPACTION, fenced
from omnigraph_ops.coordination.graph_view import look
from omnigraph_ops.coordination.holds import FreezeTerms, HeldVersion, HoldKind, place_hold
from omnigraph_ops.coordination.lease import working_holder
from omnigraph_ops.errors import StalePlan
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR, any_version_of
from omnigraph_ops.graph.state import BranchState
from omnigraph_ops.models.cleanup import CleanupPlan, RetentionPolicy, SnapshotExpiry, TableCleanupPlan
from omnigraph_ops.stages.cleanup.apply import cleanup_all, cleanup_table
from omnigraph_ops.stages.cleanup.internal import NOT_ALONE, TOO_LATE, InternalTables
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.cleanup.policy import removable
from omnigraph_ops.stages.cleanup.stage import Cleanup
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.conftest import DemoGraph
from tests.support.edges import when_asked
from tests.support.fences import fenced_until_told
from tests.support.rows import rows_everywhere
from tests.support.writers import copies, write

pytestmark = pytest.mark.slow

SMALL = {"loads": 4, "rows": 12, "node_types": 1}
ALONE = Settings(exclusive=True)
KEEP_1 = RetentionPolicy(keep_versions=1)


def row(plan: CleanupPlan, key: str = MANIFEST_DIR) -> TableCleanupPlan:
    return next(t for t in plan.tables if t.table_key == key)


def kept(graph: Graph, path: str = MANIFEST_DIR) -> set[int]:
    """The stored versions of a main chain."""
    return {v for v in map(any_version_of, graph.storage.list(f"{path}/_versions")) if v is not None}


def states(graph: Graph) -> dict[int, object]:
    """Every commit of main of which all tables can be opened: what it publishes."""
    found: dict[int, object] = {}
    for commit in graph.format.commits(graph.context, None):
        if commit.manifest_version not in kept(graph):
            continue
        manifest = graph.lance.open(graph.storage.uri(MANIFEST_DIR), version=commit.manifest_version)
        entries = graph.decode(manifest, None).entries
        if all(e.version in kept(graph, e.path) for e in entries):
            found[commit.manifest_version] = entries
    return found


def test_a_run_beside_writers_plans_no_internal_table(demo_graph: DemoGraph) -> None:
    plan = plan_cleanup(demo_graph(**SMALL), KEEP_1)
    assert not [t for t in plan.tables if t.table_key.startswith("_")]


def test_named_tables_are_all_that_a_plan_has(demo_graph: DemoGraph) -> None:
    plan = plan_cleanup(demo_graph(settings=ALONE, **SMALL), KEEP_1, tables=("node:Person",))
    assert [t.table_key for t in plan.tables] == ["node:Person"]


def test_versions_that_no_reader_needs_go_with_the_old_versions_of_the_tables(
    demo_graph: DemoGraph, stamp: int
) -> None:
    graph = demo_graph(stamp=stamp, settings=ALONE, **SMALL)
    optimize_all(graph)
    rows, head, stored = rows_everywhere(graph), graph.manifest().version, kept(graph)
    plan = plan_cleanup(graph, KEEP_1)
    gone = set(row(plan).versions)
    assert len(gone) > len(stored) / 2
    report = cleanup_all(graph, plan)
    assert not report.failed
    assert sum(t.bytes_removed for t in report.tables) == plan.total_bytes
    assert kept(graph) == stored - gone
    assert head in kept(graph)
    assert len(states(graph)) >= 1
    assert rows_everywhere(graph) == rows
    if stamp == 3:
        assert len(kept(graph, COMMITS_DIR)) == 1
    assert not row(plan_cleanup(graph, KEEP_1)).versions, "a second run has nothing left to do"
    write(graph, "node:Person", copies("later"))
    assert not optimize_all(graph).failed


def test_every_commit_that_can_be_opened_stays(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, settings=ALONE, lazy_branches=1, written_branches=1, **SMALL)
    optimize_all(graph)
    held = [HeldVersion(table_path=e.path, version=v) for e in graph.state().entries for v in kept(graph, e.path)]
    place_hold(graph.storage, held, kind=HoldKind.READER, reason="all of it", ttl_seconds=600)
    before, rows = states(graph), rows_everywhere(graph)
    plan = plan_cleanup(graph, KEEP_1)
    assert row(plan).versions, "those that no commit names"
    assert not set(row(plan).versions) & set(before)
    (protected,) = (s.rows for s in Cleanup().view(plan).sections if s.title == "Protected versions")
    openable = [number for _, _, number, why in protected if why == "their commits can be opened"]
    # How many depends on which tables shared a publish.
    alone = [p for p in row(plan).protected if [r.endswith("can be opened") for r in p.reasons] == [True]]
    assert len(alone) > 1
    assert openable == [str(len(alone))], "in one row, whatever commits they are of"
    assert not cleanup_all(graph, plan).failed
    assert states(graph) == before
    assert rows_everywhere(graph) == rows


def test_the_base_of_the_next_merge_stays_whatever_its_tables_lost(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, settings=ALONE, **SMALL)
    base = graph.format.commits(graph.context, None)[-1]
    graph.manifest().create_branch("topic")
    if stamp == 3:
        graph.lance.open(graph.storage.uri(COMMITS_DIR)).create_branch("topic")
    for _ in range(3):
        write(graph, "node:Person", copies("later"))
    reasons = {p.version: p.reasons for p in row(plan_cleanup(graph, KEEP_1)).protected}
    assert "merges start from it" in reasons[base.manifest_version]


def test_a_commit_that_became_readable_for_good_is_spared(demo_graph: DemoGraph) -> None:
    graph = demo_graph(settings=ALONE, **SMALL)
    plan = plan_cleanup(graph, KEEP_1)
    dead = next(v for v in row(plan).versions if v in states(graph))
    stats = cleanup_table(graph, plan, MANIFEST_DIR)
    assert dead in stats.skipped_since_protected, "the old versions of its tables are still there"
    assert dead in states(graph)


def test_a_commit_that_cannot_be_read_stays(demo_graph: DemoGraph) -> None:
    """What it publishes is unknown, so nobody can say that nobody needs it."""
    graph = demo_graph(settings=ALONE, **SMALL)
    optimize_all(graph)
    write(graph, "node:Person", copies("later"))
    doomed = row(plan_cleanup(graph, KEEP_1)).versions
    needed = {file.path for fragment in graph.manifest().get_fragments() for file in fragment.data_files()}
    for file in Path(graph.uri, MANIFEST_DIR, "data").iterdir():
        if file.name not in needed:
            file.write_bytes(b"damaged")
    planned = row(plan_cleanup(graph, KEEP_1))
    unread = {p.version for p in planned.protected if "cannot be read, so what it needs is unknown" in str(p.reasons)}
    assert unread & set(doomed)
    assert not unread & set(planned.versions)


def test_the_newest_version_of_the_engine_stays_since_it_tells_which_lance_it_has(
    demo_graph: DemoGraph,
) -> None:
    graph = demo_graph(settings=ALONE, **SMALL)
    *_, doomed = row(plan_cleanup(graph, KEEP_1)).versions
    graph.context.writers[MANIFEST_DIR, doomed] = "lance 9.0.0"
    planned = row(plan_cleanup(graph, KEEP_1))
    assert doomed not in planned.versions
    assert "the newest version that the engine wrote" in {r for p in planned.protected for r in p.reasons}


def test_beside_an_unreadable_branch_or_in_a_frozen_graph_they_stay(demo_graph: DemoGraph) -> None:
    graph = demo_graph(settings=ALONE, lazy_branches=1, **SMALL)
    shutil.rmtree(f"{graph.uri}/{MANIFEST_DIR}/tree/lazy-1")
    planned = row(plan_cleanup(graph, KEEP_1))
    assert (planned.versions, "'lazy-1' cannot be read" in (planned.refused or "")) == ((), True)
    place_hold(graph.storage, [], kind=HoldKind.FREEZE, reason="a copy", ttl_seconds=60, freeze=FreezeTerms(tables=()))
    internal = InternalTables(graph=graph, view=look(graph))
    for entry in internal.entries():
        assert " is frozen by " in (internal.refusal(entry) or ""), "one that began after the stage had asked"


@pytest.mark.parametrize("beyond", ["a version", "a branch"])
def test_what_goes_beyond_the_plan_is_damage(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, beyond: str
) -> None:
    graph = demo_graph(settings=ALONE, **SMALL)
    spared = min(kept(graph))
    version = HeldVersion(table_path=MANIFEST_DIR, version=spared)
    place_hold(graph.storage, [version], kind=HoldKind.READER, reason="a report", ttl_seconds=600)
    plan = plan_cleanup(graph, KEEP_1)

    real = LanceDataset.cleanup_old_versions

    def too_much(dataset: LanceDataset, *, versions: list[int], **options: Any) -> Any:
        if dataset.uri.endswith(MANIFEST_DIR) and beyond == "a version":
            versions = [*versions, spared]
        elif dataset.uri.endswith(MANIFEST_DIR):
            write(graph, "node:Person", copies("late"))
        return real(dataset, versions=versions, **options)

    monkeypatch.setattr(LanceDataset, "cleanup_old_versions", too_much)
    stats = next(t for t in cleanup_all(graph, plan).tables if t.table_key == MANIFEST_DIR)
    assert stats.error is not None
    problem = f"version {spared} is gone" if beyond == "a version" else "branch main does not read as before"
    assert f"{problem}; stop cleanups of this graph" in stats.error


def test_nothing_goes_once_the_fence_is_down(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    with fenced(graph) as behind_fence:
        plan = plan_cleanup(behind_fence, KEEP_1)
    assert row(plan).versions
    before = kept(graph)
    with pytest.raises(StalePlan, match=NOT_ALONE):
        cleanup_table(graph, plan, MANIFEST_DIR)
    assert kept(graph) == before


def test_behind_a_fence_it_is_planned_and_applied(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, written_branches=1, **SMALL)
    rows, before = rows_everywhere(graph), kept(graph)
    with fenced(graph) as behind_fence:
        report = cleanup_all(behind_fence, plan_cleanup(behind_fence, KEEP_1))
    assert not report.failed
    assert len(kept(graph)) < len(before)
    assert rows_everywhere(graph) == rows


def test_tags_and_holds_keep_versions_of_the_graph_manifest(demo_graph: DemoGraph) -> None:
    graph = demo_graph(settings=ALONE, **SMALL)
    tagged, held, *_ = sorted(kept(graph))
    graph.manifest().tags.create("release", tagged)
    version = HeldVersion(table_path=MANIFEST_DIR, version=held)
    place_hold(graph.storage, [version], kind=HoldKind.READER, reason="a report", ttl_seconds=600)
    assert not {tagged, held} & set(row(plan_cleanup(graph, KEEP_1)).versions)


def test_a_cleanup_that_was_stopped_is_finished_by_the_next(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, settings=ALONE, **SMALL)
    optimize_all(graph)
    for key in ("node:Person", "edge:Knows"):
        write(graph, key, copies("later"))
    plan = row(plan_cleanup(graph, KEEP_1))
    removed = [f.path for f in plan.files if f.kind == "data"][:2] + [f.path for f in plan.files][:2]
    assert len(set(removed)) > 2
    for path in set(removed):
        graph.storage.delete(path)
    assert not cleanup_all(graph, plan_cleanup(graph, KEEP_1)).failed
    assert not [f.path for f in plan.files if graph.storage.exists(f.path)]
    assert not optimize_all(graph).failed


def test_parts_may_be_applied_alone_and_in_any_order(demo_graph: DemoGraph, stamp: int) -> None:
    graph, stage = demo_graph(stamp=stamp, settings=ALONE, **SMALL), Cleanup()
    rows = rows_everywhere(graph)
    for _ in range(2):  # what the first round spared, because tables came later, goes in the second
        plan = plan_cleanup(graph, KEEP_1)
        for part in reversed(stage.parts(plan)):
            assert not stage.apply_part(graph, plan, part).failed
    assert plan_cleanup(graph, KEEP_1).is_empty
    assert rows_everywhere(graph) == rows


def test_the_fence_is_not_lifted_in_the_middle(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, purposes = demo_graph(settings=ALONE, **SMALL), list[str | None]()

    def noted() -> None:
        lease = working_holder(graph.storage)
        purposes.append(lease.purpose if lease else None)

    asked = when_asked(monkeypatch, LanceDataset, "cleanup_old_versions", noted, times=None)
    assert not cleanup_all(graph, plan_cleanup(graph, KEEP_1)).failed
    seen = dict(zip((uri.rpartition("/")[2] for uri in asked), purposes, strict=True))
    assert seen[MANIFEST_DIR] == INTERNAL_COMPACTION
    assert [purpose for name, purpose in seen.items() if purpose == INTERNAL_COMPACTION and name[0] != "_"] == []


@pytest.mark.parametrize("limit", [1, 3, 5])
def test_an_expiry_looks_at_no_more_commits_than_it_takes_versions(
    demo_graph: DemoGraph, stamp: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a night adds more commits than one run takes, each run would look at more, and outlast its fence."""
    graph = demo_graph(stamp=stamp, settings=ALONE, **SMALL)
    for number in range(6):
        write(graph, "node:Person", copies(f"later-{number}-"))
    version = HeldVersion(table_path=MANIFEST_DIR, version=5)
    place_hold(graph.storage, [version], kind=HoldKind.READER, reason="a report", ttl_seconds=600)
    real, looked_at = Graph.state, list[int]()

    def noted(graph: Graph, branch: str | None = None, version: int | None = None) -> BranchState:
        looked_at.extend([version] if version is not None else [])
        return real(graph, branch, version)

    monkeypatch.setattr(Graph, "state", noted)
    expiry = SnapshotExpiry(retain_min=1, time_retained_secs=0, expire_limit=limit)
    plan = plan_cleanup(graph, RetentionPolicy(expiry=expiry))
    few, looked_at[:] = list(looked_at), []
    internal = InternalTables(graph=graph, view=look(graph), going={t.table_path: t.versions for t in plan.tables})
    entry, wanted = row(plan), sorted(kept(graph))[:-1]
    manifest = next(e for e in internal.entries() if e.path == MANIFEST_DIR)
    everything = internal.protect(manifest, graph.manifest(), wanted)
    assert entry.versions == removable(wanted, everything, between_pins=True, expiry=expiry)[0]
    assert len(entry.versions) == min(limit, 4), "no more than the limit, nor beyond a version that is held"
    assert max(few, default=0) <= max(entry.versions) + 1 < max(looked_at)
    shown, known = (
        {(p.version, reason) for p in held for reason in p.reasons} for held in (entry.protected, everything.versions)
    )
    assert shown < known


@pytest.mark.parametrize("moment", ["while it judges", "before it removes"])
def test_nothing_goes_once_the_fence_reaches_its_limit_in_the_turn_that_it_is_not_lifted_in(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Writers would wait until every commit is judged, however short the limit is."""
    graph, lifted, looked_at = demo_graph(**SMALL), threading.Event(), list[int]()
    with fenced_until_told(graph, lifted) as (behind_fence, lift_now):
        plan, real = plan_cleanup(behind_fence, KEEP_1), Graph.state
        before, fence = kept(graph), behind_fence.run_context.fence
        assert len(row(plan).versions) > 2 and fence is not None

        def reaches_its_limit() -> None:
            lift_now.set()
            while fence.is_up:
                time.sleep(0.01)

        def noted(graph: Graph, branch: str | None = None, version: int | None = None) -> BranchState:
            if version is not None and moment == "while it judges":
                looked_at.append(version)
                reaches_its_limit()
            return real(graph, branch, version)

        monkeypatch.setattr(Graph, "state", noted)
        if moment == "before it removes":
            when_asked(monkeypatch, LanceDataset, "explain_cleanup_old_versions", reaches_its_limit, about=MANIFEST_DIR)
        stats = next(t for t in cleanup_all(behind_fence, plan).tables if t.table_key == MANIFEST_DIR)
        assert f"{MANIFEST_DIR}: {TOO_LATE}" == stats.error
        assert lifted.wait(300), "in time, while the run goes on"
    assert kept(graph) == before
    assert len(looked_at) == (moment == "while it judges")

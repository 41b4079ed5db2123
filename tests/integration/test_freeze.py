"""A freeze keeps its cut from every cleanup and our stages out, is counted, and always ends."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import lance
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.coordination.freezes import contract_folder, refuse_frozen, sweep_ended, unfreeze, unfreeze_all
from omnigraph_ops.coordination.holds import (
    FreezeTerms,
    HoldKind,
    active_holds,
    announced,
    freezes,
    hold_path,
    place_hold,
    read_hold,
    write_hold,
)
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.coordination.state import HOLDS_DIR, LEASE_PATH
from omnigraph_ops.errors import (
    CorruptGraph,
    GraphFrozen,
    InvalidInput,
    LeaseHeld,
    PublishConflict,
    RecoveryPending,
    StalePlan,
    StorageError,
    UnknownTable,
)
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.layout import MANIFEST_DIR, SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.references import base_states
from omnigraph_ops.graph.sidecars import write_sidecar
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.freeze import Freeze, HoldState, PinRole
from omnigraph_ops.models.optimize import OptimizeDecision, SkipReason
from omnigraph_ops.spark.rewrite_job import optimize_on_worker
from omnigraph_ops.stages.backup.take import BackupOptions, backup_graph
from omnigraph_ops.stages.cleanup.apply import cleanup_all, cleanup_table, remove_orphaned_forks
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.freeze.observe import stored_manifest, verify_cut
from omnigraph_ops.stages.freeze.take import extend_freeze, freeze_graph, hold_version, list_holds, read_freeze, release
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.optimize.units import optimize_internal
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers
from tests.support.edges import raising, when_asked
from tests.support.freezes import freeze_tags, make_branch_anew
from tests.support.orphans import KNOWS, PERSON, WEEK, age, drop
from tests.support.plain import append, indexed, opened
from tests.support.rows import rows_everywhere
from tests.support.shell import Cli, assert_refused, runner
from tests.support.writers import copies, delete_first, drift, entry_of, write

SMALL = {"loads": 3, "rows": 9, "node_types": 1}
BRANCHED = {**SMALL, "lazy_branches": 1, "written_branches": 1}
KEEP_1 = RetentionPolicy(keep_versions=1)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line of this process."""
    return runner(capsys)


def expire(graph: Graph, freeze: Freeze) -> None:
    """Let its time be over. Writes its record."""
    hold = read_hold(graph.storage, freeze.freeze_id)
    assert hold is not None
    write_hold(graph.storage, replace(hold, expires_at=time.time() - 1))


def collect_like_an_engine(graph: Graph) -> None:
    """Lance's own cleanup of every main chain to one version, which knows of no hold of ours. Destroys."""
    for path in {e.path for e in graph.state().entries}:
        dataset = lance.dataset(graph.storage.uri(path))
        dataset.cleanup_old_versions(retain_versions=1, error_if_tagged_old_versions=False)


STAGES: dict[str, Callable[[Graph], object]] = {
    "optimize": optimize_all,
    "optimize a table": lambda graph: optimize_table(graph, PERSON),
    "cleanup": lambda graph: plan_cleanup(graph, KEEP_1),
    "repair": preview_repair,
    "orphans": plan_orphans,
}


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_touches_a_frozen_graph_and_every_one_says_why(demo_graph: DemoGraph, stamp: int, stage: str) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    freeze = freeze_graph(graph, reason="backup", owner="ann@host")
    before = {e.table_key: e.version for e in graph.state().entries}
    with pytest.raises(GraphFrozen) as refused:
        STAGES[stage](graph)
    for part in ("ann@host (backup) since ", "until ", f"omnigraph-ops unfreeze {graph.uri} {freeze.freeze_id}"):
        assert part in str(refused.value)
    assert {e.table_key: e.version for e in graph.state().entries} == before
    unfreeze(graph, freeze.freeze_id)
    STAGES[stage](graph)


def test_plans_made_before_do_not_get_past_a_freeze(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    drift(graph, PERSON, lambda d: d.optimize.compact_files())
    cleanup, preview, orphans = plan_cleanup(graph, KEEP_1), preview_repair(graph), plan_orphans(graph)
    freeze_graph(graph)
    for apply in (
        lambda: cleanup_all(graph, cleanup),
        lambda: apply_repair(graph, preview),
        lambda: apply_orphans(graph, orphans),
    ):
        with pytest.raises(GraphFrozen):
            apply()
    stats = cleanup_table(graph, cleanup, KNOWS)
    assert (stats.old_versions_removed, stats.kept is None) == (0, False), "a task of a night is not refused for that"


@pytest.mark.slow
def test_a_freeze_is_counted_and_named(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    first, second = freeze_graph(graph, reason="one"), freeze_graph(graph, reason="two")
    assert len(freeze_tags(graph.uri)) == len(first.cut.pins) + len(second.cut.pins)
    assert unfreeze(graph, first.freeze_id).tags_removed == len(first.cut.pins)
    with pytest.raises(GraphFrozen, match="two"):
        optimize_all(graph)
    assert not verify_cut(graph, second)
    with pytest.raises(InvalidInput, match=second.freeze_id):
        unfreeze(graph, first.freeze_id)
    unfreeze(graph, second.freeze_id)
    assert not optimize_all(graph).failed
    assert freeze_tags(graph.uri) == set()
    assert_no_leftovers(graph)


def test_internal_tables_of_a_frozen_graph_are_skipped_not_failed(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze_graph(graph)
    alone = open_graph(graph.uri, graph.settings.model_copy(update={"exclusive": True}))
    assert {t.skipped for t in optimize_internal(alone)} == {SkipReason.FROZEN}
    assert {t.skipped for t in plan_optimize(alone).tables} == {SkipReason.FROZEN}


@pytest.mark.slow
def test_nobodys_cleanup_takes_a_frozen_version(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **BRANCHED)
    rows = rows_everywhere(graph)
    freeze = freeze_graph(graph)
    for key in (PERSON, KNOWS):
        write(graph, key, copies("late"))
        write(graph, key, delete_first())
    collect_like_an_engine(graph)
    assert verify_cut(graph, freeze) == ()
    pinned = {(p.path, p.branch, p.version) for p in freeze.cut.pins}
    for path, branch, version in pinned:
        graph.lance.open(graph.storage.uri(path), branch=branch, version=version).to_table()
    assert {b: rows[b] for b in rows if b is not None} == {b: rows_everywhere(graph)[b] for b in rows if b is not None}
    # The same without the tags: the versions go.
    frozen = entry_of(graph, PERSON)
    unfreeze(graph, freeze.freeze_id)
    collect_like_an_engine(graph)
    left = {v["version"] for v in graph.open_head(frozen).versions()}
    assert {p.version for p in freeze.cut.pins if (p.path, p.branch) == (frozen.path, None)} - left


def test_a_freeze_of_a_table_leaves_the_others_to_maintenance(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    freeze = freeze_graph(graph, tables=(PERSON,), reason="one table")
    report = {t.table_key: t for t in optimize_all(graph).tables}
    assert (report[PERSON].skipped, report[PERSON].error) == (SkipReason.FROZEN, None)
    (skipped,) = (t for t in plan_optimize(graph).tables if t.table_key == PERSON)
    assert (skipped.decision, skipped.skipped) == (OptimizeDecision.SKIPPED, SkipReason.FROZEN)
    assert "one table" in skipped.reason
    assert report[KNOWS].committed
    plan = plan_cleanup(graph, KEEP_1)
    refused = {t.table_key: t.refused for t in plan.tables}
    assert refused[KNOWS] is None
    assert PERSON in (refused[PERSON] or "")
    cleanup_all(graph, plan)
    with pytest.raises(GraphFrozen):
        plan_orphans(graph)
    assert {p.path for p in freeze.cut.pins if p.role == "table"} == {entry_of(graph, PERSON).path}
    told = list[str]()
    with pytest.raises(UnknownTable):
        freeze_graph(graph, tables=("node:Nobody",), progress=told.append)
    assert (len(freezes(graph.storage)), told) == (1, [])


def test_repair_refuses_only_what_would_publish_a_frozen_table(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    for key in (PERSON, KNOWS):
        drift(graph, key, lambda d: d.optimize.compact_files())
    freeze_graph(graph, tables=(PERSON,))
    with pytest.raises(GraphFrozen):
        apply_repair(graph, preview_repair(graph))
    healed = apply_repair(graph, preview_repair(graph, tables=(KNOWS,)))
    assert [t.action for t in healed.tables] == ["healed"]


@pytest.mark.slow
def test_an_expired_freeze_blocks_nobody_and_whoever_comes_by_ends_it(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    by_stage: dict[str, Callable[[], object]] = {
        "optimize": lambda: optimize_all(graph),
        "cleanup": lambda: cleanup_all(graph, plan_cleanup(graph, KEEP_1)),
        "orphans": lambda: apply_orphans(graph, plan_orphans(graph, older_than_seconds=WEEK)),
        "recover": lambda: recover(graph),
        "holds": lambda: list_holds(graph),
        "freeze": lambda: unfreeze(graph, freeze_graph(graph).freeze_id),
    }
    for stage, act in by_stage.items():
        freeze = freeze_graph(graph)
        expire(graph, freeze)
        act()
        assert freeze_tags(graph.uri) == set(), stage
        assert_no_leftovers(graph)


def test_an_expired_freeze_is_left_to_the_run_that_is_at_work(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze = freeze_graph(graph)
    expire(graph, freeze)
    with committer_turn(graph, "somebody"):
        assert sweep_ended(graph) == ()
        assert freeze_tags(graph.uri)
    assert sweep_ended(graph) == (freeze.freeze_id,)


def test_a_freeze_can_be_extended_but_not_revived(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze = freeze_graph(graph, ttl_seconds=60)
    extended = extend_freeze(graph, freeze.freeze_id, 3600)
    assert extended.expires_at > freeze.expires_at + 3000
    assert read_freeze(graph, freeze.freeze_id).expires_at > freeze.expires_at + 3000
    expire(graph, freeze)
    with pytest.raises(InvalidInput, match="has ended"):
        extend_freeze(graph, freeze.freeze_id, 3600)


def test_tags_without_a_record_are_listed_and_protect_until_they_are_ended_by_name(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze = freeze_graph(graph)
    graph.storage.delete(hold_path(freeze.freeze_id))
    (found,) = list_holds(graph).holds
    assert (found.hold_id, found.state, found.versions) == (freeze.freeze_id, HoldState.UNKNOWN, len(freeze.cut.pins))
    sweep_ended(graph)
    assert freeze_tags(graph.uri)
    plan = plan_cleanup(graph, KEEP_1)
    assert any("omnigraph-ops.freeze" in r for t in plan.tables for p in t.protected for r in p.reasons)
    assert unfreeze(graph, freeze.freeze_id).tags_removed == len(freeze.cut.pins)
    assert freeze_tags(graph.uri) == set()


def test_a_damaged_record_is_ended_by_name(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze = freeze_graph(graph)
    graph.storage.write(hold_path(freeze.freeze_id), b"{")
    unfreeze(graph, freeze.freeze_id)
    assert freeze_tags(graph.uri) == set()
    assert_no_leftovers(graph)


def test_nothing_is_frozen_beside_a_schema_apply(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    graph.manifest().create_branch(SCHEMA_APPLY_LOCK)
    with pytest.raises(RecoveryPending, match="schema apply"):
        freeze_graph(graph)
    graph.lance.delete_branch(graph.manifest(), SCHEMA_APPLY_LOCK)
    graph.storage.write("_schema.pg.staging", b"x")
    with pytest.raises(RecoveryPending, match="schema apply"):
        freeze_graph(graph)
    assert freezes(graph.storage) == ()
    assert freeze_tags(graph.uri) == set()


def test_nothing_is_frozen_of_a_schema_apply_that_begins_meanwhile_and_is_killed(
    demo_graph: DemoGraph, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, translated, looks = demo_graph(stamp=stamp, **SMALL), Storage.translated, list[str]()

    @contextmanager
    def later(storage: Storage, what: str, path: str) -> Iterator[None]:
        with translated(storage, what, path):
            yield
        if (what, path) == ("list", ""):
            looks.append(what)
            if len(looks) == 1:  # nothing of an apply was there yet
                drop(graph, KNOWS)
                graph.storage.write("_schema.pg.staging", b"x")

    monkeypatch.setattr(Storage, "translated", later)
    with pytest.raises(RecoveryPending, match="schema apply"):
        freeze_graph(graph)
    assert len(looks) > 2, "it began after the first look"
    assert (freezes(graph.storage), freeze_tags(graph.uri)) == ((), set())


def test_a_freeze_beside_a_crashed_writer_pins_what_is_published_and_recovery_goes_on(
    demo_graph: DemoGraph, stamp: int
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL, settings=Settings(recovery_grace_seconds=0))
    entry = entry_of(graph, PERSON)
    write_sidecar(graph, entry, "01ARZ3NDEKTSV4RRFFQ69G5FAV", graph.uri)
    drift(graph, PERSON, lambda d: d.optimize.compact_files())
    freeze = freeze_graph(graph)
    assert (entry.path, entry.version) in {(p.path, p.version) for p in freeze.cut.pins}
    assert recover(graph).outcomes[0].action == "rolled_forward"
    assert entry_of(graph, PERSON).version > entry.version
    assert verify_cut(graph, freeze) == ()


def test_a_freeze_waits_for_the_unit_that_runs(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, settings=Settings(lease_wait_seconds=0.2))
    with committer_turn(graph, "optimize node:Person (fold)"), pytest.raises(LeaseHeld, match="fold"):
        freeze_graph(graph)
    assert active_holds(graph.storage) == ()
    freeze_graph(graph)


def test_maintenance_stops_at_its_next_unit_once_a_freeze_is_announced(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    seen: list[str] = []

    def is_announced() -> None:
        with pytest.raises(GraphFrozen):
            optimize_table(open_graph(graph.uri), PERSON)
        seen.extend(h.state for h in list_holds(graph).holds)

    when_asked(monkeypatch, Storage, "write", is_announced, about=f"^{HOLDS_DIR}/", after=True)
    freeze_graph(graph)
    assert seen == [HoldState.STARTING]


def test_a_version_that_goes_while_it_is_frozen_fails_the_freeze_whole(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)

    def overtaken() -> None:
        write(graph, PERSON, copies("late"))
        collect_like_an_engine(graph)

    # Once it knows what it freezes, and before the first tag.
    when_asked(monkeypatch, Storage, "write", overtaken, about=f"^{HOLDS_DIR}/", skip=1)
    with pytest.raises(PublishConflict, match="nothing stays frozen"):
        freeze_graph(graph)
    assert freeze_tags(graph.uri) == set()
    assert_no_leftovers(graph)


def test_nothing_is_frozen_that_a_cleanup_is_about_to_remove(demo_graph: DemoGraph) -> None:
    """It may have been stopped right before its effect, for as long as it likes."""
    graph = demo_graph(**SMALL)
    entry = entry_of(graph, PERSON)
    with announced(graph.storage, entry.path, branch=None, versions=(entry.version,)):
        with pytest.raises(StalePlan, match=f"version {entry.version} of {entry.path} is being removed"):
            freeze_graph(graph)
        assert freeze_tags(graph.uri) == set()
    assert_no_leftovers(graph)


def test_a_branch_that_is_deleted_in_spite_of_tags_is_named(demo_graph: DemoGraph, stamp: int) -> None:
    """As the engines do: Lance before 14 deletes a tagged branch, its folder goes and the tags dangle."""
    graph = demo_graph(stamp=stamp, **BRANCHED)
    freeze = freeze_graph(graph)
    forked = next(p for p in freeze.cut.pins if p.role == "table" and p.branch is not None)
    reference = Path(graph.uri, forked.path, "_refs/branches").iterdir()
    for path in reference:
        path.unlink()
    problems = verify_cut(graph, freeze)
    assert {(p.path, p.branch, p.version) for p in problems} == {(forked.path, forked.branch, forked.version)}
    assert "deleted" in problems[0].reason
    (listed,) = list_holds(graph).holds
    assert listed.problems == problems


def test_a_branch_of_the_same_name_is_not_the_frozen_one(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, lazy_branches=1)
    freeze = freeze_graph(graph)
    (name,) = graph.branches()
    make_branch_anew(graph, name, int(graph.manifest().version))
    assert any("another one of that name" in p.reason for p in verify_cut(graph, freeze))


@pytest.mark.parametrize("name", ["01M8DHWW7T1X2WWMGQZB229YM7.json", "readme.json"])
def test_a_damaged_hold_hides_no_other(demo_graph: DemoGraph, name: str) -> None:
    graph = demo_graph(**SMALL)
    freeze = freeze_graph(graph)
    graph.storage.write(f"__maintenance/holds/{name}", b"{")
    sound, damaged = list_holds(graph).holds
    assert (sound.hold_id, sound.state, sound.problems) == (freeze.freeze_id, HoldState.ACTIVE, ())
    assert (damaged.hold_id, damaged.state) == (name.removesuffix(".json"), HoldState.UNKNOWN)
    assert f"holds/{name} cannot be read, so what it protects is unknown" in damaged.reason
    assert damaged.reason in check(graph).advice


def test_a_freeze_whose_copy_of_the_schema_was_changed_is_not_copied(
    demo_graph: DemoGraph, stamp: int, tmp_path: Path
) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    freeze = freeze_graph(graph)
    graph.storage.write(f"{contract_folder(freeze.freeze_id)}/__schema_state.json", b"")
    (problem,) = verify_cut(graph, freeze)
    assert problem.reason == "the copies of the schema that the freeze kept are not as they were"
    with pytest.raises(CorruptGraph, match="are not as they were; nothing was copied"):
        backup_graph(graph, str(tmp_path / "backups"), BackupOptions(freeze_id=freeze.freeze_id))
    assert not any((tmp_path / "backups").rglob("*.lance"))


def test_a_hold_that_calls_itself_a_freeze_and_is_none_ends_as_a_hold(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    hold = place_hold(graph.storage, (), kind=HoldKind.FREEZE, reason="by hand", ttl_seconds=60)
    release(graph, hold.hold_id)
    assert list_holds(graph).holds == ()
    running = place_hold(graph.storage, (), kind=HoldKind.PLAN, reason="a rewrite that reads", ttl_seconds=60)
    with pytest.raises(InvalidInput, match="a plan by itself"):
        release(graph, running.hold_id)


def test_a_freeze_goes_with_its_table_whatever_that_is_called_now(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    hold = read_hold(graph.storage, freeze_graph(graph, tables=(PERSON,)).freeze_id)
    assert hold is not None and hold.freeze is not None and hold.freeze.cut is not None
    pins = tuple(replace(p, table_key="node:Old") if p.table_key == PERSON else p for p in hold.freeze.cut.pins)
    before = FreezeTerms(tables=("node:Old",), cut=replace(hold.freeze.cut, pins=pins))
    write_hold(graph.storage, replace(hold, freeze=before))
    with pytest.raises(GraphFrozen, match="node:Old of"):
        refuse_frozen(graph, PERSON)
    refuse_frozen(graph, KNOWS)


def test_a_type_dropped_while_frozen_keeps_its_directory(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    freeze = freeze_graph(graph)
    path = drop(graph, KNOWS)
    age(graph.uri)
    with pytest.raises(GraphFrozen):
        plan_orphans(graph, older_than_seconds=WEEK)
    # Even where only the tags are left of the freeze.
    graph.storage.delete(hold_path(freeze.freeze_id))
    plan = plan_orphans(graph, older_than_seconds=WEEK)
    assert not [f for f in plan.files if f.path.startswith(path)]
    assert verify_cut(graph, freeze) == ()
    unfreeze(graph, freeze.freeze_id)
    age(graph.uri)
    assert [f for f in plan_orphans(graph, older_than_seconds=WEEK).files if f.path.startswith(path)]


@pytest.mark.slow
def test_a_reader_that_announces_its_version_keeps_it(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    entry = entry_of(graph, PERSON)
    hold = hold_version(graph, PERSON, version=None, branch="main", ttl_seconds=60, reason="report", owner="bob")
    reader = graph.open_pinned(entry)
    rows = reader.to_table()
    optimize_all(graph)
    cleanup_all(graph, plan_cleanup(graph, KEEP_1))
    assert lance.dataset(reader.uri, version=entry.version).to_table() == rows
    with pytest.raises(InvalidInput, match="not a freeze"):
        unfreeze(graph, hold.hold_id)
    release(graph, hold.hold_id)
    with pytest.raises(InvalidInput, match="has no hold"):
        release(graph, hold.hold_id)
    cleanup_all(graph, plan_cleanup(graph, KEEP_1))
    assert entry.version not in {v["version"] for v in graph.open_head(entry_of(graph, PERSON)).versions()}
    freeze = freeze_graph(graph)
    with pytest.raises(InvalidInput, match="unfreeze"):
        release(graph, freeze.freeze_id)


@pytest.mark.slow
def test_behind_the_fence_all_branches_are_of_one_instant(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **BRANCHED)
    with fenced(graph, at_most_seconds=60) as behind_fence:
        freeze = freeze_graph(behind_fence)
    assert freeze.cut.one_instant
    assert not any(b.branch == SCHEMA_APPLY_LOCK for b in freeze.cut.branches)
    assert check(graph).schema_apply_lock is False


@pytest.mark.slow
def test_the_base_of_a_merge_is_frozen_whole(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, written_branches=1)
    (base,) = base_states(graph, [graph.state(branch) for branch in (None, *graph.branches())])
    cut = freeze_graph(graph).cut
    pinned = {(p.path, p.branch, p.version) for p in cut.pins if p.role is not PinRole.FORK}
    assert (MANIFEST_DIR, base.branch, base.manifest_version) in pinned
    assert {(e.path, e.branch, e.version) for e in base.entries} <= pinned


def test_the_head_commit_is_frozen_though_the_manifest_was_compacted_since(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    head = graph.format.commits(graph.context, None)[-1]
    graph.manifest().optimize.compact_files()
    assert graph.state().manifest_version > head.manifest_version
    cut = freeze_graph(graph).cut
    # A branch that is made of main later starts from that commit, which a merge opens at its own version.
    assert {p.version for p in cut.pins if p.role is PinRole.GRAPH} >= {head.manifest_version}


@pytest.mark.slow
def test_plain_lance_freezes_its_branches_too(tmp_path: Path) -> None:
    indexed(tmp_path / "items.lance", stable=True, deletions=False)
    branch = lance.dataset(str(tmp_path / "items.lance")).create_branch("dev")
    indexed(tmp_path / "other.lance", stable=False)
    graph = opened(tmp_path)
    freeze = freeze_graph(graph)
    assert {(p.path, p.branch) for p in freeze.cut.pins if p.role == "table"} == {
        ("items.lance", None),
        ("items.lance", "dev"),
        ("other.lance", None),
    }
    with pytest.raises(GraphFrozen):
        optimize_all(graph)
    with pytest.raises(GraphFrozen):
        optimize_all(opened(tmp_path / "items.lance"))
    append(tmp_path / "items.lance", 5000)
    lance.dataset(branch.uri).cleanup_old_versions(retain_versions=1, error_if_tagged_old_versions=False)
    assert verify_cut(graph, freeze) == ()
    unfreeze(graph, freeze.freeze_id)
    assert freeze_tags(tmp_path) == set()
    assert all(t.error is None for t in optimize_all(graph).tables)


def test_a_freeze_of_one_plain_dataset_leaves_its_neighbour_alone(tmp_path: Path) -> None:
    for name in ("a.lance", "b.lance"):
        indexed(tmp_path / name, stable=True)
    freeze_graph(opened(tmp_path), tables=("table:a",))
    report = {t.table_key: t for t in optimize_all(opened(tmp_path)).tables}
    assert (report["table:a"].skipped, report["table:a"].error) == (SkipReason.FROZEN, None)
    assert report["table:b"].committed


@pytest.mark.slow
def test_the_round_of_a_freeze_from_the_shell(cli: Cli, demo_graph: DemoGraph, stamp: int) -> None:
    root = demo_graph(stamp=stamp, **SMALL).uri
    frozen = cli("freeze --json", root, "--reason", "before the upgrade").json
    freeze_id = frozen["freeze_id"]
    assert_refused(cli("optimize", root), f"unfreeze {root} {freeze_id}")
    (hold,) = cli("holds --json", root).json["holds"]
    assert (hold["hold_id"], hold["reason"], hold["what"]) == (freeze_id, "before the upgrade", "the whole graph")
    assert "before the upgrade" in cli("holds", root).out
    assert cli(f"freeze --extend {freeze_id} --ttl 2h --json", root).json["expires_at"] < frozen["expires_at"]
    listed = cli(f"files --freeze {freeze_id} --json --checksum", root).json["files"]
    assert {"file", "normalized", "size", "checksum"} <= set(listed[0])
    assert all(Path(f["normalized"]).stat().st_size == f["size"] for f in listed)
    assert cli(f"files --freeze {freeze_id} --format csv", root).out.count("\n") == len(listed) + 1
    assert_refused(cli("unfreeze", root), "--all-mine", code=2)
    assert freeze_id in cli("unfreeze --all-mine", root).out
    assert cli("holds --json", root).json["holds"] == []
    assert cli("optimize --fence --fence-seconds 1m", root).code == 0
    assert_refused(cli("optimize --fence-seconds 1m", root), "bounds --fence", code=2)
    assert_refused(cli("freeze --ttl 31d", root), "30 days")
    assert_refused(cli(f"freeze --extend {freeze_id} --reason x", root), "leave the other options out", code=2)
    assert {run["header"]["verb"] for run in cli("history --json", root).json["runs"]} == {"optimize"}
    hold_id = cli(f"hold --table {PERSON} --json", root).json["hold_id"]
    assert hold_id in cli("release", root, hold_id).out


def test_a_freeze_that_lost_something_is_not_extended(cli: Cli, demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    freeze = freeze_graph(graph, ttl_seconds=600)
    shutil.rmtree(Path(graph.uri, freeze.cut.pins[-1].path, "_refs", "tags"))
    done = cli(f"freeze --extend {freeze.freeze_id} --ttl 2h", graph.uri)
    assert_refused(done, "has lost something of what it keeps")
    assert "it was not extended" in done.err
    assert read_freeze(graph, freeze.freeze_id).expires_at == freeze.expires_at


def test_only_ones_own_freezes_end_together(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    theirs = freeze_graph(graph, owner="ann@host")
    mine = freeze_graph(graph, owner="me@host")
    assert unfreeze_all(graph, "me@host").released == (mine.freeze_id,)
    assert [h.hold_id for h in freezes(graph.storage)] == [theirs.freeze_id]


def test_one_of_several_that_another_process_ends_meanwhile_keeps_none_of_the_others(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    first, second, third = (freeze_graph(graph, owner="me@host").freeze_id for _ in range(3))

    when_asked(monkeypatch, Storage, "write", lambda: unfreeze(graph, second), about=f"^{LEASE_PATH}-", after=True)
    report = unfreeze_all(graph, "me@host")
    assert (report.released, freezes(graph.storage), freeze_tags(graph.uri)) == ((first, third), (), set())


def test_a_plan_of_optimize_is_still_shown(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze_graph(graph)
    assert plan_optimize(graph).tables
    assert graph.storage.list(HOLDS_DIR)


def test_a_path_beyond_ascii_gets_no_twin(demo_graph: DemoGraph, tmp_path: Path) -> None:
    place = tmp_path / "ä~ #%20"
    Path(demo_graph().uri).rename(place)
    freeze_graph(open_graph(str(place)))
    assert list(tmp_path.iterdir()) == [place]


def test_a_table_of_a_lot_that_is_frozen_before_its_turn_is_skipped(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze_graph(graph, tables=(PERSON,))
    frozen, other = optimize_on_worker(graph.uri, graph.settings, (PERSON, KNOWS))
    assert (frozen.skipped, frozen.error, frozen.committed) == (SkipReason.FROZEN, None, False)
    assert (other.skipped, other.committed) == (None, True)


def test_a_cleanup_keeps_what_is_frozen_since_its_plan(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    freeze = freeze_graph(graph, tables=(PERSON,), owner="ann")
    report = cleanup_all(graph, plan)
    rows = {table.table_key: table for table in report.tables}
    assert f"{PERSON} of {graph.uri} is frozen by ann" in (rows[PERSON].kept or "")
    assert (rows[PERSON].error, rows[PERSON].old_versions_removed, report.outcome().problem) == (None, 0, "")
    assert rows[KNOWS].old_versions_removed
    assert cleanup_table(graph, plan, PERSON).kept
    unfreeze(graph, freeze.freeze_id)
    assert cleanup_table(graph, plan, PERSON).old_versions_removed


def test_a_cleanup_keeps_forks_that_are_frozen_since_its_plan(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL, written_branches=1)
    graph.manifest().branches.delete("review/hires-1")
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    freeze_graph(graph)
    assert PERSON in {fork.table_key for fork in plan.orphaned_forks}
    assert remove_orphaned_forks(graph, plan) == ()


def test_the_shell_says_what_a_freeze_kept_from_a_cleanup(
    demo_graph: DemoGraph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, plan, cli = demo_graph(**SMALL), str(tmp_path / "plan"), runner(capsys)
    assert cli("cleanup --keep 1", graph.uri, "--save-plan", plan).code == 0
    freeze_graph(graph, tables=(PERSON,), owner="ann")
    done = cli("cleanup --confirm", graph.uri, "--plan", plan)
    assert (done.code, f"kept: {PERSON} of {graph.uri} is frozen by ann" in done.out) == (0, True)


@contextmanager
def damaged(graph: Graph, table_path: str) -> Iterator[None]:
    """The newest manifest of one table has lost its end meanwhile. Writes."""
    newest = stored_manifest(graph, table_path, None, graph.open_at(table_path).version)
    assert newest is not None
    manifest = Path(graph.uri, newest)
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:40])
    try:
        yield
    finally:
        manifest.write_bytes(whole)


def test_a_freeze_is_listed_and_ended_beside_a_damaged_table(demo_graph: DemoGraph, stamp: int, cli: Cli) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    freeze, path = freeze_graph(graph), entry_of(graph, PERSON).path
    with damaged(graph, path):
        (listed,) = list_holds(open_graph(graph.uri)).holds
        assert {problem.path for problem in listed.problems} == {path}
        assert "its dataset cannot be read: cannot open" in listed.problems[0].reason
        listing = cli("holds", graph.uri)
        assert (listing.code, "cannot be read" in listing.out) == (0, True), listing
        ended = cli("unfreeze", graph.uri, freeze.freeze_id)
        assert ended.code == 1
        assert f"freeze {freeze.freeze_id} of {graph.uri} has ended, but its tags on {path} stay" in ended.err
        assert "the next `omnigraph-ops holds`, optimize or cleanup removes them" in ended.err
        assert freeze_tags(graph.uri) == {
            f"{p.path}/_refs/tags/{p.tag}.json" for p in freeze.cut.pins if p.path == path
        }
        refuse_frozen(open_graph(graph.uri))
        assert cli("holds", graph.uri).code == 0
    assert list_holds(open_graph(graph.uri)).swept == (freeze.freeze_id,)
    assert freeze_tags(graph.uri) == set()
    assert_no_leftovers(graph)


def test_tags_without_a_record_are_removed_beside_a_damaged_table(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    freeze, path = freeze_graph(graph), entry_of(graph, PERSON).path
    graph.storage.delete(hold_path(freeze.freeze_id))
    again = f"a later `omnigraph-ops unfreeze {graph.uri} {freeze.freeze_id}` removes them"
    with damaged(graph, path), pytest.raises(StorageError, match=re.escape(again)):
        unfreeze(graph, freeze.freeze_id)
    assert unfreeze(graph, freeze.freeze_id).tags_removed == len([p for p in freeze.cut.pins if p.path == path])
    assert freeze_tags(graph.uri) == set()


def test_one_freeze_whose_tags_stay_keeps_no_other_of_its_owner(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    first, second = (freeze_graph(graph, owner="me@host") for _ in range(2))
    with damaged(graph, entry_of(graph, PERSON).path), pytest.raises(StorageError, match="has ended, but its tags on"):
        unfreeze_all(graph, "me@host")
    assert set(list_holds(graph).swept) == {first.freeze_id, second.freeze_id}
    assert freeze_tags(graph.uri) == set()


def test_a_store_that_does_not_answer_is_no_damaged_table(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SMALL)
    freeze, path = freeze_graph(graph), entry_of(graph, PERSON).path
    with damaged(graph, path), monkeypatch.context() as patch:
        when_asked(patch, Storage, "list", raising(StorageError("timed out")), about=f"{path}/_versions$", times=None)
        with pytest.raises(StorageError, match=r"^timed out$"):
            list_holds(graph)
        with pytest.raises(StorageError, match=r"^timed out$"):
            unfreeze(graph, freeze.freeze_id)
    assert list_holds(graph).swept == (freeze.freeze_id,)

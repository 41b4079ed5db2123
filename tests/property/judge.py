"""Runs cleanup and orphans on a world and fails when they do more, or less, than they may."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from urllib.parse import quote

from omnigraph_ops.coordination.fence import fenced
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.cleanup import CleanupPlan, RetentionPolicy, SnapshotExpiry
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from tests.property.history import Cleanup, Orphans
from tests.property.model import files_below, outside
from tests.property.world import World


def policy_of(step: Cleanup) -> RetentionPolicy:
    """The policy that a step asks for. Pure."""
    if step.limit is None:
        return RetentionPolicy(keep_versions=step.keep, older_than_secs=step.older_than, between_pins=step.between_pins)
    expiry = SnapshotExpiry(retain_min=1, retain_max=1, time_retained_secs=0, expire_limit=step.limit)
    return RetentionPolicy(expiry=expiry, between_pins=step.between_pins)


def run_cleanup(world: World, step: Cleanup) -> None:
    """Plan and apply, then once more: nothing may be left for the second run. Destroys."""
    policy = policy_of(step)
    plan = cleanup_once(world, policy)
    while plan is not None and plan.orphaned_forks:
        # Where a fork began is protected as long as it is there, so only the next plan can list that version.
        plan = cleanup_once(world, policy)
    if plan is None or step.limit is not None:
        return
    before = set(files_below(world.home))
    cleanup_once(world, policy)
    assert sorted(before - set(files_below(world.home))) == [], "a second run found something to delete"


def cleanup_once(world: World, policy: RetentionPolicy) -> CleanupPlan | None:
    """Plan, apply and judge; the plan if it was accepted. Destroys."""
    graph, before = world.graph(), files_below(world.home)
    try:
        plan = plan_cleanup(graph, policy)
    except OpsError:
        world.seen["cleanup refused"] += 1
        assert files_below(world.home) == before, "a refused plan changed files"
        return None
    assert files_below(world.home) == before, "planning changed files"
    report = cleanup_all(graph, plan)
    after = files_below(world.home)
    gone = set(before) - set(after)
    assert outside(gone, planned_files(plan)) == [], "files are gone that no plan listed"
    assert sorted(name for name in after if before.get(name) != after[name]) == [], "files appeared or changed"
    for table in plan.tables:
        if table.refused is not None:
            forks = {f.path for fork in plan.orphaned_forks for f in fork.files} | set(fork_references(plan))
            own = {name for name in gone if name.startswith(f"{table.table_path}/")}
            assert outside(own, forks) == [], f"{table.table_key} was refused and lost files"
            world.seen["table refused"] += 1
    world.check()
    for fork in report.orphaned_forks_removed:
        world.model.forget_fork(fork.table_path, fork.branch)
    unexpected = [t for t in report.failed if t.table_key not in {p.table_key for p in plan.tables if p.refused}]
    assert unexpected == [], "nothing moved since the plan, and yet it was not carried out"
    assert [(f.branch, f.error) for f in report.orphaned_forks_failed] == []
    world.seen["versions removed"] += report.versions_removed
    world.seen["forks removed"] += len(report.orphaned_forks_removed)
    world.seen["forks kept"] += len(plan.kept_forks)
    return plan


def planned_files(plan: CleanupPlan) -> set[str]:
    """Every file that the plan lists, and the references of the branches it lists. Pure."""
    versions = {f.path for table in plan.tables for f in table.files}
    forks = {f.path for fork in plan.orphaned_forks for f in fork.files}
    return versions | forks | set(fork_references(plan))


def fork_references(plan: CleanupPlan) -> Iterable[str]:
    """The files by which Lance knows the branches of the plan. Pure."""
    return (f"{f.table_path}/_refs/branches/{quote(f.branch, safe='')}.json" for f in plan.orphaned_forks)


def run_orphans(world: World, step: Orphans) -> None:
    """List, apply and judge, then once more: nothing may be left for the second run. Destroys."""
    graph = world.graph()
    # Files of the last hour may belong to a write in progress: without an age the fence keeps writers away.
    with contextlib.nullcontext(graph) if step.older_than_days else fenced(graph) as graph:
        if orphans_once(world, graph, step.older_than_days * 86_400):
            before = set(files_below(world.home))
            orphans_once(world, graph, step.older_than_days * 86_400)
            assert sorted(before - set(files_below(world.home))) == [], "a second run found something to delete"


def orphans_once(world: World, graph: Graph, age: int) -> bool:
    """Plan, apply and judge; whether it was accepted. Destroys."""
    before = files_below(world.home)
    try:
        plan = plan_orphans(graph, older_than_seconds=age)
    except OpsError:
        world.seen["orphans refused"] += 1
        assert files_below(world.home) == before, "a refused plan changed files"
        return False
    assert files_below(world.home) == before, "planning changed files"
    report = apply_orphans(graph, plan)
    after = files_below(world.home)
    gone = set(before) - set(after)
    assert outside(gone, (f.path for f in plan.files)) == [], "files are gone that no plan listed"
    assert sorted(name for name in after if before.get(name) != after[name]) == [], "files appeared or changed"
    skipped = tuple(f"{d.path}/" for d in plan.skipped)
    assert [name for name in gone if name.startswith(skipped)] == [], "a skipped dataset lost files"
    world.check()
    assert (report.spared, report.failed) == ((), ()), "nothing moved since the plan, and yet it was not carried out"
    assert [f.path for f in plan.unknown] == [], "a file that we or the engine wrote is unknown"
    world.seen["orphan files removed"] += report.files_removed
    return True

"""Between approval and apply the graph moves: the plan is refused or what became needed is subtracted, never taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.errors import OpsError, RecoveryPending
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.cleanup import CleanupPlan, CleanupReport, RetentionPolicy
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from tests.property.history import (
    PERSON,
    Delete,
    DeleteBranch,
    Drift,
    Hold,
    LazyBranch,
    Load,
    Repair,
    Step,
    StrayFork,
    Tag,
    WriteBranch,
)
from tests.property.judge import planned_files
from tests.property.model import files_below, outside
from tests.property.stops import STOPS
from tests.property.world import World
from tests.support.templates import Templates

pytestmark = pytest.mark.slow

KEEP_1 = RetentionPolicy(keep_versions=1)
FORK = "review/a/b"


@pytest.fixture
def world(templates: Templates, stamp: int, tmp_path: Path) -> World:
    """Six versions of Person on main, five of them doomed; no branch."""
    made = World(templates, stamp, tmp_path)
    for _ in range(3):
        made.take(Load(PERSON))
    return made


def apply(world: World, plan: CleanupPlan) -> CleanupReport:
    """Apply an approved plan: everything wanted still scans and nothing unlisted is gone. Destroys."""
    before = set(files_below(world.home))
    report = cleanup_all(world.graph(), plan)
    world.check()
    assert outside(before - set(files_below(world.home)), planned_files(plan)) == []
    return report


def spared(report: CleanupReport) -> tuple[int, ...]:
    """The versions of Person that were subtracted."""
    return next(t for t in report.tables if t.table_key == PERSON).skipped_since_protected


def left(world: World) -> list[int]:
    return sorted(v["version"] for v in world.head(PERSON).versions())


def planned(plan: CleanupPlan) -> tuple[int, ...]:
    return next(t for t in plan.tables if t.table_key == PERSON).versions


def test_a_new_commit_adds_nothing_to_the_plan(world: World) -> None:
    plan = plan_cleanup(world.graph(), KEEP_1)
    pinned = world.model.pins[None][PERSON].version
    world.take(Load(PERSON))
    world.take(Delete(PERSON, 0))
    assert apply(world, plan).failed == ()
    # The version that was published when the plan was approved was not doomed by it, so it stays.
    assert left(world) == [pinned, pinned + 1, pinned + 2]


LATER: dict[str, Step] = {
    "lazy branch": LazyBranch("z", None, back=2),
    "tag": Tag(PERSON, 2),
    "hold": Hold(PERSON, 2),
    "running plan": Hold(PERSON, 2, running=True),
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER.keys())
def test_what_became_needed_is_subtracted_and_said(world: World, later: Step) -> None:
    plan = plan_cleanup(world.graph(), KEEP_1)
    wanted = world.model.pins[None][PERSON].version - 2
    assert wanted in planned(plan)
    world.take(later)
    report = apply(world, plan)
    assert report.failed == ()
    assert wanted in spared(report)
    assert wanted in left(world)
    assert planned(plan)[0] not in left(world)


def test_a_branch_written_at_an_old_version_is_subtracted(world: World) -> None:
    plan = plan_cleanup(world.graph(), KEEP_1)
    old = world.model.pins[None][PERSON].version - 2
    world.take(LazyBranch(FORK, None, back=2))
    world.take(WriteBranch(FORK, PERSON))
    report = apply(world, plan)
    assert (report.failed, old in spared(report), old in left(world)) == ((), True, True)


def test_a_fork_that_nobody_publishes_yet_is_subtracted(world: World) -> None:
    """The engine forks a table before it publishes the write: in between it looks like an orphan."""
    plan = plan_cleanup(world.graph(), KEEP_1)
    world.take(LazyBranch(FORK, None, back=2))
    world.take(StrayFork(FORK, PERSON))
    fork = world.head(PERSON).checkout_version((FORK, None))
    report = apply(world, plan)
    assert report.orphaned_forks_removed == ()
    assert fork.count_rows() == world.head(PERSON).checkout_version((FORK, None)).count_rows()


KEPT_FORKS: dict[str, Step] = {"tag": Tag(PERSON, 0, FORK), "hold": Hold(PERSON, 0, FORK)}


@pytest.mark.parametrize("later", KEPT_FORKS.values(), ids=KEPT_FORKS.keys())
def test_an_orphaned_fork_that_somebody_wants_since_stays(world: World, later: Step) -> None:
    world.take(WriteBranch(FORK, PERSON))
    world.take(DeleteBranch(FORK, orphans=True))
    plan = plan_cleanup(world.graph(), KEEP_1)
    assert (PERSON, FORK) in {(f.table_key, f.branch) for f in plan.orphaned_forks}
    world.take(later)
    report = apply(world, plan)
    assert PERSON not in {f.table_key for f in report.orphaned_forks_removed}
    assert FORK in world.head(PERSON).branches.list()


def test_an_orphaned_fork_that_grew_since_is_not_taken(world: World) -> None:
    world.take(StrayFork(FORK, PERSON))
    plan = plan_cleanup(world.graph(), KEEP_1)
    world.head(PERSON).checkout_version((FORK, None)).delete("id = 'no such row'")
    report = apply(world, plan)
    assert [f.branch for f in report.orphaned_forks_failed] == [FORK]
    assert FORK in world.head(PERSON).branches.list()


def test_an_orphaned_fork_that_its_branch_publishes_since_stays(world: World) -> None:
    world.take(LazyBranch(FORK))
    world.take(StrayFork(FORK, PERSON))
    plan = plan_cleanup(world.graph(), KEEP_1)
    assert (PERSON, FORK) in {(f.table_key, f.branch) for f in plan.orphaned_forks}
    world.publish(FORK, PERSON, FORK)
    assert (apply(world, plan).orphaned_forks_removed, FORK in world.head(PERSON).branches.list()) == ((), True)


def test_a_branch_with_a_version_below_everything_empties_the_plan(world: World) -> None:
    plan = plan_cleanup(world.graph(), KEEP_1)
    before = left(world)
    # The first publish that the model knows: below it lie only the versions that the template made.
    world.take(LazyBranch("a", None, back=3))
    report = apply(world, plan)
    oldest = world.model.pins["a"][PERSON].version
    assert left(world) == [v for v in before if v >= oldest]
    assert spared(report) == tuple(v for v in planned(plan) if v >= oldest)


def test_drift_refuses_the_table_and_repair_does_not_revive_the_plan_beyond_its_list(world: World) -> None:
    plan = plan_cleanup(world.graph(), KEEP_1)
    before = left(world)
    world.take(Drift(PERSON, "empty_delete"))
    report = apply(world, plan)
    assert [t.table_key for t in report.failed] == [PERSON]
    assert left(world) == [*before, before[-1] + 1]
    world.take(Repair(force=True))
    assert apply(world, plan).failed == ()
    assert left(world) == [before[-1], before[-1] + 1]


def drop(world: World) -> None:
    """Main stops publishing Person, as after a schema apply that drops the type."""
    world.graph().manifest().delete(f"table_key = '{PERSON}'")
    del world.model.pins[None][PERSON]


def test_a_table_dropped_since_keeps_all_its_files(world: World) -> None:
    plan = plan_cleanup(world.graph(), KEEP_1)
    before, path = files_below(world.home), world.tables[PERSON].path
    drop(world)
    try:
        report = apply(world, plan)
    except OpsError:
        pass  # refused as a whole is as good
    else:
        assert [t.table_key for t in report.tables if t.kept] == [PERSON]
    assert outside((f for f in before if f.startswith(path)), files_below(world.home)) == []


@pytest.mark.parametrize("happens", STOPS)
def test_a_schema_apply_or_a_recovery_stops_everything(world: World, happens: Callable[[World], None]) -> None:
    world.take(StrayFork(FORK, PERSON))
    plan = plan_cleanup(world.graph(), KEEP_1)
    happens(world)
    before = files_below(world.home)
    with pytest.raises(RecoveryPending):
        cleanup_all(world.graph(), plan)
    assert files_below(world.home) == before
    world.check()


def test_another_spelling_is_another_graph(world: World, tmp_path: Path) -> None:
    plan = plan_cleanup(world.graph(), KEEP_1)
    (tmp_path / "link").symlink_to(world.home)
    before = files_below(world.home)
    with pytest.raises(OpsError, match="is for"):
        cleanup_all(open_graph(str(tmp_path / "link")), plan)
    assert files_below(world.home) == before

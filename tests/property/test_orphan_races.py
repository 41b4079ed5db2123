"""Between approval and apply of orphans: what came to be needed or changed is spared; a recovery stops everything."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.errors import RecoveryPending
from omnigraph_ops.lance.tables import commit_results, execute_task, plan_tasks
from omnigraph_ops.models.orphans import OrphansPlan, OrphansReport
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from tests.property.history import PERSON, Age, Hold, LazyBranch, Load, Step, Tag, WriteBranch
from tests.property.model import files_below, outside
from tests.property.stops import STOPS
from tests.property.world import World
from tests.support.templates import Templates

pytestmark = pytest.mark.slow

FORK = "review/a/b"


@pytest.fixture
def world(templates: Templates, stamp: int, tmp_path: Path) -> World:
    """Four fragments of Person on main; no branch."""
    made = World(templates, stamp, tmp_path)
    for _ in range(2):
        made.take(Load(PERSON))
    return made


def unfinished(world: World) -> list[str]:
    """Rewrites of Person that were executed eight days ago and not committed. Writes."""
    head = world.head(PERSON)
    results = [execute_task(head, task.payload) for task in plan_tasks(head, 1_000_000)]
    world.take(Age())
    return results


def apply(world: World, plan: OrphansPlan) -> OrphansReport:
    """Apply an approved plan: everything wanted still scans and nothing unlisted is gone. Destroys."""
    before = set(files_below(world.home))
    report = apply_orphans(world.graph(), plan)
    world.check()
    assert outside(before - set(files_below(world.home)), (f.path for f in plan.files)) == []
    return report


def test_a_write_that_was_only_slow_keeps_its_files(world: World) -> None:
    results = unfinished(world)
    plan = plan_orphans(world.graph())
    assert plan.files != ()
    commit_results(world.head(PERSON), results)
    world.publish(None, PERSON, None)
    report = apply(world, plan)
    assert (report.files_removed, {s.path for s in report.spared}) == (0, {f.path for f in plan.files})


def test_a_file_that_changed_is_spared(world: World) -> None:
    unfinished(world)
    plan = plan_orphans(world.graph())
    for file in plan.files:
        os.utime(os.path.join(world.home, file.path))
    report = apply(world, plan)
    assert (report.files_removed, {s.path for s in report.spared}) == (0, {f.path for f in plan.files})


LATER: dict[str, Step] = {
    "commit": Load(PERSON),
    "lazy branch": LazyBranch("z", None, back=1),
    "written branch": WriteBranch(FORK, PERSON),
    "tag": Tag(PERSON, 2),
    "hold": Hold(PERSON, 2),
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER.keys())
def test_what_came_since_is_not_touched_and_the_litter_goes(world: World, later: Step) -> None:
    unfinished(world)
    plan = plan_orphans(world.graph())
    world.take(later)
    assert apply(world, plan).files_removed == len(plan.files) > 0


def test_a_table_that_is_worked_on_keeps_its_files(world: World) -> None:
    unfinished(world)
    plan = plan_orphans(world.graph())
    world.take(Hold(PERSON, 2, running=True))
    report = apply(world, plan)
    assert (report.files_removed, {s.path for s in report.spared}) == (0, {f.path for f in plan.files})
    beside = plan_orphans(world.graph())
    assert beside.files == ()
    assert [("an optimize of its table is at work" in s.reason) for s in beside.skipped] == [True]


@pytest.mark.parametrize("happens", STOPS)
def test_a_schema_apply_or_a_recovery_stops_everything(world: World, happens: Callable[[World], None]) -> None:
    unfinished(world)
    plan = plan_orphans(world.graph())
    happens(world)
    before = files_below(world.home)
    with pytest.raises(RecoveryPending):
        apply_orphans(world.graph(), plan)
    assert files_below(world.home) == before

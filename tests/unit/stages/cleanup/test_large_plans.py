"""A plan may be as large as the graph is; what a person reads of it, and what is handed from task to task, is not."""

from __future__ import annotations

import pytest

from omnigraph_ops import serde
from omnigraph_ops.coordination.sealed import PlanRef, plan_path
from omnigraph_ops.models.cleanup import CleanupPlan, OrphanedFork
from omnigraph_ops.stages.cleanup.policy import Protection, removable
from omnigraph_ops.stages.cleanup.stage import Cleanup
from omnigraph_ops.views import markdown
from omnigraph_ops.views.markdown import MOST_RANGES, ranges
from omnigraph_ops.views.view import plain_text
from tests.support.large_plans import MANY, large_cleanup

pytestmark = pytest.mark.slow

READABLE = 64 * 1024


@pytest.fixture(scope="module")
def plan() -> CleanupPlan:
    return large_cleanup()


def body_of(plan: CleanupPlan) -> str:
    stage = Cleanup()
    return markdown.body(stage.view(plan), stage.question(plan), digest=plan.digest, full_plan="the kept plan")


def test_an_approval_and_a_terminal_show_a_bounded_part(plan: CleanupPlan) -> None:
    body, text = body_of(plan), plain_text(Cleanup().view(plan))
    assert len(body) < READABLE
    assert len(text) < READABLE
    assert f"removes {MANY:,} old versions" in body
    assert f"and {MANY - MOST_RANGES:,} more versions up to {2 * MANY - 1}" in body
    assert f"Protected versions, and {MANY - 200:,} more, see --json" in text
    assert f"And {MANY - 30:,} more, listed in the kept plan." in body
    assert "Orphaned forks kept, and 9,800 more, see --json" in text


def test_what_tasks_hand_on_is_a_name(plan: CleanupPlan) -> None:
    ref = PlanRef(uri=plan.uri, digest=plan.digest, path=plan_path(plan.digest), expires_at_us=1)
    assert len(serde.dumps(ref)) < 1024
    assert serde.from_json(CleanupPlan, serde.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        (range(1, 200_001), "1-200000"),
        (range(1, 2 * MOST_RANGES, 2), ", ".join(str(n) for n in range(1, 2 * MOST_RANGES, 2))),
        ((*range(1, 2 * MOST_RANGES, 2), 200, 201, 300), None),
    ],
)
def test_ranges_of_many_versions_end(versions: range, text: str | None) -> None:
    shown = ranges(versions)
    assert shown == text if text is not None else shown.endswith("99, and 3 more versions up to 300")


def test_deciding_does_not_compare_every_version_with_every_protected_one() -> None:
    many = 3000
    (table,) = large_cleanup(many=many).tables

    class Counted(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    protection = Protection(versions=table.protected, floor=3 * many, floor_reason="published on main")
    free, blocked = removable([Counted(v) for v in table.versions], protection, between_pins=False)
    assert (free, blocked) == (table.versions, None)
    assert Counted.compared < 100 * many


def test_a_fork_that_stays_is_counted_when_there_are_many() -> None:
    fork = OrphanedFork(table_key="node:Person", table_path="nodes/p", branch="b", error="a tag keeps it")
    few = large_cleanup(many=1, kept_forks=(fork,))
    assert "more, listed" not in body_of(few)
    assert "a tag keeps it" in body_of(few)

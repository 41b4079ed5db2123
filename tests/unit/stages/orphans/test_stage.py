"""What a person sees of a plan."""

from __future__ import annotations

from omnigraph_ops.models.orphans import OrphanFile, OrphanGroup, OrphanKind, OrphansPlan
from omnigraph_ops.stages.orphans.stage import plan_view

TABLE, DROPPED = "nodes/00000000000000aa", "edges/00000000000000cc"


def test_files_are_counted_at_the_innermost_group_that_goes() -> None:
    dead = [(f"{TABLE}/tree/{branch}", OrphanKind.DEAD_BRANCH) for branch in ("a", "a/b", "a/b/c", "ab", "kept")]
    groups = [*dead, (DROPPED, OrphanKind.DROPPED_TABLE)]
    alone = [(f"{TABLE}/tree/alive", OrphanKind.DATA), ("__maintenance/holds", OrphanKind.OWN_STATE)]
    places = [place for place in (*groups, *alone) if not place[0].endswith("kept")]
    plan = OrphansPlan(
        uri="g.omni",
        stamp=6,
        older_than_secs=0,
        quarantine=False,
        planned_at_us=0,
        expires_at_us=0,
        cutoff=0.0,
        files=tuple(OrphanFile(path=f"{at}/data/x.lance", size=1, modified_at=0.0, kind=kind) for at, kind in places),
        folders=(),
        groups=tuple(
            OrphanGroup(path=at, kind=kind, files=1, bytes=1, kept="a reason" if at.endswith("kept") else None)
            for at, kind in groups
        ),
        unknown=(),
        skipped=(),
    )
    (goes,) = (section.rows for section in plan_view(plan).sections if section.title == "Goes")
    seen = {(place, kind): files for place, kind, files, _ in goes}
    going = [(at, kind.value) for at, kind in groups if not at.endswith("kept")]
    assert seen == dict.fromkeys([*going, (TABLE, "data"), ("__maintenance", "own state")], "1")

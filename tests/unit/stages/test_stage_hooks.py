"""What stages tell the surfaces: their parts, what failed, what a person should look at."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from omnigraph_ops.models.cleanup import (
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    OrphanedFork,
    RetentionPolicy,
    TableCleanupPlan,
)
from omnigraph_ops.models.orphans import OrphansPlan, OrphansReport, SkippedDataset, SparedFile, UnknownFile
from omnigraph_ops.models.repair import RepairPreview, RepairReport
from omnigraph_ops.requests import build
from omnigraph_ops.stages.cleanup.stage import ORPHANED_FORKS, Cleanup, CleanupRequest
from omnigraph_ops.stages.orphans.stage import Orphans, OrphansRequest
from omnigraph_ops.stages.registry import BY_NAME, asked_by, tasks_by_stage
from omnigraph_ops.stages.repair.stage import Repair
from tests.support.history import noted

FORK = OrphanedFork(table_key="node:A", table_path="nodes/a", branch="old")
STATS = CleanupStats(table_key="node:A", old_versions_removed=2, bytes_removed=10)
REMOVED = OrphansReport(
    uri="/g",
    digest="sha256:1",
    quarantine_id=None,
    files_removed=1,
    bytes_removed=1,
    folders_removed=0,
    already_gone=0,
    spared=(),
    failed=(),
)


def table(key: str, *versions: int, refused: str | None = None) -> TableCleanupPlan:
    return TableCleanupPlan(
        table_key=key, table_path=key, pinned_version=9, lance_head_version=9, versions=versions, refused=refused
    )


def cleanup(*tables: TableCleanupPlan, forks: tuple[OrphanedFork, ...] = ()) -> CleanupPlan:
    policy = RetentionPolicy(keep_versions=1)
    return CleanupPlan(
        uri="/g",
        stamp=6,
        policy=policy,
        planned_at_us=0,
        expires_at_us=1,
        tables=tables,
        orphaned_forks=forks,
        digest="sha256:1",
    )


def report(*tables: CleanupStats, **forks: tuple[OrphanedFork, ...]) -> CleanupReport:
    return CleanupReport(uri="/g", keep_versions=None, older_than_secs=None, tables=tables, **forks)  # type: ignore[arg-type]


def test_the_parts_of_a_cleanup_are_its_tables_with_work_and_all_forks_as_one() -> None:
    plan = cleanup(table("node:B", 1, 2), table("node:C"), table("node:A", 1), forks=(FORK, FORK))
    assert Cleanup().parts(plan) == ["node:B", "node:A", ORPHANED_FORKS]
    assert Cleanup().parts(cleanup(table("node:C"))) == []


def test_the_reports_of_parts_are_one() -> None:
    gone, broken = replace(FORK, branch="gone"), replace(FORK, error="denied")
    parts = [report(STATS), report(orphaned_forks_removed=(gone,), orphaned_forks_failed=(broken,))]
    joined: CleanupReport = reduce(CleanupReport.then, parts)
    assert (joined.uri, joined.tables, joined.versions_removed) == ("/g", (STATS,), 2)
    assert (joined.orphaned_forks_removed, joined.orphaned_forks_failed) == ((gone,), (broken,))
    assert Cleanup().failures(joined) == ("node:A: fork old: denied",)


def test_a_cleanup_that_left_no_row_has_no_report() -> None:
    assert not noted().reports
    found = noted(report(STATS), report(orphaned_forks_removed=(FORK,))).reports["cleanup"]
    assert (found.tables, found.orphaned_forks_removed) == ((STATS,), (FORK,))


def test_a_report_is_found_by_its_stage() -> None:
    assert noted(REMOVED).reports.get(Orphans.name) is REMOVED
    assert noted(REMOVED).reports.get(Repair.name) is None


def test_files_that_stay_are_failures() -> None:
    stays = replace(REMOVED, failed=(SparedFile(path="nodes/a/data/x", reason="denied"),))
    assert Orphans().failures(stays) == ("nodes/a/data/x: denied",)


def test_what_a_plan_leaves_out_needs_attention() -> None:
    drifted = cleanup(table("node:A", refused="it has drifted"))
    assert Cleanup().attention(drifted, None) == ["node:A: not cleaned: it has drifted"]
    plan = OrphansPlan(
        uri="/g",
        stamp=6,
        older_than_secs=0,
        quarantine=False,
        planned_at_us=0,
        expires_at_us=1,
        cutoff=0,
        files=(),
        folders=(),
        groups=(),
        unknown=(UnknownFile(path="x", size=1),),
        skipped=(SkippedDataset(path="nodes/a", reason="denied"),),
    )
    assert Orphans().attention(plan, None) == [
        "nodes/a: not searched for orphans: denied",
        "the graph has 1 unknown file; what is not known is never removed",
    ]


@pytest.mark.parametrize(
    ("digest", "version", "done"), [("sha256:1", 7, True), ("sha256:1", None, False), ("sha256:2", 7, False)]
)
def test_a_repair_that_published_the_plan_is_not_carried_out_again(
    digest: str, version: int | None, done: bool
) -> None:
    plan = RepairPreview(uri="/g", stamp=6, planned_at_us=0, expires_at_us=1, rows=(), digest="sha256:1")
    earlier = RepairReport(uri="/g", confirm=True, force=False, manifest_version=version, tables=(), digest=digest)
    assert Repair().is_carried_out(plan, earlier) is done


def test_the_stages_of_dags_come_in_the_order_of_a_night() -> None:
    assert list(tasks_by_stage()) == ["optimize", "repair", "cleanup", "orphans", "expire-rows", "backup"]
    assert (tasks_by_stage()["backup"].plan, tasks_by_stage()["backup"].apply) == ("freeze", "copy")


def test_every_stage_has_tasks_of_its_own() -> None:
    ids = [task for of in tasks_by_stage().values() for task in (of.plan, of.approve, of.apply) if task]
    assert len(ids) == len(set(ids))
    for name, stage in BY_NAME.items():
        assert asked_by(stage.tasks.approve) is stage
        assert stage.name == name
    assert asked_by("check_recovery") is None


@pytest.mark.parametrize(("age", "is_young"), [("12h", True), ("7d", False)])
def test_orphans_below_seven_days_are_young(age: str, *, is_young: bool) -> None:
    assert (Orphans().too_young(build(OrphansRequest, {"older_than": age})) is not None) is is_young


def test_versions_below_an_hour_are_young() -> None:
    assert Cleanup().too_young(build(CleanupRequest, {"keep": 1, "older_than": "1m"})) is not None


def test_what_was_removed_is_counted_in_words() -> None:
    one = CleanupReport.of("/g", RetentionPolicy(keep_versions=1), (replace(STATS, old_versions_removed=1),), (FORK,))
    assert Cleanup().removed(one) == ["1 version of node:A", "1 orphaned fork"]
    assert Cleanup().removed(CleanupReport.of("/g", RetentionPolicy(keep_versions=1), (STATS,))) == [
        "2 versions of node:A"
    ]
    assert Orphans().removed(REMOVED) == ["1 file"]

"""Outcomes of stages: from reports, noted beside them, and added up over attempts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.models.cleanup import (
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    OrphanedFork,
    PlannedFile,
    RetentionPolicy,
)
from omnigraph_ops.models.history import Work
from omnigraph_ops.models.orphans import OrphansReport, QuarantineReport, SparedFile
from omnigraph_ops.models.outcomes import Outcome, TableOutcome
from omnigraph_ops.models.repair import Classification, RepairAction, RepairReport, RepairRow
from omnigraph_ops.models.rows import RowRetentionReport, TableRowStats
from omnigraph_ops.models.runs import TaskAttempt, Unit
from omnigraph_ops.outcomes import run_journal
from omnigraph_ops.outcomes.audit_log import AuditEvent, audit_end, wants_audit
from omnigraph_ops.outcomes.history import record_of
from omnigraph_ops.outcomes.results import UnitRecord, merged, outcomes_of, with_units
from omnigraph_ops.outcomes.task_journals import TaskLeft, read_tasks
from omnigraph_ops.stages import registry  # noqa: F401 - it has the types of reports
from omnigraph_ops.storage.store import Storage
from tests.support.history import header, noted

ROW = RepairRow(
    table_key="node:B",
    manifest_version=5,
    lance_head_version=6,
    classification=Classification.SUSPICIOUS,
    action=RepairAction.PREVIEW,
)
STATS = CleanupStats(table_key="node:A", bytes_removed=100, old_versions_removed=2)
REPORT = CleanupReport(uri="/g", keep_versions=1, older_than_secs=None, tables=(STATS,))
PLAN = CleanupPlan(
    uri="/g",
    stamp=6,
    policy=RetentionPolicy(keep_versions=1),
    planned_at_us=0,
    expires_at_us=1,
    tables=(),
    orphaned_forks=(),
    digest="sha256:c",
)
FORK = OrphanedFork(
    table_key="node:A", table_path="nodes/a", branch="b", files=(PlannedFile(path="p", size=7, kind="fork"),)
)
ORPHANS = OrphansReport(
    uri="/g",
    digest="sha256:o",
    quarantine_id=None,
    files_removed=1,
    bytes_removed=9,
    folders_removed=0,
    already_gone=0,
    spared=(),
    failed=(SparedFile(path="data/x", reason="denied"),),
)


def cleaned(*tables: CleanupStats, forks: tuple[OrphanedFork, ...] = ()) -> CleanupReport:
    return CleanupReport.of("/g", RetentionPolicy(), tables, forks)


def test_a_report_and_its_outcome_are_told_once_in_whichever_order() -> None:
    outcome = REPORT.outcome()
    for results in (noted(REPORT, outcome), noted(outcome, REPORT)):
        (cleanup,) = outcomes_of(results)
        assert (cleanup.stage, cleanup.tables[0].work) == ("cleanup", Work(versions_removed=2, bytes_reclaimed=100))


def test_an_outcome_alone_tells_what_its_report_does() -> None:
    by_report = record_of(header(), noted(REPORT))
    by_outcome = record_of(header(), noted(REPORT.outcome()))
    same = {"record_id": "", "ended_at_us": 0, "header": header(started_at_us=0)}
    assert replace(by_report, **same) == replace(by_outcome, **same)
    assert audit_end(noted(REPORT.outcome(PLAN)), error=None, interrupted=False)[1] == (
        "2 versions and 0 forks removed, 0 failed; keep 1 versions"
    )


def test_a_cleanup_tells_what_became_of_everything_that_was_approved() -> None:
    stats = replace(STATS, old_versions_removed=5, already_gone=43)
    assert cleaned(replace(STATS, old_versions_removed=1)).outcome().detail == "1 version and 0 forks removed, 0 failed"
    kept = replace(stats, table_key="node:B", old_versions_removed=0, already_gone=0, skipped_since_protected=(3,))
    done = "5 versions and 0 forks removed, 0 failed; 43 of the 48 approved versions were already gone"
    assert cleaned(stats).outcome().detail == done
    assert cleaned(stats, kept).outcome().detail == (
        "5 versions and 0 forks removed, 0 failed; 43 of the 49 approved versions were already gone; "
        "1 of the 49 approved versions stay, because they are protected since"
    )
    assert "; 43 approved versions were already gone" in cleaned(stats, replace(kept, error="denied")).outcome().detail
    frozen = CleanupStats(table_key="node:C", kept="it is frozen by ann")
    assert (
        cleaned(stats, frozen).outcome().detail
        == f"{done}; 1 table kept, frozen after the plan was made; carry the plan out again after the freeze"
    )


def test_what_the_first_attempt_removed_was_not_gone_already() -> None:
    first, second = replace(STATS, already_gone=1), replace(STATS, old_versions_removed=0, already_gone=3)
    (row,) = merged([noted(cleaned(first)), noted(cleaned(second))]).reports["cleanup"].tables
    assert (row.old_versions_removed, row.already_gone) == (2, 1)


def test_an_attempt_that_failed_before_it_looked_takes_nothing_back() -> None:
    first = replace(STATS, already_gone=1, skipped_since_protected=(9,))
    second = replace(STATS, old_versions_removed=0, versions=(), already_gone=0, error="the lease is held")
    (row,) = merged([noted(cleaned(first)), noted(cleaned(second))]).reports["cleanup"].tables
    assert (row.already_gone, row.skipped_since_protected, row.error) == (1, (9,), "the lease is held")


def test_units_of_a_stage_that_left_its_outcome_are_not_counted_again() -> None:
    done = [UnitRecord.of(Unit(name="1", stage="cleanup"), cleaned(STATS))]
    done += [UnitRecord.of(Unit(name="2", stage="cleanup"), cleaned(forks=(FORK,)))]
    outcome = cleaned(STATS, forks=(FORK,)).outcome()
    assert record_of(header(), with_units(noted(outcome), done)).work.bytes_reclaimed == 107
    assert record_of(header(), with_units(noted(), done)).work.bytes_reclaimed == 107


def test_an_attempt_that_left_rows_and_one_that_left_its_outcome_add_up() -> None:
    second = cleaned(replace(STATS, old_versions_removed=3, bytes_removed=1), replace(STATS, table_key="node:B"))
    run = record_of(header(), merged([noted(cleaned(STATS)), noted(second.outcome())]))
    assert (run.work.versions_removed, run.work.bytes_reclaimed) == (2 + 3 + 2, 100 + 1 + 100)
    assert [table.work.versions_removed for table in run.tables] == [5, 2]


def test_an_attempt_that_moved_nothing_does_not_make_the_moved_files_deleted_ones() -> None:
    moved = replace(ORPHANS, quarantine_id="Q", failed=())
    nothing = replace(moved, quarantine_id=None, files_removed=0, bytes_removed=0)
    outcome = merged([noted(moved), noted(nothing)]).reports["orphans"].outcome()
    assert (outcome.detail, outcome.work.bytes_reclaimed) == (
        "1 files and 9 bytes moved to quarantine Q, 0 spared, 0 failed",
        0,
    )


def test_a_table_and_its_forks_are_one_row_with_the_first_that_failed() -> None:
    failed = replace(FORK, branch="c", error="denied")
    (row,) = cleaned(replace(STATS, error="busy"), forks=(FORK, failed)).outcome().tables
    assert (row.error, row.changed, row.work.bytes_reclaimed) == ("busy", True, 107)


def test_what_no_figure_tells_is_a_note() -> None:
    healed = RepairReport(
        uri="/g",
        confirm=True,
        force=False,
        manifest_version=9,
        tables=(replace(ROW, action=RepairAction.HEALED),),
    )
    rows = RowRetentionReport(
        uri="/g", branch=None, digest="", tables=(TableRowStats(table_key="node:A", rows_removed=4),)
    )
    assert record_of(header(), noted(healed)).notes == ("1 healed; graph manifest version 9",)
    assert record_of(header(), noted(rows)).notes == ("4 rows and 0 edges deleted (node:A 4)",)
    assert record_of(header(), noted(REPORT)).notes == ()
    refused = replace(healed, manifest_version=None, tables=(replace(ROW, action=RepairAction.REFUSED),))
    assert record_of(header(), noted(refused)).notes == ()


@pytest.mark.parametrize(
    "report",
    [
        ORPHANS,
        QuarantineReport(
            uri="/g", quarantine_id="q", digest="", action="restored", files=1, bytes=1, failed=ORPHANS.failed
        ),
    ],
)
def test_files_that_were_left_make_an_end_that_failed(report: OrphansReport | QuarantineReport) -> None:
    results = noted(report)
    assert audit_end(results, error=None, interrupted=False)[0] is AuditEvent.FAILED
    assert audit_end(results, error=None, interrupted=True)[0] is AuditEvent.INTERRUPTED
    assert wants_audit(results)
    assert record_of(header(), results).errors == ("data/x: denied",)


def test_a_quarantine_that_was_only_looked_at_is_no_outcome() -> None:
    looked = QuarantineReport(uri="/g", quarantine_id="q", digest="", action="preview", files=1, bytes=1)
    assert (outcomes_of(noted(looked)), wants_audit(noted(looked))) == ((), False)


def test_work_of_parts_tells_only_what_some_part_can_tell() -> None:
    loaded = Work(bytes_rewritten=30, bytes_ingested=10, write_amplification=3.0, preempted=1)
    assert Work.of((loaded, Work(bytes_rewritten=100))) == Work(
        bytes_rewritten=130, bytes_ingested=10, write_amplification=3.0, preempted=1
    )
    assert Work.of(()) == Work()


def test_the_problem_is_a_failure_only_where_nothing_else_tells_of_one() -> None:
    toy = Outcome(stage="toy", detail="", applied=False, problem="no glue; buy some")
    assert toy.failures == ("no glue; buy some",)
    assert replace(toy, tables=(TableOutcome(table_key="node:A", error="broken"),)).failures == ()
    assert replace(toy, errors=("a: broken",)).failures == ("a: broken",)
    assert replace(toy, applied=True).failures == ()


def test_what_a_task_of_release_0_2_0_left_is_read(tmp_path: Path) -> None:
    nothing = {"decisions": [], "failures": [], "frozen": False, "attention": [], "interruption": None}
    rows = {"cleanup": [serde.to_json(STATS)], "forks": [serde.to_json(FORK), serde.to_json(replace(FORK, error="x"))]}
    expired = RowRetentionReport(uri="/g", branch=None, digest="", tables=(TableRowStats(table_key="node:A"),))
    others = {"row_retention": serde.to_json(expired), "orphans": serde.to_json(ORPHANS), "optimize": None}
    left = TaskLeft(header=header("dag/run"), task=TaskAttempt(task_id="t"), results=noted())
    text = serde.to_json(left) | {"results": nothing | rows | others}
    path = f"{run_journal.tasks_of('dag/run')}/{new_ulid()}/left.json"
    Storage(str(tmp_path)).write(path, json.dumps(text).encode())
    (found,) = read_tasks(Storage(str(tmp_path)), "dag/run").left
    reports = dict(found.results.reports)
    cleanup = reports.pop("cleanup")
    assert (cleanup.tables, cleanup.forks) == ((STATS,), (FORK, replace(FORK, error="x")))
    assert reports == {"expire-rows": expired, "orphans": ORPHANS}


def test_the_graph_tells_of_units_of_release_0_2_0(tmp_path: Path) -> None:
    text = {"unit": serde.to_json(Unit(name="1", stage="cleanup")), "result": {"cleaned": serde.to_json(STATS)}}
    assert not serde.from_json(UnitRecord, text).ended

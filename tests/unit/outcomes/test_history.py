"""From what a run left to its record, to rows and back: every outcome, and skipped is never a success."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.freezes import frozen_text
from omnigraph_ops.coordination.holds import FreezeTerms, Hold, HoldKind
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.lance.history_table import SCHEMA, points_of, records_of, rows_of
from omnigraph_ops.models.cleanup import (
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    OrphanedFork,
    PlannedFile,
    RetentionPolicy,
    TableCleanupPlan,
)
from omnigraph_ops.models.health import CheckStatus, RecoverReport, RecoveryOutcome
from omnigraph_ops.models.history import Answer, Measured, RunDecision, RunOutcome, RunRecord, TableRecord, UnitWindow
from omnigraph_ops.models.optimize import Executor, OptimizePlan, OptimizeReport, SkipReason, TablePlan, TableStats
from omnigraph_ops.models.optimize import OptimizeDecision as PlanDecision
from omnigraph_ops.models.orphans import OrphansReport, SparedFile
from omnigraph_ops.models.repair import Classification, RepairAction, RepairPreview, RepairReport, RepairRow
from omnigraph_ops.outcomes.history import record_of
from omnigraph_ops.outcomes.results import Interruption, Snapshot, StageFailure, redacted, redacted_record, redactor
from tests.support.history import header, noted, record, table

DONE, FAILED, NOTHING = RunOutcome.SUCCEEDED, RunOutcome.FAILED, RunOutcome.NOTHING_TO_DO
INTERRUPTED = RunOutcome.INTERRUPTED
ROW = RepairRow(
    table_key="node:B",
    manifest_version=5,
    lance_head_version=6,
    classification=Classification.SUSPICIOUS,
    action=RepairAction.PREVIEW,
)
PREVIEW = RepairPreview(uri="/g", stamp=6, planned_at_us=0, expires_at_us=1, rows=(ROW,), digest="sha256:r")


def cleanup_plan(*tables: TableCleanupPlan, forks: tuple[OrphanedFork, ...] = ()) -> CleanupPlan:
    return CleanupPlan(
        uri="/g",
        stamp=6,
        policy=RetentionPolicy(keep_versions=1),
        planned_at_us=0,
        expires_at_us=1,
        tables=tables,
        orphaned_forks=forks,
        digest="sha256:c",
    )


def optimized(*tables: TableStats) -> OptimizeReport:
    return OptimizeReport.of("/g", tables)


def made(*values: object, **fields: Any) -> RunRecord:
    return record_of(header(), noted(*values, **fields))


def cleaned(*tables: CleanupStats, forks: tuple[OrphanedFork, ...] = ()) -> CleanupReport:
    return CleanupReport.of("/g", RetentionPolicy(), tables, forks)


def only(run: RunRecord) -> TableRecord:
    (one,) = run.tables
    return one


def test_a_record_becomes_rows_and_is_itself_again() -> None:
    whole = record(
        outcome=FAILED, errors=("boo",), notes=("c",), tables=(table("node:A"), table("node:B", error="x", windows=()))
    )
    assert records_of(rows_of(whole)) == (whole,)
    assert rows_of(whole).schema == SCHEMA
    assert [p.table for p in points_of(rows_of(whole).slice(2))] == [whole.tables[1]]


def test_of_a_run_that_was_written_twice_the_newer_record_counts() -> None:
    import pyarrow as pa

    first = record("r", record_id="01A", outcome=FAILED)
    second = replace(first, record_id="01B", outcome=DONE, tables=())
    assert records_of(pa.concat_tables([rows_of(second), rows_of(first)])) == (second,)


def test_columns_that_a_later_release_adds_or_an_older_one_lacks_do_not_matter() -> None:
    import pyarrow as pa

    rows = rows_of(record())
    older = rows.drop_columns(["score_after", "attention", "notes", "preempted", "logical_date"])
    (read,) = records_of(older.append_column("new", pa.array([1] * rows.num_rows)))
    assert (read.after.score, read.attention, read.notes, read.work.preempted) == (None, (), (), None)


@pytest.mark.parametrize(
    ("stats", "outcome", "reason"),
    [
        (TableStats(table_key="node:A", committed=True), DONE, ""),
        (TableStats(table_key="node:A"), NOTHING, "no work"),
        (TableStats(table_key="node:A", skipped=SkipReason.DRIFT), NOTHING, "drift_needs_repair"),
        (TableStats(table_key="node:A", skipped=SkipReason.DEFERRED_BUDGET), NOTHING, "deferred_budget"),
        (TableStats(table_key="node:A", error="boo"), FAILED, ""),
        (TableStats(table_key="node:A", error="boo", committed=True), FAILED, ""),
    ],
)
def test_a_table_of_an_optimize(stats: TableStats, outcome: RunOutcome, reason: str) -> None:
    run = made(optimized(stats))
    assert (run.outcome, only(run).outcome, only(run).reason) == (outcome, outcome, reason)
    assert (run.errors == ("node:A: boo",)) is (outcome is FAILED)


def test_an_interrupted_run_has_an_outcome_of_its_own_and_keeps_what_was_done() -> None:
    stats = (TableStats(table_key="node:A", committed=True, bytes_rewritten=7), TableStats(table_key="node:B"))
    ended = Interruption(reason="ended by SIGTERM", tables=frozenset({"node:B", "node:C"}))
    run = made(optimized(*stats), interruption=ended)
    assert (run.outcome, run.errors, run.work.bytes_rewritten) == (INTERRUPTED, ("ended by SIGTERM",), 7)
    assert [(t.outcome, t.reason) for t in run.tables] == [
        (DONE, ""),
        (INTERRUPTED, "interrupted"),
        (INTERRUPTED, "interrupted"),
    ]
    assert (run.counts.succeeded, run.counts.interrupted, run.counts.failed) == (1, 2, 0)
    rows = rows_of(run)
    assert records_of(rows) == (run,)
    (older,) = records_of(rows.drop_columns(["tables_interrupted"]))
    assert older.counts.interrupted == 0


def test_a_table_that_an_interrupted_run_did_not_come_to_is_no_table_without_work() -> None:
    decisions = {"node:A": PlanDecision.OPTIMIZE, "node:B": PlanDecision.OPTIMIZE, "node:C": PlanDecision.NO_OP}
    tables = tuple(
        TablePlan(table_key=key, decision=decision, read_version=4, lance_head_version=4)
        for key, decision in decisions.items()
    )
    report = optimized(TableStats(table_key="node:A", committed=True))
    plan = OptimizePlan(uri="/g", stamp=6, graph_version=7, tables=tables)
    run = made(report, plan, interruption=Interruption(reason="the run ended without its report", tables=frozenset()))
    assert [table.outcome for table in run.tables] == [DONE, INTERRUPTED, NOTHING]
    assert (run.counts.interrupted, run.counts.nothing_to_do) == (1, 1)


def test_a_run_that_did_nothing_says_so() -> None:
    run = made()
    assert (run.outcome, run.tables, run.errors) == (NOTHING, (), ())


PLANNED = TablePlan(
    table_key="node:A",
    decision=PlanDecision.OPTIMIZE,
    read_version=4,
    lance_head_version=4,
    rows=90,
    fragments=9,
    data_bytes=900,
)


def test_the_optimize_of_a_night_has_its_plan_as_the_time_before() -> None:
    stats = TableStats(
        table_key="node:A",
        committed=True,
        fragments_removed=9,
        fragments_added=1,
        bytes_rewritten=900,
        bytes_ingested=300,
        write_amplification=3.0,
        executor=Executor.SPARK,
        windows=(UnitWindow(unit="fold", seconds=0.5), UnitWindow(unit="rewrite", seconds=0.25)),
        published_version=6,
    )
    after = Snapshot(graph=Measured(version=8, fragments=1), tables=(("node:A", Measured(version=6, fragments=1)),))
    run = made(
        OptimizePlan(uri="/g", stamp=6, graph_version=7, tables=(PLANNED,)),
        optimized(stats),
        after=after,
    )
    one = only(run)
    assert one.before == Measured(version=4, rows=90, fragments=9, data_bytes=900)
    assert (one.after.version, one.after.fragments, one.executor, one.armed_seconds) == (6, 1, "spark", 0.75)
    assert (run.before.version, run.before.fragments, run.after.version) == (7, 9, 8)
    assert (run.work.bytes_rewritten, run.work.bytes_ingested, run.work.write_amplification) == (900, 300, 3.0)
    assert run.counts.succeeded == 1


def test_without_a_plan_the_fragments_before_follow_from_what_was_removed() -> None:
    stats = TableStats(table_key="node:A", committed=True, fragments_removed=5, fragments_added=2, rows=40)
    internal = TableStats(table_key="__manifest", committed=True, fragments_removed=50, fragments_added=1)
    before = Snapshot(graph=Measured(version=1), tables=(("node:A", Measured(version=3)),))
    after = Snapshot(graph=Measured(version=2, fragments=6), tables=(("node:A", Measured(fragments=4)),))
    run = made(optimized(stats, internal), before=before, after=after)
    assert run.tables[1].before == Measured(version=3, rows=40, fragments=7)
    assert (run.before.version, run.before.fragments) == (1, 9)


@pytest.mark.parametrize(
    ("left", "published", "before"),
    [
        (PlanDecision.NO_OP, 4, Measured(version=7, rows=90, fragments=9, data_bytes=900)),
        (PlanDecision.SKIPPED, 4, Measured(version=7, fragments=25)),
        (PlanDecision.SKIPPED, 5, Measured(version=7)),
        (PlanDecision.FAILED, 4, Measured(version=7)),
    ],
    ids=["empty", "frozen", "drifted and repaired", "not looked at"],
)
def test_the_time_before_of_a_graph_is_told_as_far_as_every_table_is_known(
    left: PlanDecision, published: int, before: Measured
) -> None:
    other = TablePlan(
        table_key="node:B",
        decision=left,
        read_version=4,
        lance_head_version=5,
        error="the store did not answer" if left is PlanDecision.FAILED else None,
    )
    run = made(
        OptimizePlan(uri="/g", stamp=6, graph_version=7, tables=(PLANNED, other)),
        optimized(TableStats(table_key="node:A", committed=True, fragments_removed=9, fragments_added=1)),
        after=Snapshot(
            graph=Measured(version=8, fragments=17),
            tables=(
                ("node:A", Measured(version=6, fragments=1)),
                ("node:B", Measured(version=published, fragments=16)),
            ),
        ),
    )
    assert run.before == before


def test_a_run_that_a_freeze_kept_from_tables_had_something_to_do() -> None:
    row = TableCleanupPlan(
        table_key="node:A", table_path="nodes/a", pinned_version=9, lance_head_version=9, versions=(), refused="/g"
    )
    freeze = Hold(
        hold_id="01",
        kind=HoldKind.FREEZE,
        owner="ann",
        reason="the yearly backup",
        created_at=0.0,
        expires_at=1.0,
        versions=(),
        freeze=FreezeTerms(tables=("node:A",)),
    )
    kept = made(cleanup_plan(replace(row, refused=frozen_text("/g", freeze))))
    other = made(cleanup_plan(replace(row, refused="it is damaged")))
    assert (kept.outcome, other.outcome) == (RunOutcome.FROZEN, NOTHING)
    done = TableStats(table_key="node:B", committed=True)
    left = TableStats(table_key="node:A", skipped=SkipReason.FROZEN)
    assert made(optimized(left)).outcome is RunOutcome.FROZEN
    assert made(optimized(left, done)).outcome is RunOutcome.SUCCEEDED


def test_a_rejected_cleanup_is_no_success_and_names_the_decision() -> None:
    decision = RunDecision(stage="cleanup", answer=Answer.REJECTED, by="ada", digest="sha256:c")
    planned = TableCleanupPlan(
        table_key="node:A", table_path="nodes/a", pinned_version=9, lance_head_version=9, versions=(1, 2)
    )
    other = replace(planned, table_key="node:B", versions=(), refused="it is damaged")
    run = made(cleanup_plan(planned, other), decisions=(decision,))
    first, second = run.tables
    assert (run.outcome, first.outcome, first.reason) == (RunOutcome.UNAPPROVED, NOTHING, "cleanup rejected")
    assert (first.decisions, second.decisions) == ((decision,), ())
    assert (second.reason, first.before.version) == ("it is damaged", 9)


def test_a_cleanup_that_nobody_was_asked_about_is_not_without_work() -> None:
    planned = TableCleanupPlan(
        table_key="node:A", table_path="nodes/a", pinned_version=9, lance_head_version=9, versions=(1, 2)
    )
    fork = OrphanedFork(table_key="node:A", table_path="nodes/a", branch="b")
    plan = cleanup_plan(planned, replace(planned, table_key="node:B", versions=()), forks=(fork,))
    run = made(plan, previewed=True)
    found = "cleanup not confirmed: 2 versions, 0 B, orphaned fork b"
    assert [(t.outcome, t.reason) for t in run.tables] == [(RunOutcome.PREVIEWED, found), (NOTHING, "no work")]
    assert (run.outcome, run.counts.nothing_to_do) == (RunOutcome.PREVIEWED, 2)
    assert [t.outcome for t in made(plan).tables] == [NOTHING, NOTHING]


def test_what_cleanup_freed_counts_forks_too() -> None:
    fork = OrphanedFork(
        table_key="node:A", table_path="nodes/a", branch="b", files=(PlannedFile(path="p", size=7, kind="fork"),)
    )
    stats = CleanupStats(table_key="node:A", bytes_removed=100, old_versions_removed=2)
    run = made(cleanup_plan(forks=(fork,)), cleaned(stats, forks=(fork,)))
    assert (run.outcome, run.work.bytes_reclaimed, run.work.versions_removed) == (DONE, 107, 2)
    stuck = made(cleaned(forks=(replace(fork, error="busy"),)))
    assert (stuck.outcome, stuck.errors, stuck.work.bytes_reclaimed) == (FAILED, ("node:A: fork b: busy",), 0)


@pytest.mark.parametrize(
    ("action", "outcome"),
    [(RepairAction.HEALED, DONE), (RepairAction.FORCED, DONE), (RepairAction.REFUSED, RunOutcome.UNAPPROVED)],
)
def test_a_repair(action: RepairAction, outcome: RunOutcome) -> None:
    done = replace(ROW, action=action)
    report = RepairReport(uri="/g", confirm=True, force=False, manifest_version=None, tables=(done,))
    decision = RunDecision(stage="repair", answer=Answer.APPROVED, by="ada", digest="sha256:r")
    run = made(PREVIEW, report, decisions=(decision,))
    assert (run.outcome, only(run).decisions) == (outcome, (decision,))
    assert only(run).before.version == 5


def test_orphans_count_for_the_run_and_only_what_was_deleted_is_reclaimed() -> None:
    report = OrphansReport(
        uri="/g",
        digest="sha256:o",
        quarantine_id=None,
        files_removed=3,
        bytes_removed=30,
        folders_removed=0,
        already_gone=0,
        spared=(),
        failed=(),
    )
    assert made(report).work.bytes_reclaimed == 30
    assert made(replace(report, quarantine_id="q")).work.bytes_reclaimed == 0
    failed = made(replace(report, failed=(SparedFile(path="data/x", reason="denied"),)))
    assert (failed.outcome, failed.errors) == (FAILED, ("data/x: denied",))


def test_a_recover_that_had_to_wait_did_nothing() -> None:
    outcome = RecoveryOutcome(operation_id="1", table_key="node:A", action="deferred", detail="too young")
    report = RecoverReport(uri="/g", outcomes=(outcome,), status=CheckStatus.PENDING)
    assert only(made(report)).reason == "too young"
    finished = replace(report, outcomes=(replace(outcome, action="rolled_forward"),))
    run = made(reports={"recover": finished})
    assert (run.outcome, only(run).stages) == (DONE, ("recover",))


def test_a_failure_is_told_once() -> None:
    failures = (StageFailure(message="boo", table_key="node:A"), StageFailure(message="plan_cleanup: failed"))
    run = made(optimized(TableStats(table_key="node:A", error="boo")), failures=failures)
    assert run.errors == ("node:A: boo", "plan_cleanup: failed")


def test_secrets_do_not_reach_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-in-the-environment")
    text = (
        "s3://key:word@bucket/g?X-Amz-Signature=abc&x=1 token: t0ken canary-in-the-environment canary-of-a-connection "
        "password=\"p4ss\" secret: 's3cret'"
    )
    clean = redacted(text, ("canary-of-a-connection",))
    assert not any(secret in clean for secret in ("word@", "abc", "t0ken", "canary", "p4ss", "s3cret"))
    assert "x=1" in clean
    run = record(errors=(text,), attention=(text,), notes=(text,), tables=(table(error=text), table(reason=text)))
    assert "canary-in" not in str(redacted_record(run, redactor()))


def test_the_retention_is_a_setting() -> None:
    assert Settings().history_days == 400
    assert Settings.from_env({"OMNIGRAPH_OPS_HISTORY_DAYS": "30"}).history_days == 30
    with pytest.raises(InvalidInput, match="history_days must be at least 1"):
        Settings(history_days=0)

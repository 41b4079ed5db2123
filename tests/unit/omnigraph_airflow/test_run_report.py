"""The report of a run: skipped is never success, and whatever failed is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from omnigraph_airflow.decisions import Decision
from omnigraph_airflow.run_report import Failure, RunFacts, build

from omnigraph_ops.models.backup import BackupReport, Tally
from omnigraph_ops.models.cleanup import CleanupReport, CleanupStats
from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.optimize import (
    OptimizeDecision,
    OptimizePlan,
    OptimizeReport,
    SkipReason,
    TablePlan,
    TableStats,
)
from omnigraph_ops.models.repair import Classification, RepairAction, RepairPreview, RepairReport, RepairRow
from omnigraph_ops.models.rows import RowRetentionPlan
from tests.support.history import noted

DRIFTED = RepairRow(
    table_key="node:B",
    manifest_version=5,
    lance_head_version=6,
    classification=Classification.VERIFIED_MAINTENANCE,
    action=RepairAction.PREVIEW,
)
PREVIEW = RepairPreview(uri="/g", stamp=6, planned_at_us=0, expires_at_us=1, rows=(DRIFTED,), digest="sha256:1")
COMMITTED = OptimizeReport(uri="/g", tables=(TableStats(table_key="node:A", committed=True),))


def test_an_idle_night_did_nothing_and_says_so() -> None:
    report = build(RunFacts(graph="/g", states={"summarize": "success"}))
    assert report.outcome == "nothing_to_do"
    assert "nothing to do" in report.markdown


@pytest.mark.parametrize(
    ("states", "named"),
    [
        (
            {"wait_for_quiet_graph": "skipped", "plan_optimize": "skipped", "plan_cleanup": "skipped"},
            "optimize, cleanup",
        ),
        ({"summarize": "skipped", "preview_repair": "skipped", "plan_cleanup": "skipped"}, "repair, cleanup"),
    ],
)
def test_a_night_whose_stages_were_skipped_by_hand_failed(states: dict[str, str], named: str) -> None:
    report = build(RunFacts(graph="/g", states=states))
    assert report.outcome == "failed"
    assert f"{named}: not planned, because a task before was skipped or cleared by hand" in report.markdown


def test_a_stage_that_says_why_it_was_skipped_has_not_failed() -> None:
    facts = RunFacts(graph="/g", states={"preview_repair": "skipped"}, skipped={"repair": "is frozen by ana"})
    assert build(facts).outcome == "frozen"


def test_a_night_with_work_is_done() -> None:
    assert build(RunFacts(graph="/g", done=noted(COMMITTED))).outcome == "succeeded"


def test_what_waits_and_what_it_cost_is_in_the_report() -> None:
    tables = (
        TableStats(table_key="node:A", committed=True, bytes_rewritten=2048, bytes_ingested=512, write_amplification=4),
        TableStats(table_key="node:B", skipped=SkipReason.DEFERRED_BUDGET),
        TableStats(table_key="node:C", skipped=SkipReason.BELOW_THRESHOLDS),
        TableStats(table_key="node:D"),
    )
    report = build(RunFacts(graph="/g", done=noted(OptimizeReport.of("/g", tables))))
    assert report.attention == ("node:B: no room in the budget of this run; it stays planned",)
    assert "| node:A | published version None | -0 +0 | in_process |  | 2.0 KiB | 4 |" in report.markdown
    assert "| node:B | skipped: deferred_budget |" in report.markdown
    assert "node:C" not in report.markdown
    assert "1 of 4 tables had nothing to do." in report.markdown
    assert "1 were left alone: below the thresholds" in report.markdown
    assert "write amplification 4" in report.markdown


def test_a_failed_table_is_named_once_with_its_sentence() -> None:
    failure = Failure(task_id="optimize_table", table_key="node:A", message="a data file is missing", map_index=0)
    report = build(
        RunFacts(
            graph="/g",
            done=noted(COMMITTED),
            failures=(failure,),
            states={"optimize_table_0": "failed", "optimize_table_1": "success"},
        )
    )
    assert report.outcome == "failed"
    assert report.failed == ("optimize_table node:A: a data file is missing",)


def test_a_lot_that_died_silently_is_named_beside_one_that_left_its_sentence() -> None:
    failure = Failure(task_id="cleanup_table", table_key="node:A", message="no space", map_index=0)
    states = {"cleanup_table_0": "failed", "cleanup_table_1": "failed", "cleanup_table_2": "success"}
    report = build(RunFacts(graph="/g", failures=(failure,), states=states))
    assert report.failed == ("cleanup_table node:A: no space", "cleanup_table_1: failed, see its log")


def test_a_cause_is_told_once_however_many_tables_and_tasks_have_it() -> None:
    keys = [f"node:T{number:02}" for number in range(30)]
    failures = tuple(
        Failure(task_id="cleanup_table", table_key=key, message="no space", map_index=number)
        for number, key in enumerate(keys)
    )
    other = Failure(task_id="cleanup_table", table_key="node:A", message="no rights", map_index=30)
    rows = tuple(TableStats(table_key=key, error="the task left no result") for key in ("node:B", "node:C"))
    states = {f"submit_rewrite_{number}": "failed" for number in range(2)}
    done = noted(OptimizeReport(uri="/g", tables=rows))
    assert build(RunFacts(graph="/g", failures=(*failures, other), states=states, done=done)).failed == (
        "cleanup_table node:T00, node:T01, node:T02, node:T03, node:T04, and 25 more: no space",
        "cleanup_table node:A: no rights",
        "optimize node:B, node:C: the task left no result",
        "submit_rewrite_0, submit_rewrite_1: failed, see its log",
    )


def test_a_freeze_is_told_once_however_many_tables_it_covers() -> None:
    keys = ("node:A", "node:B")
    plan = OptimizePlan(
        uri="/g",
        stamp=6,
        graph_version=1,
        tables=tuple(
            TablePlan(
                table_key=key,
                decision=OptimizeDecision.SKIPPED,
                skipped=SkipReason.FROZEN,
                read_version=1,
                lance_head_version=1,
                reason="/g is frozen by ann",
            )
            for key in keys
        ),
    )
    done = OptimizeReport(uri="/g", tables=tuple(TableStats(table_key=k, skipped=SkipReason.FROZEN) for k in keys))
    report = build(RunFacts(graph="/g", done=noted(plan, done)))
    assert report.outcome == "frozen"
    assert "had nothing to do" not in report.markdown
    assert report.attention == ("2 tables not optimized; when the run planned: /g is frozen by ann",)
    assert "| node:B | skipped: frozen |" in report.markdown


def test_a_freeze_that_began_after_the_plan_is_in_the_report() -> None:
    done = OptimizeReport(uri="/g", tables=(TableStats(table_key="node:A", skipped=SkipReason.FROZEN),))
    report = build(RunFacts(graph="/g", done=noted(done)))
    assert report.attention == ("1 table not optimized: a freeze began after the run had planned",)


def test_a_task_that_died_silently_fails_the_run() -> None:
    report = build(RunFacts(graph="/g", states={"plan_cleanup": "failed"}))
    assert report.failed == ("plan_cleanup: failed, see its log",)


def test_a_task_that_never_ran_because_of_another_fails_the_run() -> None:
    assert build(RunFacts(graph="/g", states={"plan_cleanup": "upstream_failed"})).outcome == "failed"


def test_a_table_that_cleanup_could_not_do_fails_the_run() -> None:
    stats = CleanupStats(table_key="node:A", error="permission denied")
    report = CleanupReport(uri="/g", keep_versions=1, older_than_secs=None, tables=(stats,))
    assert build(RunFacts(graph="/g", done=noted(report))).failed == ("node:A: permission denied",)


def test_rejected_drift_needs_attention() -> None:
    decision = Decision(
        chosen_options=("Reject",), digest="sha256:1", decided_by="ada", decided_at_us=1_767_323_045_000_000
    )
    still = DriftFinding(table_key="node:B", manifest_version=5, lance_head_version=6, covered=False, recoverable=False)
    report = build(RunFacts(graph="/g", plans={"repair": PREVIEW}, decisions={"repair": decision}, drift=(still,)))
    assert report.attention == ("node:B: drifted (version 5 → version 6, verified_maintenance)",)
    assert "Reject by ada at 2026-01-02 03:04:05 UTC, digest `sha256:1`." in report.markdown


@pytest.mark.parametrize(
    ("now", "attention"),
    [
        ((), ()),
        (
            (DriftFinding(table_key="node:B", manifest_version=5, lance_head_version=7, covered=False),),
            ("node:B: drifted (version 5 → version 7)",),
        ),
        (None, ("node:B: drifted when it was previewed (version 5 → version 6)",)),
    ],
)
def test_what_is_drifted_is_told_from_the_graph_and_not_from_the_preview(
    now: tuple[DriftFinding, ...] | None, attention: tuple[str, ...]
) -> None:
    """A repair that failed because its drift was gone leaves none."""
    failed = {"apply_repair": "failed"}
    assert build(RunFacts(graph="/g", plans={"repair": PREVIEW}, states=failed, drift=now)).attention == attention


def test_a_preview_that_nobody_was_asked_about_says_how_to_carry_it_out() -> None:
    said = build(RunFacts(graph="/g", plans={"repair": PREVIEW}, states={"approve_repair": "skipped"})).markdown
    assert "Nobody was asked. The digest of the plan is `sha256:1`: to carry it out, trigger `omnigraph_repair`" in said


def test_names_from_a_graph_are_only_text_in_the_report() -> None:
    evil = "node:<script>|`**x**"
    tables = OptimizeReport(uri="/g", tables=(TableStats(table_key=evil, error=f"{evil} is broken"),))
    report = build(RunFacts(graph=f"/{evil}", done=noted(tables), failures=()))
    assert "<script>" not in report.markdown.replace("\\<", "")
    (row,) = [line for line in report.markdown.splitlines() if line.startswith("| node")]
    assert row.replace("\\|", "").count("|") == 8
    assert report.failed == (f"optimize {evil}: {evil} is broken",)


def test_what_was_skipped_says_why_and_is_not_done() -> None:
    why = {"repair": "/g is frozen by ann", "cleanup": "/g is frozen by ann"}
    report = build(RunFacts(graph="/g", skipped=why, states={"preview_repair": "skipped"}))
    assert (report.outcome, report.failed) == ("frozen", ())
    assert report.attention == ("repair skipped: /g is frozen by ann", "cleanup skipped: /g is frozen by ann")
    assert "## Repair\nSkipped: /g is frozen by ann." in report.markdown
    assert "## Optimize\nNot reached." in report.markdown


def test_a_stage_whose_task_failed_was_reached() -> None:
    states = {"plan_optimize": "success", "optimize_table_0": "failed", "optimize_table_1": "failed"}
    report = build(RunFacts(graph="/g", states={**states, "preview_repair": "upstream_failed"}))
    assert "## Optimize\nNo result: `optimize_table` failed, see *Failed* above." in report.markdown
    assert "## Repair\nNot reached." in report.markdown
    report = build(RunFacts(graph="/g", stages=frozenset({"backup"}), states={"freeze": "failed"}))
    assert "## Backup\nNo result: `freeze` failed, see *Failed* above." in report.markdown


def test_a_plan_without_expired_rows_asked_nobody() -> None:
    plan = RowRetentionPlan(
        uri="/g",
        stamp=6,
        branch=None,
        planned_at_us=0,
        expires_at_us=1,
        max_share=0.5,
        tables=(),
        digest="sha256:1",
    )
    report = build(RunFacts(graph="/g", stages=frozenset({"expire-rows"}), plans={"expire-rows": plan}))
    assert report.markdown.endswith("## Expire-rows\nNo rows that are older than the policies and inside the bounds.")


def test_a_stage_that_was_carried_out_says_who_decided_what_came_of_it_and_which_tables_first() -> None:
    rows = tuple(
        RepairRow(
            table_key=f"node:T{number}",
            manifest_version=5,
            lance_head_version=6,
            classification=Classification.VERIFIED_MAINTENANCE if number == 99 else Classification.NO_DRIFT,
            action=RepairAction.HEALED if number == 99 else RepairAction.NO_OP,
        )
        for number in range(100)
    )
    done = RepairReport(uri="/g", confirm=True, force=False, manifest_version=7, tables=rows, digest="sha256:1")
    decision = Decision(chosen_options=("Approve",), digest="sha256:1", decided_by="ada")
    facts = RunFacts(graph="/g", plans={"repair": PREVIEW}, done=noted(done), decisions={"repair": decision}, drift=())
    report = build(facts)
    assert (report.outcome, report.attention) == ("succeeded", ())
    section = report.markdown.split("## Repair\n")[1].split("\n## ")[0]
    assert section.startswith("Approve by ada, digest `sha256:1`.\n\n1 ")
    assert "Tables, the first 50 of 100:" in section
    (first, *others) = [line for line in section.splitlines() if line.startswith("| node:")]
    assert first.startswith("| node:T99 | healed | verified_maintenance | 5 → 6 |")
    assert len(others) == 49


def test_a_backup_names_the_earlier_one_only_where_there_is_one() -> None:
    alone = BackupReport(
        uri="/g",
        backup="/b/2",
        backup_id="2",
        freeze_id="f",
        resumed=False,
        seconds=1.0,
        total=Tally(files=2, bytes=90),
        copied=Tally(files=2, bytes=90),
        linked=Tally(),
        kept=Tally(),
        incremental_from=None,
    )
    after = replace(alone, linked=Tally(files=1, bytes=40), incremental_from="/b/1")
    for made, said in ((alone, "no earlier backup was used"), (after, "40 B taken from /b/1")):
        report = build(RunFacts(graph="/g", stages=frozenset({"backup"}), done=noted(made)))
        assert report.markdown.endswith(f"\n90 B copied, {said}.")


def test_a_plan_that_nobody_carried_out_is_in_the_report() -> None:
    report = build(RunFacts(graph="/g", plans={"repair": PREVIEW}))
    assert "Nothing was done. The plan:\n\n- Drifted: " in report.markdown

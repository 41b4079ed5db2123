"""What a person reads of a plan to optimize, and of what came of it."""

from __future__ import annotations

from dataclasses import replace

from omnigraph_ops.models.optimize import (
    Executor,
    OptimizeDecision,
    OptimizePlan,
    OptimizeReport,
    PendingIndex,
    SkipReason,
    TablePlan,
    TableStats,
)
from omnigraph_ops.stages.optimize.stage import OptimizeStage, PlanOptimize, plan_view, report_view, written
from omnigraph_ops.views.view import plain_text

PENDING = PendingIndex(column="embedding", reason="column has no non-null vectors to train on yet")


def test_optimize_prints_the_engines_lines() -> None:
    report = OptimizeReport(
        uri="/g",
        tables=(
            TableStats(table_key="edge:Knows", fragments_removed=6, fragments_added=1, committed=True),
            TableStats(table_key="node:Doc", pending_indexes=(PENDING,)),
            TableStats(table_key="node:Person", skipped=SkipReason.DRIFT),
            TableStats(table_key="node:Photo", skipped=SkipReason.BLOBS),
            TableStats(table_key="node:Bad", error="it broke"),
            TableStats(table_key="__manifest", skipped=SkipReason.NOT_EXCLUSIVE),
        ),
    )
    assert plain_text(report_view(report)).splitlines() == [
        "optimize /g — 6 tables",
        "",
        "Tables",
        f"  Table        Done{' ' * 73}Indexes",
        "  edge:Knows   frags 6 → 1 ✓",
        f"  node:Doc     no-op{' ' * 72}index pending on 'embedding': {PENDING.reason}",
        "  node:Person  skipped (manifest/head drift — see omnigraph-ops check)",
        "  node:Photo   skipped (blob columns — Lance compaction unsupported)",
        "  node:Bad     failed: it broke",
        "  __manifest   skipped (others may publish — needs OMNIGRAPH_OPS_EXCLUSIVE or --exclusive)",
    ]


def test_the_optimize_plan_says_why() -> None:
    tables = (
        TablePlan(
            table_key="node:A",
            decision=OptimizeDecision.OPTIMIZE,
            read_version=1,
            lance_head_version=1,
            executor=Executor.SPARK,
            fragments=6,
            fragments_after=1,
            rewrite_bytes=1536,
            reason="rewrite 6 fragments",
            pending_indexes=(PENDING,),
        ),
        TablePlan(table_key="node:B", decision=OptimizeDecision.NO_OP, read_version=1, lance_head_version=1),
        TablePlan(
            table_key="node:C",
            decision=OptimizeDecision.SKIPPED,
            read_version=1,
            lance_head_version=2,
            reason="drifted",
        ),
    )
    plan = OptimizePlan(uri="/g", stamp=6, graph_version=3, tables=tables)
    view = plan_view(plan)
    assert view.title == "plan /g — 3 tables, 1 to optimize"
    pending = "index pending on 'embedding': column has no non-null vectors to train on yet"
    assert view.sections[0].rows == (
        ("node:A", "optimize", "frags 6 → 1, about 1.5 KiB, spark: rewrite 6 fragments", pending),
        ("node:B", "no_op", "no-op", ""),
        ("node:C", "skipped", "drifted", ""),
    )


def test_optimize_says_what_it_wrote_and_for_how_much_that_was_loaded() -> None:
    tables = (
        TableStats(
            table_key="node:A",
            fragments_removed=2,
            fragments_added=1,
            committed=True,
            bytes_rewritten=3072,
            bytes_planned=4096,
            bytes_ingested=1024,
            write_amplification=3.0,
        ),
        TableStats(table_key="node:B", committed=True, bytes_rewritten=1024, bytes_planned=512, rewrite_deferred=True),
        TableStats(table_key="node:C", skipped=SkipReason.DEFERRED_BUDGET),
    )
    view = report_view(OptimizeReport.of("/g", tables))
    assert [row[1] for row in view.sections[0].rows] == [
        "frags 2 → 1 ✓, wrote 3.0 KiB (3x)",
        "indexes ✓, wrote 1.0 KiB, rewrite waits for the next budget",
        "skipped (no room in this run's budget — planned again next time)",
    ]
    assert dict(view.facts)["In all"] == (
        "rewrote 4.0 KiB (data and indexes, planned 4.5 KiB); 1.0 KiB were loaded since the last run, write "
        "amplification 3; how much was loaded is not known for 1 table"
    )


def test_what_a_killed_attempt_planned_is_not_called_zero() -> None:
    known = TableStats(table_key="node:A", committed=True, bytes_rewritten=1024, bytes_planned=512)
    told = TableStats(table_key="node:B", committed=True, bytes_rewritten=1024)
    for tables in ((told,), (known, told)):
        assert written(OptimizeReport.of("/g", tables)).startswith(f"rewrote {len(tables)}.0 KiB (data and indexes); ")


def _under_another_root(key: str) -> str:
    return f"{key} was last published under the root 'g/a.omni', not '/data/g/a.omni'; nothing was written; set it"


def test_a_cause_that_tables_share_is_one_sentence_of_a_plan() -> None:
    """The root is one for a graph: 300 tables were 300 sentences."""
    why = {f"node:T{n:03}": _under_another_root(f"node:T{n:03}") for n in range(300)} | {"node:Z": "cut short"}
    tables = tuple(
        TablePlan(table_key=k, decision=OptimizeDecision.FAILED, read_version=1, lance_head_version=1, error=error)
        for k, error in why.items()
    )
    plan = OptimizePlan(uri="/g", stamp=6, graph_version=3, tables=tables)
    alone, shared = plan_view(plan).sections
    assert alone.rows == (("node:Z", "failed", "cut short", ""),)
    assert shared.title == "Failed for a shared cause (300 tables)"
    assert shared.lines == (
        f"node:T000, node:T001, node:T002, node:T003, node:T004, and 295 more: {why['node:T000']} "
        "(the others name their own files, versions and sizes)",
    )
    assert len(PlanOptimize().problem(plan)) < 200


def test_a_freeze_of_many_tables_is_one_sentence_of_a_plan() -> None:
    """A frozen graph of 300 tables was 300 times how to end the freeze; what drifted is told table by table."""

    def skipped(key: str, why: SkipReason, reason: str) -> TablePlan:
        left = TablePlan(table_key=key, decision=OptimizeDecision.SKIPPED, read_version=1, lance_head_version=1)
        return replace(left, skipped=why, reason=reason)

    frozen = [skipped(f"node:T{n}", SkipReason.FROZEN, "/g is frozen by a") for n in range(2)]
    drifted = [skipped(f"node:U{n}", SkipReason.DRIFT, "drifted (1 → 2)") for n in range(2)]
    alone, shared = plan_view(OptimizePlan(uri="/g", stamp=6, graph_version=3, tables=(*frozen, *drifted))).sections
    assert [row[0] for row in alone.rows] == ["node:U0", "node:U1"]
    assert (shared.title, shared.lines) == ("Frozen (2 tables)", ("node:T0, node:T1: /g is frozen by a",))


def test_a_cause_that_tables_share_is_one_sentence_of_a_report() -> None:
    failed = [TableStats(table_key=f"node:T{n}", error=_under_another_root(f"node:T{n}")) for n in range(300)]
    report = OptimizeReport.of("/g", [*failed, TableStats(table_key="node:Z", error="cut short")])
    told = plain_text(report_view(report))
    assert told.count("was last published under") == 1
    assert "Failed for a shared cause (300 tables)" in told
    assert "node:Z  failed: cut short" in told
    assert "node:T4, and 296 more; do what" in OptimizeStage().problem(report)

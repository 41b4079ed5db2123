"""The lines that people and scripts read: the engine's, to the character."""

from __future__ import annotations

import pytest

from omnigraph_ops.models import (
    CheckReport,
    CheckStatus,
    Classification,
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    DriftFinding,
    Executor,
    HealthPart,
    HealthReport,
    OptimizeDecision,
    OptimizePlan,
    OptimizeReport,
    OrphanedFork,
    PendingIndex,
    PlannedFile,
    RecoverReport,
    RecoveryOutcome,
    RepairAction,
    RepairReport,
    RepairRow,
    RetentionPolicy,
    SidecarClass,
    SidecarFinding,
    SkipReason,
    TableCleanupPlan,
    TableHealth,
    TablePlan,
    TableStats,
)
from omnigraph_ops.views import render
from omnigraph_ops.views.approval import human_bytes, ranges
from omnigraph_ops.views.render_health import health_text

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
    assert render.optimize_text(report).splitlines() == [
        "optimize /g — 6 tables",
        "  edge:Knows                               frags 6 → 1 ✓",
        "  node:Doc                                 no-op",
        "    ↳ index pending on 'embedding': column has no non-null vectors to train on yet",
        "  node:Person                              skipped (manifest/head drift — see omnigraph-ops check)",
        "  node:Photo                               skipped (blob columns — Lance compaction unsupported)",
        "  node:Bad                                 failed: it broke",
        "  __manifest                               skipped (others may publish — needs "
        "OMNIGRAPH_OPS_EXCLUSIVE or --exclusive)",
    ]


def repair_row(key: str, head: int, classification: Classification, action: RepairAction, **more: object) -> RepairRow:
    return RepairRow(
        table_key=key,
        manifest_version=4,
        lance_head_version=head,
        classification=classification,
        action=action,
        **more,
    )


def test_repair_prints_the_engines_lines() -> None:
    report = RepairReport(
        uri="/g",
        confirm=False,
        force=False,
        manifest_version=None,
        tables=(
            repair_row("node:A", 4, Classification.NO_DRIFT, RepairAction.NO_OP),
            repair_row(
                "node:B",
                6,
                Classification.VERIFIED_MAINTENANCE,
                RepairAction.PREVIEW,
                operations=("ReserveFragments", "Rewrite"),
            ),
            repair_row("node:C", 5, Classification.UNVERIFIABLE, RepairAction.PREVIEW, error="missing"),
        ),
    )
    assert render.repair_text(report).splitlines() == [
        "repair /g — preview mode, 3 tables",
        "  node:A                                   no_op        no_drift               4",
        "  node:B                                   preview      verified_maintenance   4 → 6 "
        "[ReserveFragments, Rewrite]",
        "  node:C                                   preview      unverifiable           4 → 5 (missing)",
        "rerun with --confirm to publish verified maintenance drift",
    ]


def test_a_confirmed_repair_does_not_ask_to_confirm() -> None:
    report = RepairReport(uri="/g", confirm=True, force=False, manifest_version=9, tables=())
    assert render.repair_text(report) == "repair /g — confirm mode, 0 tables"


def test_cleanup_prints_the_engines_lines_and_names_errors() -> None:
    report = CleanupReport(
        uri="/g",
        keep_versions=10,
        older_than_secs=604_800,
        tables=(
            CleanupStats(table_key="node:A", bytes_removed=100, old_versions_removed=2),
            CleanupStats(table_key="node:B", bytes_removed=20, old_versions_removed=1),
            CleanupStats(table_key="node:C", error="drift"),
            CleanupStats(table_key="node:D", error="gone"),
        ),
        orphaned_forks_removed=(OrphanedFork(table_key="node:A", table_path="nodes/1", branch="old"),),
    )
    assert render.cleanup_text(report).splitlines() == [
        "cleanup /g (keep 10 versions, remove anything older than 604800s) — "
        "removed 3 versions (120 bytes) across 2 tables",
        "  reclaimed orphaned fork old of node:A",
        "  2 table(s) failed and will be retried on the next cleanup: node:C, node:D",
        "    node:C: drift",
        "    node:D: gone",
    ]


@pytest.mark.parametrize(
    ("keep", "older_than", "text"),
    [
        (3, None, "keep 3 versions"),
        (None, 60, "remove anything older than 60s"),
        (None, 0, "remove anything older than 0ns"),
        (0, 1, "keep 0 versions, remove anything older than 1s"),
    ],
)
def test_policies_in_the_engines_words(keep: int | None, older_than: int | None, text: str) -> None:
    assert render.policy_text(RetentionPolicy(keep_versions=keep, older_than_secs=older_than)) == text


def test_the_cleanup_plan_shows_what_goes_and_its_digest() -> None:
    def table(key: str, **fields: object) -> TableCleanupPlan:
        base: dict[str, object] = {"versions": (), "pinned_version": 9, "lance_head_version": 9}
        return TableCleanupPlan(table_key=key, table_path="nodes/1", **{**base, **fields})

    file = PlannedFile(path="nodes/1/data/a.lance", size=2048, kind="data")
    plan = CleanupPlan(
        uri="/g",
        stamp=6,
        policy=RetentionPolicy(keep_versions=1),
        planned_at_us=0,
        expires_at_us=1,
        tables=(
            table(
                "node:A",
                versions=(1, 2, 3, 5),
                estimated_bytes=2048,
                files=(file,),
                blocked_by="version 7: branch 'b' reads it",
            ),
            table("node:B"),
            table("node:C", refused="drift"),
        ),
        orphaned_forks=(OrphanedFork(table_key="node:A", table_path="nodes/1", branch="old"),),
        digest="sha256:00",
    )
    assert render.cleanup_plan_text(plan).splitlines() == [
        "cleanup plan /g (keep 1 versions) — 4 versions, 1 files, 2.0 KiB across 3 tables",
        "  node:A                                   remove 1-3, 5 (4 versions, 1 files, 2.0 KiB)",
        "    ↳ stops at version 7: branch 'b' reads it",
        "  node:B                                   nothing to remove",
        "  node:C                                   refused: drift",
        "  node:A                                   orphaned fork old (0 files)",
        "digest sha256:00",
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
    assert render.plan_text(plan).splitlines() == [
        "plan /g — 3 tables, 1 to optimize",
        "  node:A                                   optimize  frags 6 → 1, about 1.5 KiB, spark: rewrite 6 fragments",
        "    ↳ index pending on 'embedding': column has no non-null vectors to train on yet",
        "  node:B                                   no_op     no-op",
        "  node:C                                   skipped   drifted",
    ]


def test_check_lists_every_obstacle_and_what_to_do() -> None:
    finding = SidecarFinding(
        operation_id="01",
        path="__recovery/01.json",
        writer_kind="Load",
        branch=None,
        table_keys=(),
        started_at_us=None,
        classification=SidecarClass.NEEDS_REVIEW,
        recoverable=False,
        detail="a Load",
    )
    report = CheckReport(
        uri="/g",
        stamp=6,
        status=CheckStatus.NEEDS_PERSON,
        sidecars=(finding,),
        staging_files=("_schema.pg.staging",),
        schema_apply_lock=True,
        drift=(DriftFinding(table_key="node:A", manifest_version=1, lance_head_version=2, covered=False),),
        advice=("do this",),
    )
    assert render.check_text(report).splitlines() == [
        "check /g — stamp 6, needs_person",
        "  __recovery/01.json  Load ?: needs_review — a Load",
        "  _schema.pg.staging  schema staging file",
        "  __schema_apply_lock__  writers are kept away",
        "  node:A                                   1 → 2 drift, uncovered",
        "  next: do this",
    ]


def test_recover_says_what_moved() -> None:
    outcome = RecoveryOutcome(
        operation_id="01", table_key="node:A", action="rolled_forward", from_version=1, to_version=3, detail="done"
    )
    text = render.recover_text(RecoverReport(uri="/g", outcomes=(outcome,), status=CheckStatus.CLEAN))
    assert text.splitlines() == [
        "recover /g — 1 sidecars, now clean",
        "  node:A                                   rolled_forward 1 → 3 (01) done",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2**20, "1.0 MiB"), (2**52, "4096.0 TiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(("versions", "text"), [((), ""), ((3,), "3"), ((7, 1, 2, 3), "1-3, 7"), ((1, 3), "1, 3")])
def test_ranges(versions: tuple[int, ...], text: str) -> None:
    assert ranges(versions) == text


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
    assert render.optimize_text(OptimizeReport.of("/g", tables)).splitlines()[1:] == [
        "  node:A                                   frags 2 → 1 ✓, wrote 3.0 KiB (3x)",
        "  node:B                                   frags 0 → 0 ✓, wrote 1.0 KiB, rewrite waits for the next budget",
        "  node:C                                   skipped (no room in this run's budget — planned again next time)",
        "rewrote 4.0 KiB (data and indexes, planned 4.5 KiB); 1.0 KiB were loaded since the last run, write "
        "amplification 3; unknown for 1 table(s)",
    ]


def test_health_is_told_worst_first_with_its_reasons() -> None:
    bad = TableHealth(
        table_key="node:A",
        score=60,
        parts=(
            HealthPart(name="unindexed", points=20, most=25),
            HealthPart(name="versions", points=0, most=5),
        ),
        fragments=9,
        small_fragments=8,
        cutoff=4,
        data_bytes=2048,
        unindexed_share=0.8,
        worst_index="id_idx",
        versions=12,
        dead_bytes=1024,
        note="drifted",
    )
    lost = TableHealth(table_key="node:B", error="it cannot be opened")
    report = HealthReport(uri="/g", stamp=6, graph_version=1, score=60, tables=(lost, bad))
    assert health_text(report).splitlines() == [
        "health /g — 2 tables, 60 of 100 by bytes, worst first",
        "  node:B                                     ?  it cannot be opened",
        "  node:A                                    60  8 small of 9 fragments (cutoff 4), 0% deleted, "
        "80% unindexed (id_idx), 12 versions, 2.0 KiB live, 1.0 KiB dead, maintained never recorded",
        "    ↳ unindexed -20 of 25",
        "    ↳ drifted",
    ]

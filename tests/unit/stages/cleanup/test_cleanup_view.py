"""What a person reads of a cleanup before and after: exactly what goes, what stays and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph_ops.models.cleanup import (
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    OrphanedFork,
    PlannedFile,
    ProtectedVersion,
    RetentionPolicy,
    SnapshotExpiry,
    TableCleanupPlan,
)
from omnigraph_ops.stages.cleanup.stage import Cleanup, policy_text
from omnigraph_ops.views import markdown
from omnigraph_ops.views.view import plain_text

FILE = PlannedFile(path="nodes/p/data/a.lance", size=512, kind="data")
TABLES = (
    TableCleanupPlan(
        table_key="node:Person",
        table_path="nodes/p",
        pinned_version=9,
        lance_head_version=9,
        versions=(1, 2, 3, 6),
        protected=(
            ProtectedVersion(version=4, reasons=("pinned by branch a|b",)),
            ProtectedVersion(version=5, reasons=("pinned by branch a|b",)),
        ),
        blocked_by="branch a|b",
        estimated_bytes=3 * 1024**2,
        files=(FILE, FILE),
    ),
    TableCleanupPlan(
        table_key="node:Company",
        table_path="nodes/c",
        pinned_version=5,
        lance_head_version=7,
        versions=(),
        refused="drift_needs_repair",
    ),
    TableCleanupPlan(table_key="edge:Knows", table_path="edges/k", pinned_version=2, lance_head_version=2, versions=()),
)
PLAN = CleanupPlan(
    uri="/graphs/a",
    stamp=6,
    policy=RetentionPolicy(keep_versions=3, older_than_secs=7 * 86400),
    planned_at_us=0,
    expires_at_us=1,
    tables=TABLES,
    orphaned_forks=(OrphanedFork(table_key="node:Person", table_path="nodes/p", branch="old", files=(FILE,)),),
    kept_forks=(OrphanedFork(table_key="node:Person", table_path="nodes/p", branch="kept", error="tag 't' keeps it"),),
    digest="sha256:def",
)
STAGE = Cleanup()


def body(plan: CleanupPlan, **more: str) -> str:
    return markdown.body(STAGE.view(plan), STAGE.question(plan), digest=plan.digest, **more)


def cells(shown: str, start: str) -> list[str]:
    (line,) = (line for line in shown.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")]


def test_a_plan_lists_versions_bytes_and_what_holds_the_rest() -> None:
    shown = body(PLAN)
    assert cells(shown, "| `node:Person` | 1-3") == [
        *("`node:Person`", "1-3, 6", "4", "2 data", "3.0 MiB", "9", "9", "branch a¦b")
    ]
    assert cells(shown, "| `node:Person` | 4-5")[1:] == ["4-5", "2", "pinned by branch a¦b"]


def test_a_plan_shows_refused_untouched_and_forks() -> None:
    shown = body(PLAN, note="4 versions are more than the 1 approved in advance")
    assert "**Refused**\n\n- node:Company: drift_needs_repair" in shown
    assert "**Nothing to remove**\n\n- edge:Knows" in shown
    assert "| `node:Person` | old | 1 | 512 B |" in shown
    assert "removes 4 old versions, 1 orphaned fork and 3 files (about 3.0 MiB)" in shown
    assert "| `node:Person` | kept | tag 't' keeps it |" in shown
    assert "keep the newest 3 and keep what is younger than 7 days" in shown
    assert "more than the 1 approved in advance" in shown
    assert "They cannot be brought back." in shown


def test_a_branch_that_ends_a_cleanup_is_named_wherever_nothing_goes() -> None:
    """A branch that nobody used ended cleanup for good, and every night only said "nothing to remove"."""
    tables = [
        replace(
            TABLES[2], table_key=f"node:T{n}", pinned_version=35, blocked_by=f"version {11 + n}: branch 'idle' reads it"
        )
        for n in range(3)
    ]
    plan = replace(PLAN, tables=(TABLES[2], *tables), orphaned_forks=())
    (section,) = (s for s in STAGE.view(plan).sections if s.title == "Nothing to remove")
    assert section.lines == (
        "edge:Knows",
        "node:T0, node:T1, node:T2: stops at version 11: branch 'idle' reads it "
        "(the others name their own files, versions and sizes)",
    )
    said = (
        "cleanup stops at an old version of 3 tables (node:T0, node:T1, node:T2): branch 'idle' reads it; for newer "
        "versions to go, delete the branch if nobody needs it, or set between_pins (in the shell --between-pins)"
    )
    assert STAGE.nothing_to_do(plan) == f"nothing to remove; {said}"
    assert STAGE.attention(plan, None) == [said]
    assert STAGE.attention(PLAN, None)[-1].startswith("cleanup stops at an old version of 1 table (node:Person): ")


def test_commits_that_can_be_opened_are_one_row_of_a_plan() -> None:
    """Each names its own commit: an expiry of a graph with 200 of them listed 200 lines."""
    openable = {version: (f"commit 01J{version} can be opened",) for version in range(1, 13)}
    reasons = openable | {9: ("tag 'a'", *openable[9]), 10: (*openable[10], "Lance HEAD")}
    protected = tuple(ProtectedVersion(version=version, reasons=why) for version, why in sorted(reasons.items()))
    manifest = replace(TABLES[2], table_key="__manifest", protected=protected)
    (rows,) = (
        s.rows for s in STAGE.view(replace(PLAN, tables=(manifest,))).sections if s.title == "Protected versions"
    )
    assert rows == (
        ("__manifest", "1-8, 11-12", "10", "their commits can be opened"),
        ("__manifest", "9", "1", "tag 'a'; commit 01J9 can be opened"),
        ("__manifest", "10", "1", "commit 01J10 can be opened; Lance HEAD"),
    )


def test_a_question_has_one_sentence_for_each_cause_and_the_plan_a_row_for_each_table() -> None:
    (table,) = (table for table in PLAN.tables if table.refused)
    why = "cannot open /g/{n}: cut short"
    refused = tuple(replace(table, table_key=f"node:T{n}", refused=why.format(n=n)) for n in range(20))
    plan = replace(PLAN, tables=(*PLAN.tables, *refused))
    question = body(plan)
    told = [line for line in question.splitlines() if "cut short" in line]
    named = "node:T0, node:T1, node:T2, node:T3, node:T4, and 15 more: cannot open /g/0: cut short"
    assert told == [f"- {named} (the others name their own files, versions and sizes)"]
    assert len([line for line in STAGE.attention(plan, None) if "cut short" in line]) == 1
    assert plain_text(STAGE.view(plan)).count("cut short") == 20


def test_a_plan_in_a_terminal_has_the_engines_policy_and_its_digest() -> None:
    lines = plain_text(STAGE.view(PLAN)).splitlines()
    assert lines[0] == (
        "cleanup plan /graphs/a (keep 3 versions, remove anything older than 604800s) — 4 versions, 3 files, 3.0 MiB "
        "across 3 tables"
    )
    assert ["Digest", "sha256:def"] in [line.split() for line in lines]
    assert "Every file that goes (3): see --json" in lines
    assert not any(FILE.path in line for line in lines)


def test_a_long_cleanup_is_cut_and_says_where_the_rest_is() -> None:
    tables = tuple(
        TableCleanupPlan(
            table_key=f"node:T{n}",
            table_path=f"nodes/{n}",
            pinned_version=9,
            lance_head_version=9,
            versions=(1,),
            estimated_bytes=1000 + n,
        )
        for n in range(50)
    )
    shown = body(replace(PLAN, tables=tables), full_plan="[the full plan](/somewhere)")
    assert "`node:T49`" in shown, "the largest come first"
    assert "`node:T19`" not in shown
    assert "And 20 more, listed in [the full plan](/somewhere)." in shown
    assert "The whole plan is in [the full plan](/somewhere)." in shown
    assert "50 old versions" in shown


def test_a_report_has_the_engines_title_and_names_errors() -> None:
    report = CleanupReport(
        uri="/g",
        keep_versions=10,
        older_than_secs=604_800,
        tables=(
            CleanupStats(table_key="node:A", bytes_removed=100, old_versions_removed=2),
            CleanupStats(
                table_key="node:B",
                bytes_removed=20,
                old_versions_removed=1,
                already_gone=43,
                skipped_since_protected=(7, 8),
            ),
            CleanupStats(table_key="node:C", error="drift"),
            CleanupStats(table_key="node:D", error="gone"),
        ),
        orphaned_forks_removed=(OrphanedFork(table_key="node:A", table_path="nodes/1", branch="old"),),
    )
    lines = plain_text(STAGE.view(report)).splitlines()
    assert lines[0] == (
        "cleanup /g (keep 10 versions, remove anything older than 604800s) — removed 3 versions (120 bytes) "
        "across 2 tables"
    )
    failed = lines.index("2 tables failed and will be retried on the next cleanup")
    assert next(line.rstrip() for line in lines if line.lstrip().startswith("node:B")).endswith(
        "43 already gone, 2 protected since"
    )
    assert [line.split() for line in lines[failed + 2 : failed + 4]] == [["node:C", "drift"], ["node:D", "gone"]]
    assert lines[-1].split() == ["node:A", "old"]


@pytest.mark.parametrize(
    ("keep", "older_than", "words"),
    [
        (3, None, "keep 3 versions"),
        (None, 60, "remove anything older than 60s"),
        (None, 0, "remove anything older than 0ns"),
        (0, 1, "keep 0 versions, remove anything older than 1s"),
    ],
)
def test_policies_in_the_engines_words(keep: int | None, older_than: int | None, words: str) -> None:
    assert str(RetentionPolicy(keep_versions=keep, older_than_secs=older_than)) == words


def test_an_expiry_is_told_in_its_own_terms() -> None:
    policy = RetentionPolicy(expiry=SnapshotExpiry(retain_max=40))
    assert policy_text(policy) == (
        "snapshot expiry: retain at least 10, at most 40, otherwise what is younger than 1 hour; "
        "expire at most 10 versions per table"
    )

"""What a person reads before approving: complete, and safe to render as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph_ops.models import (
    Classification,
    CleanupPlan,
    OrphanedFork,
    PlannedFile,
    ProtectedVersion,
    RepairAction,
    RepairPreview,
    RepairRow,
    RetentionPolicy,
    SnapshotExpiry,
    TableCleanupPlan,
)
from omnigraph_ops.views import approval

HEALABLE = RepairRow(
    table_key="node:Company",
    manifest_version=5,
    lance_head_version=7,
    classification=Classification.VERIFIED_MAINTENANCE,
    action=RepairAction.PREVIEW,
    operations=("ReserveFragments", "Rewrite"),
    rows_before=1200,
    rows_after=1200,
)
SUSPICIOUS = RepairRow(
    table_key="node:Person",
    manifest_version=3,
    lance_head_version=4,
    classification=Classification.SUSPICIOUS,
    action=RepairAction.PREVIEW,
    operations=("Delete",),
    rows_before=10,
    rows_after=8,
)
PREVIEW = RepairPreview(
    uri="/graphs/a", stamp=6, planned_at_us=0, expires_at_us=1, rows=(HEALABLE, SUSPICIOUS), digest="sha256:abc"
)
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


def cells(body: str, key: str) -> list[str]:
    (line,) = (line for line in body.splitlines() if line.startswith(f"| `{key}`") and "`old`" not in line)
    return [cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")]


def test_repair_says_what_each_answer_does_and_to_what() -> None:
    body = approval.repair_body(PREVIEW, answer_by="2026-01-02 03:04 UTC")
    assert "sha256:abc" in body
    assert "**Approve**" in body
    assert "**Reject**: only the repair is skipped" in body
    assert "**No answer** by 2026-01-02 03:04 UTC: counts as Reject" in body


def test_repair_shows_evidence_per_table() -> None:
    body = approval.repair_body(PREVIEW)
    company, person = cells(body, "node:Company"), cells(body, "node:Person")
    assert company[1] == "5 → 7"
    assert company[2:4] == ["publish", "1,200 (same number)"]
    assert company[4:] == ["verified maintenance", "ReserveFragments, Rewrite", "?"]
    assert person[2:] == ["leave, unless the switch is on", "**10 → 8**", "**suspicious**", "Delete", "?"]


def test_forced_repair_says_so() -> None:
    assert cells(approval.repair_body(PREVIEW, force=True), "node:Person")[2] == "publish (forced)"


def test_cleanup_lists_versions_bytes_and_what_holds_the_rest() -> None:
    person = cells(approval.cleanup_body(PLAN), "node:Person")
    assert person[1:5] == ["1-3, 6 (4)", "2 data", "3.0 MiB", "9 / 9"]
    assert person[5] == "stops at branch a¦b; 4-5: pinned by branch a¦b"


def test_cleanup_shows_refused_untouched_and_forks() -> None:
    body = approval.cleanup_body(PLAN, note="4 versions are more than the 1 approved in advance")
    assert cells(body, "node:Company")[1] == "none: drift_needs_repair"
    assert "Nothing to remove in `edge:Knows`." in body
    assert "| `node:Person` | `old` | 1 | 512 B |" in body
    assert "**4 old versions** and 3 files (about 3.0 MiB) and 1 orphaned fork" in body
    assert "Orphaned fork `kept` of `node:Person` stays: tag 't' keeps it." in body
    assert "keep the newest 3 and keep what is younger than 7 days" in body
    assert "more than the 1 approved in advance" in body
    assert "**They cannot be brought back.**" in body
    assert "sha256:def" in body


@pytest.mark.parametrize(("versions", "text"), [((), ""), ((7,), "7"), ((1, 2, 3), "1-3"), ((9, 1, 2, 5), "1-2, 5, 9")])
def test_ranges(versions: tuple[int, ...], text: str) -> None:
    assert approval.ranges(versions) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 1024**4, "5.0 TiB")])
def test_human_bytes(count: int, text: str) -> None:
    assert approval.human_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "1 second"), (90, "90 seconds"), (3600, "1 hour"), (172800, "2 days")]
)
def test_human_seconds(seconds: int, text: str) -> None:
    assert approval.human_seconds(seconds) == text


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
    body = approval.cleanup_body(replace(PLAN, tables=tables), full_plan="[the full plan](/somewhere)")
    assert "`node:T49`" in body, "the largest come first"
    assert "`node:T19`" not in body
    assert "And 20 more tables with 20 versions (about 19.7 KiB), listed in [the full plan](/somewhere)." in body
    assert "Every file is listed in [the full plan](/somewhere)." in body
    assert "**50 old versions**" in body


def test_an_expiry_is_told_in_its_own_terms() -> None:
    policy = RetentionPolicy(expiry=SnapshotExpiry(retain_max=40))
    assert approval.policy_text(policy) == (
        "snapshot expiry: retain at least 10, at most 40, otherwise what is younger than 1 hour; "
        "expire at most 10 versions per table"
    )

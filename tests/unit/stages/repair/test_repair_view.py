"""What a person reads of a repair: totals first, evidence that is only text, and never longer than a person reads."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.repair import (
    BranchEvidence,
    Classification,
    DriftEvidence,
    EvidenceTier,
    RepairAction,
    RepairPreview,
    RepairReport,
    RepairRow,
    RowChange,
    ShownRow,
    ShownValue,
    TierCost,
)
from omnigraph_ops.outcomes.audit_log import AuditEvent, audit_end
from omnigraph_ops.outcomes.results import RunResults, with_value
from omnigraph_ops.stages.repair.stage import Repair
from omnigraph_ops.views import markdown
from omnigraph_ops.views.markdown import MOST_CHARACTERS
from omnigraph_ops.views.view import plain_text

HOSTILE = "a|b`c`\\|<img src=x>\n# *x* [y](http://z) www.z.org me@z.org"
EVIDENCE = DriftEvidence(
    tier=EvidenceTier.SAMPLE,
    costs=(
        TierCost(tier=EvidenceTier.SAMPLE, estimated_bytes=1, measured_bytes=2048, seconds=0.25),
        TierCost(tier=EvidenceTier.FULL, estimated_bytes=1536, at_least=True),
    ),
    content_equal=False,
    content_reason="rows were added or removed",
    rows_before=10,
    rows_after=12,
    rows_added=3,
    rows_removed=1,
    rows_changed=2,
    fragments_before=2,
    fragments_after=3,
    fragments_identical=1,
    branches=(BranchEvidence(branch=HOSTILE, version=4, sees_change=False, note="reads version 4"),),
    shown=(
        ShownRow(
            row_id=7,
            change=RowChange.CHANGED,
            values=(
                ShownValue(column="same", before="1", after="1"),
                ShownValue(column=HOSTILE, before="2", after=HOSTILE),
            ),
        ),
    ),
    if_published=(f"Readers of branch {HOSTILE} see no change.",),
    if_not_published=("Readers of main keep the published version.",),
    problem=HOSTILE,
)
STAGE = Repair()


def row(key: str = "node:Person", **changes: object) -> RepairRow:
    base = RepairRow(
        table_key=key,
        manifest_version=3,
        lance_head_version=5,
        classification=Classification.SUSPICIOUS,
        action=RepairAction.PREVIEW,
        operations=("Append", "Delete"),
        evidence=EVIDENCE,
    )
    return replace(base, **changes)


def preview(*rows: RepairRow, **changes: object) -> RepairPreview:
    base = RepairPreview(uri="/g", stamp=6, planned_at_us=0, expires_at_us=1, rows=rows, digest="sha256:abc")
    return replace(base, **changes)


def body(preview: RepairPreview, *, force: bool = False, **more: str) -> str:
    asked = STAGE.question(preview, force=force)
    return markdown.body(STAGE.view(preview), asked, digest=preview.digest, **more)


HEALABLE = row(
    "node:Company",
    manifest_version=5,
    lance_head_version=7,
    classification=Classification.VERIFIED_MAINTENANCE,
    operations=("ReserveFragments", "Rewrite"),
    rows_before=1200,
    rows_after=1200,
    evidence=None,
)
CHANGED = row(operations=("Delete",), rows_before=10, rows_after=8, evidence=None)


def cells(shown: str, key: str) -> list[str]:
    (line,) = (line for line in shown.splitlines() if line.startswith(f"| `{key}`"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_body_says_what_each_answer_does_and_to_what() -> None:
    shown = body(preview(HEALABLE, CHANGED), answer_by="2026-01-02 03:04 UTC")
    assert "- **Approve**: the tables marked publish are published" in shown
    assert "- **Reject**: only the repair is skipped" in shown
    assert "- **No answer** by 2026-01-02 03:04 UTC: counts as Reject" in shown
    assert "The switch below also publishes the tables that are not verified maintenance." in shown
    assert "with the switch on, as it is from the start" in body(preview(HEALABLE, CHANGED), force=True)


def test_the_body_tells_of_the_switch_only_where_it_does_something() -> None:
    nothing = "- **Approve**: nothing is published unless you turn the switch on"
    assert nothing in body(preview(CHANGED))
    assert nothing not in body(preview(CHANGED), force=True)
    assert "switch" not in body(preview(HEALABLE))


@pytest.mark.parametrize("readable", [True, False])
def test_what_lacks_the_switch_is_not_approved_and_what_cannot_be_read_fails(readable: bool) -> None:
    healed, left = replace(HEALABLE, action=RepairAction.HEALED), row(action=RepairAction.REFUSED, readable=readable)
    report = RepairReport(uri="/g", confirm=True, force=False, manifest_version=9, tables=(healed, left))
    outcome = report.outcome()
    assert bool(outcome.unapproved) is readable
    assert [t.table_key for t in outcome.tables if t.error] == ([] if readable else ["node:Person"])
    assert bool(STAGE.failures(report)) is not readable
    nothing = with_value(RunResults(), replace(report, manifest_version=None, tables=(left,)))
    assert audit_end(nothing, error=None, interrupted=False)[0] is (
        AuditEvent.UNAPPROVED if readable else AuditEvent.FAILED
    )


def test_a_row_per_table_what_needs_a_person_first() -> None:
    shown = body(preview(HEALABLE, CHANGED))
    assert cells(shown, "node:Company")[1:] == [
        *("5 → 7", "publish", "verified_maintenance", "ReserveFragments, Rewrite", "1,200 (same number)", "?")
    ]
    assert cells(shown, "node:Person")[2:] == ["leave, unless forced", "suspicious", "Delete", "10 → 8", "?"]
    assert shown.index("`node:Person`") < shown.index("`node:Company`")


def test_nobody_is_asked_about_a_version_that_cannot_be_read() -> None:
    lost = row("node:Lost", lance_head_version=0, classification=Classification.UNVERIFIABLE, readable=False)
    assert STAGE.nothing_to_do(preview(lost)) == ("no repair helps: the newest version of node:Lost cannot be read")
    beside = preview(lost, CHANGED)
    assert STAGE.nothing_to_do(beside) is None
    assert STAGE.question(beside).subject == "Repair node:Person?"
    shown = body(beside)
    assert "**Newest version cannot be read**\n\n- node:Lost: unverifiable" in shown
    assert "The newest version of node:Lost cannot be read. It stays as it is; restore the graph" in shown
    finding = DriftFinding(
        table_key="node:Lost", manifest_version=3, lance_head_version=0, covered=False, problem="cut off"
    )
    assert STAGE.attention(beside, [finding]) == (
        "node:Lost: the newest version cannot be read (cut off); restore the graph from a backup",
    )


def test_the_advice_about_such_a_version_is_no_force() -> None:
    refused = [row(f"node:{n}", lance_head_version=n, action=RepairAction.REFUSED, readable=n > 3) for n in (0, 5)]
    report = RepairReport(uri="/g", confirm=True, force=False, manifest_version=None, tables=tuple(refused))
    said, lost = report.outcome().problem.split("; no repair helps ")
    assert said.startswith("repair refused 1 suspicious or unverifiable table,")
    assert lost.startswith("node:0: the newest version cannot be read")


def test_totals_come_first() -> None:
    shown = body(preview(row(), row("node:Doc"), row("node:Old", evidence=None))).splitlines()
    assert shown[2] == (
        "- Drifted: 3 tables with 6 versions past the published ones: 6 rows added, 2 rows removed, 4 rows changed; "
        "not counted in 1 table"
    )
    assert dict(STAGE.view(preview()).facts)["Drifted"] == "no table"


def test_evidence_and_consequences_are_there() -> None:
    shown = body(preview(row(), tables=("node:Person",)))
    expected = (
        "- Only looked at: node:Person",
        "| differs |",
        "**If nothing is published**\n\n- Readers of main keep the published version.",
        "**Evidence: node:Person**",
        "- evidence (sample): content differs: rows were added or removed",
        "- rows 10 → 12 (3 added, 1 removed, 2 changed); fragments 2 → 3, 1 identical",
        "cost: sample read 2.0 KiB in 0.25 s, full at least 1.5 KiB",
        "- could not be read: ",
        "- if published: Readers of branch ",
        "| `7` | changed |",
    )
    assert [words for words in expected if words not in shown] == []


def test_nothing_from_the_graph_is_markup() -> None:
    shown = body(preview(row(HOSTILE, error=HOSTILE)))
    assert "<img" not in strip_code(shown).replace("\\<", "")
    assert "[y](" not in strip_code(shown)
    assert not any(line.startswith("# ") for line in shown.splitlines())
    assert "http://" not in strip_code(shown)
    assert "www.z" not in strip_code(shown)


def strip_code(shown: str) -> str:
    """The body without its code spans, which hold text as it is."""
    rest, parts = shown, []
    while "`" in rest:
        before, _, after = rest.partition("`")
        if before.endswith("\\"):
            parts.append(before + "`")
            rest = after
            continue
        fence = 1
        while after.startswith("`"):
            fence, after = fence + 1, after[1:]
        parts.append(before)
        rest = after.partition("`" * fence)[2]
    return "".join(parts) + rest


def test_what_differs_comes_first_in_a_wide_row() -> None:
    same = tuple(ShownValue(column=f"c{n}", before="1", after="1") for n in range(30))
    wide = ShownRow(row_id=1, change=RowChange.CHANGED, values=(*same, ShownValue(column="z", before="1", after="2")))
    shown = body(preview(row(evidence=replace(EVIDENCE, shown=(wide,)))))
    assert "| `1` | changed | z: 1 → 2, c0: 1, " in shown
    assert "and 23 more columns" in shown


def test_a_long_body_is_cut_and_says_where_the_rest_is() -> None:
    verified = row("a:verified", classification=Classification.VERIFIED_MAINTENANCE)
    rows = (verified, *(row(f"node:T{n:02d}") for n in range(60)))
    shown = body(preview(*rows), full_plan="[here](http://airflow/plan)")
    assert "And 31 more, listed in [here](http://airflow/plan)." in shown
    assert "more lists are left out here; they are in [here](http://airflow/plan)." in shown
    assert "The whole plan is in [here](http://airflow/plan)." in shown
    assert "a:verified" not in shown
    assert len(shown) < MOST_CHARACTERS + 3000
    assert shown.endswith("Digest of what you see: `sha256:abc`")


def test_the_rows_of_a_table_give_way_before_the_facts_of_any() -> None:
    values = tuple(ShownValue(column=f"c{n}", after="x" * 900) for n in range(8))
    many = tuple(ShownRow(row_id=n, change=RowChange.ADDED, values=values) for n in range(50))
    wide = replace(EVIDENCE, shown=many)
    shown = body(preview(row("node:A", evidence=wide), row("node:B", evidence=wide)))
    assert shown.count("- rows 10 → 12") == 2
    assert "**Rows that differ: node:A**" in shown
    assert re.search(r"^And \d+ more\.$", shown, re.MULTILINE)
    assert len(shown) < MOST_CHARACTERS + 3000


def test_a_terminal_and_a_page_have_every_branch_value_and_change() -> None:
    lines = plain_text(STAGE.view(preview(HEALABLE, row()))).splitlines()
    assert lines[0] == "repair /g — preview mode, 2 tables"
    assert any(line.split()[:4] == ["node:Person", "3", "→", "5"] for line in lines)
    assert "  - version" not in plain_text(STAGE.view(preview(HEALABLE)))
    assert any(line.startswith("  7       changed  ") and "same: 1" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_a_report_has_the_engines_tokens_and_what_is_left_to_review() -> None:
    rows = (
        row("node:A", lance_head_version=3, classification=Classification.NO_DRIFT, action=RepairAction.NO_OP),
        replace(HEALABLE, action=RepairAction.HEALED),
        row("node:C", action=RepairAction.REFUSED, error="missing", operations=()),
    )
    report = RepairReport(uri="/g", confirm=True, force=False, manifest_version=9, tables=rows)
    view = STAGE.view(report)
    assert view.title == "repair /g — confirm mode, 3 tables"
    assert view.sections[0].rows == (
        ("node:A", "no_op", "no_drift", "3", "Append, Delete"),
        ("node:Company", "healed", "verified_maintenance", "5 → 7", "ReserveFragments, Rewrite"),
        ("node:C", "refused", "suspicious (missing)", "3 → 5", ""),
    )
    assert [s.title for s in view.sections[1:]] == ["Evidence: node:C", "Rows that differ: node:C"]

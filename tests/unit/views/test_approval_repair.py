"""A repair body: totals first, evidence that is only text, and never longer than a person reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph_ops.models import (
    BranchEvidence,
    Classification,
    DriftEvidence,
    EvidenceTier,
    RepairAction,
    RepairPreview,
    RepairRow,
    RowChange,
    ShownRow,
    ShownValue,
    TierCost,
)
from omnigraph_ops.views.approval import repair_body
from omnigraph_ops.views.approval.evidence import MAX_CHARACTERS
from omnigraph_ops.views.markdown import code, line, prose

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


def test_totals_come_first() -> None:
    lines = repair_body(preview(row(), row("node:Doc"), row("node:Old", evidence=None))).splitlines()
    assert lines[2] == (
        "**3 tables** with 6 versions past the published ones: 6 rows added, 2 rows removed, 4 rows changed; "
        "not counted in 1 table."
    )


def test_evidence_and_consequences_are_there() -> None:
    body = repair_body(preview(row(), tables=("node:Person",)))
    for words in (
        "Only these tables were looked at: `node:Person`.",
        "**differs** |",
        "- Readers of main keep the published version.",
        "**`node:Person`** (sample): content differs: rows were added or removed",
        "- rows 10 → 12 (3 added, 1 removed, 2 changed); fragments 2 → 3, 1 identical",
        "cost: sample read 2.0 KiB in 0.25 s, full at least 1.5 KiB",
        "| 7 | changed |",
    ):
        assert words in body


def test_nothing_from_the_graph_is_markup() -> None:
    body = repair_body(preview(row(HOSTILE, error=HOSTILE)))
    assert "<img" not in strip_code(body).replace("\\<", "")
    assert "[y](" not in strip_code(body)
    assert not any(text.startswith("# ") for text in body.splitlines())
    for text in strip_code(body).splitlines():
        assert "http://" not in text
        assert "www.z" not in text


def strip_code(body: str) -> str:
    """The body without its code spans, which hold text as it is."""
    rest, parts = body, []
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


@pytest.mark.parametrize(
    ("text", "span"),
    [("plain", "`plain`"), ("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("", "`  `"), ("a\nb", "`a b`"), ("\\", "`\\`")],
)
def test_a_code_span_holds_any_text(text: str, span: str) -> None:
    assert code(text) == span


def test_prose_escapes_what_markdown_means() -> None:
    assert prose("a_b a*b_<c> [d](e) `f` # | \\ ~ &amp;") == (
        "a_b a\\*b\\_\\<c\\> \\[d\\](e) \\`f\\` \\# \\| \\\\ \\~ \\&amp;"
    )
    assert prose("http://x www.y a@b\nc") == "http:\u2060//x www\u2060.y a@\u2060b c"


@pytest.mark.parametrize("text", ["|", "\\|", "\\\\|", "a|b|c\\", "`|`"])
def test_no_text_opens_another_cell(text: str) -> None:
    """Pipes that a renderer would split at: those after an even number of backslashes."""
    row_text = line((text, "x"))
    splits = 0
    backslashes = 0
    for character in row_text:
        if character == "|" and backslashes % 2 == 0:
            splits += 1
        backslashes = backslashes + 1 if character == "\\" else 0
    assert splits == 3


def test_what_differs_comes_first_in_a_wide_row() -> None:
    same = tuple(ShownValue(column=f"c{n}", before="1", after="1") for n in range(30))
    wide = ShownRow(row_id=1, change=RowChange.CHANGED, values=(*same, ShownValue(column="z", before="1", after="2")))
    body = repair_body(preview(row(evidence=replace(EVIDENCE, shown=(wide,)))))
    assert "| 1 | changed | `z: 1 → 2`, `c0: 1`" in body
    assert "and 23 more columns" in body


def test_a_long_body_is_cut_and_says_where_the_rest_is() -> None:
    verified = row("a:verified", classification=Classification.VERIFIED_MAINTENANCE)
    rows = (verified, *(row(f"node:T{n:02d}") for n in range(60)))
    body = repair_body(preview(*rows), full_plan="[here](http://airflow/plan)")
    assert "And 31 more tables, listed in [here](http://airflow/plan)." in body
    assert "more tables is left out; it is in [here](http://airflow/plan)." in body
    assert "The whole preview is in [here](http://airflow/plan)." in body
    assert "a:verified" not in body
    assert len(body) < MAX_CHARACTERS + 8000
    assert body.endswith("Digest of what you see: `sha256:abc`")


def test_the_rows_of_a_table_give_way_before_its_facts() -> None:
    values = tuple(ShownValue(column=f"c{n}", after="x" * 900) for n in range(8))
    many = tuple(ShownRow(row_id=n, change=RowChange.ADDED, values=values) for n in range(5))
    body = repair_body(preview(row(evidence=replace(EVIDENCE, shown=many))))
    assert "The 5 rows looked at are left out here." in body
    assert "- rows 10 → 12" in body

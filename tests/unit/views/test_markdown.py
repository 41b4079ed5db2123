"""Markdown in which whatever comes from a graph is only text, and the words beside it."""

from __future__ import annotations

import pytest

from omnigraph_ops.views.markdown import code, document, human_seconds, line, prose, ranges
from omnigraph_ops.views.view import Section, View


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


@pytest.mark.parametrize(
    ("versions", "text"), [((), ""), ((3,), "3"), ((1, 3), "1, 3"), ((1, 2, 3), "1-3"), ((9, 1, 2, 5), "1-2, 5, 9")]
)
def test_ranges(versions: tuple[int, ...], text: str) -> None:
    assert ranges(versions) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "1 second"), (90, "90 seconds"), (3600, "1 hour"), (172800, "2 days")]
)
def test_human_seconds(seconds: int, text: str) -> None:
    assert human_seconds(seconds) == text


def test_a_document_has_a_heading_per_section_and_escapes_its_name() -> None:
    view = View(title="a_b *c*", facts=(("Runs", "<1>"),), sections=(Section(title="Rows: <x>", lines=("[y](z)",)),))
    assert document(view).splitlines() == [
        "# a_b \\*c\\*",
        "",
        "- Runs: \\<1\\>",
        "",
        "## Rows: \\<x\\>",
        "",
        "- \\[y\\](z)",
    ]

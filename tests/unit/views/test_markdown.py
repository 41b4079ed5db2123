"""Markdown in which whatever comes from a graph is only text, and the words beside it."""

from __future__ import annotations

import shlex

import pytest

from omnigraph_ops.cli.call import Parsed
from omnigraph_ops.cli.parsing import parse
from omnigraph_ops.views.markdown import by_cause, code, document, human_seconds, line, prose, ranges
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


@pytest.mark.parametrize("target", ["s3://lake/graphs/people.omni", "/graphs/ann@www.x.omni", "/_a_ *b* http://x"])
def test_a_command_can_be_copied_from_markdown_as_it_is(target: str) -> None:
    command = f"omnigraph-ops unfreeze {shlex.quote(target)} 01M8"
    shown = prose(f"frozen by ann@vm; `{command}` ends it, see `x`")
    assert shown == f"frozen by ann@\u2060vm; `{command}` ends it, see \\`x\\`"
    said = parse(shlex.split(shown.split("`")[1])[1:])
    assert isinstance(said, Parsed)
    assert said.options["graph"] == target


def test_an_address_in_s3_can_be_copied_and_one_of_the_web_is_no_link() -> None:
    assert prose("s3://lake/people.omni") == "s3://lake/people.omni"
    assert prose("s3://www.x/http://y") == "s3://www\u2060.x/http:\u2060//y"


@pytest.mark.parametrize("text", ["a`omnigraph-ops x", "``omnigraph-ops x``", "`omnigraph-ops x``", "`omnigraph-ops`"])
def test_what_is_no_whole_command_stays_prose(text: str) -> None:
    assert prose(text) == text.replace("`", "\\`")


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


def test_failures_that_differ_by_a_size_have_one_cause() -> None:
    """On a full disk each table found another number of bytes free."""
    full = "No space left on device: {} are free, and it may need 4.0 MiB"
    found = [
        ("optimize_table", f"node:T{n}", full.format(size)) for n, size in enumerate(("0 B", "44.0 KiB", "1.2 MiB"))
    ]
    others = "(the others name their own files, versions and sizes)"
    assert list(by_cause(found)) == [f"optimize_table node:T0, node:T1, node:T2: {full.format('0 B')} {others}"]
    assert len(list(by_cause([("", "a", "3 rows differ"), ("", "b", "4 rows differ")]))) == 2

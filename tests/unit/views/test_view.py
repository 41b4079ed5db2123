"""A view in a terminal and in a log: aligned, whole lines, nothing that moves a cursor; as CSV that nobody computes."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from omnigraph_ops.views.view import Section, View, csv_table, csv_tables, for_terminal, plain_text

EVIL = "a\n\x1b[31m[bold]b[/bold] :smile:"
LONG = "xxx " * 74 + "xxx"
VIEW = View(
    title=f"verb /g — {EVIL}",
    facts=(("Policy", EVIL), ("A longer name", LONG)),
    sections=(
        Section(title=f"Lines of {EVIL}", lines=(EVIL, LONG)),
        Section(
            title="Rows",
            header=("Table", "Empty", "What"),
            rows=(("node:Person", "", EVIL), ("n", "", "two words")),
        ),
    ),
)


@pytest.fixture
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """A real terminal with so many columns."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, request.param, 0, 0))
    with os.fdopen(theirs, "w") as stream:
        yield stream
    os.close(ours)


def test_plain_lines_are_aligned_whole_and_without_empty_columns() -> None:
    escaped = r"a\n\x1b[31m[bold]b[/bold] :smile:"
    assert plain_text(VIEW).splitlines() == [
        f"verb /g — {escaped}",
        f"  Policy         {escaped}",
        f"  A longer name  {LONG}",
        "",
        f"Lines of {escaped}",
        f"  - {escaped}",
        f"  - {LONG}",
        "",
        "Rows",
        "  Table        What",
        f"  node:Person  {escaped}",
        "  n            two words",
    ]


def test_what_is_no_terminal_gets_the_plain_lines() -> None:
    assert for_terminal(VIEW, io.StringIO()) == plain_text(VIEW)


def test_a_long_list_is_cut_where_the_view_says_so() -> None:
    rows = tuple((str(n),) for n in range(1234))
    cut = Section(title="Forks", header=("Fork",), rows=rows, most=2)
    named = Section(title="Files (1,234)", header=("Path",), rows=rows, most=0)
    assert plain_text(View(title="t", sections=(cut, named))).splitlines()[2:] == [
        *("Forks, and 1,232 more, see --json", "  Fork", "  0", "  1", "", "Files (1,234): see --json")
    ]
    whole = Section(title="Forks", header=("Fork",), rows=rows)
    assert len(plain_text(View(title="t", sections=(whole,))).splitlines()) == 4 + len(rows)


@pytest.mark.parametrize("terminal", [80], indirect=True)
def test_a_terminal_gets_styles_and_no_line_beyond_its_width(terminal: TextIO) -> None:
    found = for_terminal(VIEW, terminal)
    assert "\x1b[1mverb /g" in found
    assert "\x1b[31m" not in found and r"\x1b[31m[bold]b[/bold] :smile:" in found
    lines = re.sub(r"\x1b\[[0-9;]*m", "", found).splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("x") == LONG.count("x") * 2 + plain_text(VIEW).count("\\x"), "nothing is lost"


@pytest.mark.parametrize("terminal", [80], indirect=True)
def test_colours_are_left_out_on_request_and_on_a_terminal_without(
    terminal: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-7]")
    assert coloured.search(for_terminal(VIEW, terminal))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not coloured.search(for_terminal(VIEW, terminal))
    monkeypatch.setenv("TERM", "dumb")
    assert for_terminal(VIEW, terminal) == plain_text(VIEW)


@pytest.mark.parametrize("terminal", [30, 0], indirect=True)
def test_a_narrow_terminal_gets_a_row_below_the_other_and_an_unknown_width_plain_lines(terminal: TextIO) -> None:
    row = ("01M82SW68J5A3JWCQE7WV8F6YB", "the whole graph", "", "in an hour")
    view = View(title="t", sections=(Section(title="Holds", header=("Hold", "What", "Why", "Until"), rows=(row,)),))
    if not os.get_terminal_size(terminal.fileno()).columns:
        assert for_terminal(view, terminal) == plain_text(view)
        return
    lines = re.sub(r"\x1b\[[0-9;]*m", "", for_terminal(view, terminal)).splitlines()
    assert [line.strip() for line in lines[3:]] == [row[0], "What   the whole graph", "Until  in an hour"]


@pytest.mark.parametrize("terminal", [40, 60, 100], indirect=True)
def test_no_word_is_lost_on_a_narrow_terminal(terminal: TextIO) -> None:
    header = ("Table", "Score", "What takes points off", "Small / all fragments", "Maintained")
    row = (
        "edge:WorksAt",
        "93",
        "versions -0.18 of 5, dead_bytes -6.35 of 15",
        "1 / 1 (cutoff 4)",
        "2026-11-25 02:39:23 UTC",
    )
    view = View(title="t", sections=(Section(title="Tables", header=header, rows=(row,)),))
    found = re.sub(r"\x1b\[[0-9;]*m", "", for_terminal(view, terminal))
    for word in " ".join(row).split():
        assert word in found


@pytest.mark.parametrize("terminal", [80], indirect=True)
def test_what_is_copied_from_a_terminal_is_in_one_piece(terminal: TextIO) -> None:
    digest, path = f"sha256:{'0' * 64}", "s3://bucket/" + "graphs/" * 12
    view = View(
        title=f"cleanup plan {path}",
        facts=(("May be applied until", "tomorrow"), ("Digest", digest)),
        sections=(
            Section(title="Next", lines=(path,)),
            Section(title="Files", header=("Path", "What"), rows=((path, "data"),)),
        ),
    )
    found = for_terminal(view, terminal)
    assert (found.count(digest), found.count(path)) == (1, 3)


@pytest.mark.parametrize("terminal", [80], indirect=True)
def test_a_closed_stream_gets_the_plain_lines(terminal: TextIO) -> None:
    terminal.close()
    assert for_terminal(VIEW, terminal) == plain_text(VIEW)


def test_formulas_and_separators_are_only_text() -> None:
    written = csv_table(("a", "b"), [("=cmd|x", 1.5), ('x,"y"\nz', None)])
    assert list(csv.reader(io.StringIO(written))) == [["a", "b"], ["'=cmd|x", "1.5"], ['x,"y"\nz', ""]]
    assert not written.endswith("\n")


def test_a_view_is_its_tables_with_all_their_rows() -> None:
    rows = tuple((str(n),) for n in range(3))
    view = View(
        title="t",
        facts=(("Runs", "3"),),
        sections=(
            Section(title="Said", lines=("not in a table",)),
            Section(title="One", header=("n",), rows=rows, most=1),
            Section(title="Two", header=("x", "y"), rows=()),
        ),
    )
    assert csv_tables(view) == "n\n0\n1\n2\n\nx,y"

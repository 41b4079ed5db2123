"""A view for a terminal, and as plain lines for a log or a pipe; control characters of names are shown, never sent."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from omnigraph_ops.views.readable import safe
from omnigraph_ops.views.view import Section, View, first

if TYPE_CHECKING:
    from rich.console import RenderableType

_ELSEWHERE = "see --json"


def shown(view: View, stream: TextIO | None = None) -> str:
    """The view as the stream takes it: fitted to a terminal, plain lines elsewhere. Reads the terminal.

    Args:
        stream: where it goes; default stdout.
    """
    width = _width(sys.stdout if stream is None else stream)
    return _fitted(view, width) if width else text(view)


def text(view: View) -> str:
    """The view in aligned columns, a line per fact and row, however long. Pure."""
    lines = [safe(view.title)]
    width = max((len(name) for name, _ in view.facts), default=0)
    lines += [f"  {name:<{width}}  {safe(value)}" for name, value in view.facts]
    for section in map(_short, view.sections):
        lines += ["", section.title, *(f"  - {line}" for line in section.lines), *_aligned(section)]
    return "\n".join(line.rstrip() for line in lines)


def _short(section: Section) -> Section:
    """What is shown of a section: its first rows, without empty columns, and how many more there are. Pure."""
    part, hidden = first(section, section.most)
    used = [number for number, column in enumerate(zip(*part.rows, strict=True)) if any(column)]
    more = f": {_ELSEWHERE}" if section.most == 0 else f", and {hidden:,} more, {_ELSEWHERE}" if hidden else ""
    return Section(
        title=safe(section.title) + more,
        lines=tuple(map(safe, part.lines)),
        header=tuple(part.header[number] for number in used),
        rows=tuple(tuple(safe(row[number]) for number in used) for row in part.rows),
    )


def _aligned(table: Section) -> Iterator[str]:
    rows = [table.header, *table.rows] if table.rows else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))


def _width(stream: TextIO) -> int:
    """The columns of a terminal, 0 for everything else and where they are not known. Reads the terminal."""
    try:
        capable = stream.isatty() and os.environ.get("TERM") != "dumb"
        return os.get_terminal_size(stream.fileno()).columns if capable else 0
    except (OSError, ValueError):  # a closed stream, or one without a file
        return 0


def _fitted(view: View, width: int) -> str:
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    # NO_COLOR and TERM are its business. Nothing in a cell is markup, a number to highlight or an emoji.
    console = Console(file=out, force_terminal=True, width=width, highlight=False, markup=False, emoji=False)
    console.print(Text(safe(view.title), style="bold"))
    if view.facts:
        console.print(_pairs([(name, safe(value)) for name, value in view.facts]))
    for section in map(_short, view.sections):
        console.print()
        console.print(Text(section.title, style="bold cyan"))
        if section.lines:
            console.print(_pairs([("-", line) for line in section.lines]))
        for part in _table(section, width) if section.rows else ():
            console.print(part)
    return out.getvalue().removesuffix("\n")


def _pairs(rows: Sequence[tuple[str, str]]) -> RenderableType:
    return _grid(rows, widths=[max(len(name) for name, _ in rows), 1], styles=("dim", ""))


def _table(table: Section, width: int) -> Iterator[RenderableType]:
    """The rows as columns, or where their longest words do not fit beside each other, one below the other. Pure."""
    from rich.text import Text

    words = [
        [word for cell in column for word in cell.split()] for column in zip(table.header, *table.rows, strict=True)
    ]
    widths = [max(map(len, found), default=1) for found in words]
    if sum(widths) + 2 * len(widths) <= width:
        yield _grid(table.rows, table.header, widths=widths)
        return
    for row in table.rows:
        yield Text(f"  {row[0]}", style="bold")
        if rest := [pair for pair in zip(table.header[1:], row[1:], strict=True) if pair[1]]:
            yield _pairs([(f"  {name}", value) for name, value in rest])


def _grid(
    rows: Iterable[Sequence[str]],
    header: Sequence[str] = (),
    *,
    widths: Sequence[int],
    styles: Sequence[str] = (),
) -> RenderableType:
    """Cells in columns without borders; what is wider than its column goes on below. Pure."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, show_header=bool(header), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for number, least in enumerate(widths):
        title = Text(header[number]) if header else ""
        grid.add_column(title, overflow="fold", min_width=least, style=styles[number] if styles else "")
    for row in rows:
        grid.add_row(*map(Text, row))
    return Padding(grid, (0, 0, 0, 2))

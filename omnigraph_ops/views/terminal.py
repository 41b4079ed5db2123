"""A view for a terminal, and as plain lines for a log or a pipe; control characters of names are shown, never sent."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from omnigraph_ops.views.view import Section, View, first, safe

if TYPE_CHECKING:
    from rich.console import Console

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
    console.print(Text(safe(view.title), style="bold"), soft_wrap=True)
    _print_pairs(console, [(name, safe(value)) for name, value in view.facts])
    for section in map(_short, view.sections):
        console.print()
        console.print(Text(section.title, style="bold cyan"), soft_wrap=True)
        _print_pairs(console, [("-", line) for line in section.lines])
        _print_table(console, section)
    return out.getvalue().removesuffix("\n")


def _print_table(console: Console, table: Section) -> None:
    """Print the rows as columns, or where their longest words do not fit beside each other, each as pairs."""
    from rich.text import Text

    widths = [max(map(_longest_word, column)) for column in zip(table.header, *table.rows, strict=True)]
    if sum(widths) + 2 * len(widths) <= console.width:
        _print_grid(console, table.rows, table.header, widths=widths)
        return
    for row in table.rows:
        console.print(Text(f"  {row[0]}", style="bold"), soft_wrap=True)
        rest = zip(table.header[1:], row[1:], strict=True)
        _print_pairs(console, [(f"  {name}", value) for name, value in rest if value])


def _print_pairs(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values beside each other; a digest or an address that does not fit is left to the terminal.

    Broken into lines it could not be copied.
    """
    from rich.text import Text

    width = max((len(name) for name, _ in rows), default=0)
    if all(_longest_word(value) + width + 4 <= console.width for _, value in rows):
        _print_grid(console, rows, widths=(width, 1), styles=("dim", ""))
        return
    for name, value in rows:
        console.print(Text.assemble((f"  {name:<{width}}  ", "dim"), value), soft_wrap=True)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=1)


def _print_grid(
    console: Console,
    rows: Sequence[Sequence[str]],
    header: Sequence[str] = (),
    *,
    widths: Sequence[int],
    styles: Sequence[str] = (),
) -> None:
    """Print cells in columns without borders, none narrower than its width; longer ones go on below."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    grid = Table(box=None, show_header=bool(header), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    wanted = [max(map(len, column)) for column in zip(*rows, *([header] if header else ()), strict=True)]
    # Of widths that are only bounded from below Rich makes lines that it then cuts.
    for number, width in enumerate(_shared_out(widths, wanted, console.width - 2 - 2 * len(widths))):
        title, style = header[number] if header else "", styles[number] if styles else ""
        grid.add_column(Text(title), overflow="fold", width=width, style=style)
    for row in rows:
        grid.add_row(*map(Text, row))
    console.print(Padding(grid, (0, 0, 0, 2)))


def _shared_out(least: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Widths of columns: what each wants, or in less room what fits beside the least of the others. Pure."""
    widths = list(least)
    for _ in range(room - sum(widths)):
        number = max(range(len(widths)), key=lambda n: wanted[n] - widths[n])
        if wanted[number] <= widths[number]:
            break
        widths[number] += 1
    return widths

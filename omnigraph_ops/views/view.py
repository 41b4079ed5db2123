"""What a person is shown, as titles, facts and tables, with values of rows in them; on a terminal, as text, CSV, HTML.

Control characters of names are shown, never sent to a terminal.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

MAX_TEXT = 80
MAX_ITEMS = 4
MAX_HEX = 8
_BLOB_KEYS = frozenset({"position", "size"})
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_TEMPLATE = "page.html.j2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading over lines of text, or over a table."""

    title: str
    lines: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    most: int | None = None
    """How many lines or rows a terminal and an approval show at most: 0 only its title, None as many as they can."""
    asked: tuple[str, ...] = ()
    """What an approval shows in place of the rows, where a sentence for each cause tells more; empty: the rows."""

    @classmethod
    def table(
        cls, title: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, most: int | None = None
    ) -> Section:
        """The section with these rows. Pure."""
        return cls(title=title, header=tuple(header), rows=tuple(map(tuple, rows)), most=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One plan, report or list."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()

    @classmethod
    def of(cls, title: str, *sections: Section, facts: Iterable[tuple[str, str]] = ()) -> View:
        """The view with those of the sections that have anything in them. Pure."""
        return cls(title=title, facts=tuple(facts), sections=tuple(s for s in sections if s.lines or s.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a person is asked about a plan, beside the view of it."""

    subject: str
    """The question in one line."""
    intro: str
    """What the plan does, in one or two sentences."""
    on_approve: str
    """What happens on Approve."""
    on_reject: str
    """What happens on Reject."""
    notes: tuple[str, ...] = ()
    """What else a person should know before the answer, a sentence or two each."""


def first(section: Section, most: int | None) -> tuple[Section, int]:
    """The section with its first lines and rows, and how many it has beyond them. Pure."""
    hidden = 0 if most is None else max(len(section.lines), len(section.rows)) - most
    if hidden <= 0:
        return section, 0
    return replace(section, lines=section.lines[:most], rows=section.rows[:most]), hidden


def readable(value: object) -> str:
    """One value for a person: quoted text, shortened vectors and blobs, `null`. Pure."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{short(value)}"'
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value))
    if isinstance(value, float):
        return format(value, ".6g")
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, Sequence):
        return _items(value)
    return short(str(value))


def short(text: str, limit: int = MAX_TEXT) -> str:
    """Text without control characters, cut to `limit` with its length named. Pure."""
    if len(text) <= limit:
        return safe(text)
    return f"{safe(text[:limit])}… ({len(text):,} characters)"


def safe(text: str) -> str:
    """Text in which everything that is not printable is escaped, so that it cannot move a cursor. Pure."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_blob_description(value: object) -> bool:
    """Whether Lance described a blob instead of reading it; positions differ between equal blobs. Pure."""
    return isinstance(value, Mapping) and value.keys() >= _BLOB_KEYS


def _bytes(value: bytes) -> str:
    more = "…" if len(value) > MAX_HEX else ""
    return f"{len(value):,} bytes 0x{value[:MAX_HEX].hex()}{more}"


def _mapping(value: Mapping[object, object]) -> str:
    if is_blob_description(value):
        return f"blob of {value['size']:,} bytes"
    parts = [f"{short(str(k))}: {readable(v)}" for k, v in list(value.items())[:MAX_ITEMS]]
    return "{" + ", ".join(parts) + (", …" if len(value) > MAX_ITEMS else "") + "}"


def _items(value: Sequence[object]) -> str:
    parts = ", ".join(readable(item) for item in value[:MAX_ITEMS])
    if len(value) <= MAX_ITEMS:
        return f"[{parts}]"
    # The rest only as a mark, by which two long vectors can be told apart.
    mark = hashlib.sha256(repr(value).encode("utf-8", "replace")).hexdigest()[:6]
    return f"[{parts}, … {len(value):,} values #{mark}]"


def csv_tables(view: View) -> str:
    """The tables of a view, each with its header, an empty line between two of them. Pure."""
    return "\n\n".join(csv_table(section.header, section.rows) for section in view.sections if section.header)


def csv_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """One table with its header, without a newline at the end. Pure."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue().removesuffix("\n")


def _cell(value: object) -> object:
    """A text that a spreadsheet would compute is shown instead. Pure."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def html_page(view: View) -> str:
    """The page: no script, nothing from elsewhere, light or dark as the reader has it. Reads the template."""
    from jinja2 import Environment, StrictUndefined

    source = resources.files("omnigraph_ops.views").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    # Names of tables and branches are whatever somebody wrote into the graph: everything is escaped.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source).render(view=view)


_ELSEWHERE = "see --json"


def for_terminal(view: View, stream: TextIO | None = None) -> str:
    """The view as the stream takes it: fitted to a terminal, plain lines elsewhere. Reads the terminal.

    Args:
        stream: where it goes; default stdout.
    """
    width = _width(sys.stdout if stream is None else stream)
    return _fitted(view, width) if width else plain_text(view)


def plain_text(view: View, *, elsewhere: str = _ELSEWHERE) -> str:
    """The view in aligned columns, a line per fact and row, however long. Pure.

    Args:
        elsewhere: where the rows are that a cut section does not show.
    """
    lines = [safe(view.title)]
    width = max((len(name) for name, _ in view.facts), default=0)
    lines += [f"  {name:<{width}}  {safe(value)}" for name, value in view.facts]
    for section in (_short(section, elsewhere) for section in view.sections):
        lines += ["", section.title, *(f"  - {line}" for line in section.lines), *_aligned(section)]
    return "\n".join(line.rstrip() for line in lines)


def _short(section: Section, elsewhere: str = _ELSEWHERE) -> Section:
    """What is shown of a section: its first rows, without empty columns, and how many more there are. Pure."""
    part, hidden = first(section, section.most)
    used = [number for number, column in enumerate(zip(*part.rows, strict=True)) if any(column)]
    more = f": {elsewhere}" if section.most == 0 else f", and {hidden:,} more, {elsewhere}" if hidden else ""
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

"""What a person is shown, as titles, facts and tables, with values of rows in them; the same as CSV and HTML."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources

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


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One plan, report or list."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()


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


def filled(sections: Iterable[Section]) -> tuple[Section, ...]:
    """The sections that have anything in them. Pure."""
    return tuple(s for s in sections if s.lines or s.rows)


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

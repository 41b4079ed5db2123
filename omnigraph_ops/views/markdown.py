"""Markdown of views and of their parts; whatever comes from a graph is only text here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from omnigraph_ops.views.view import Section, View

MOST_RANGES = 50
"""A table of which every other version stays has as many ranges as versions."""

# An underscore inside a word means nothing to Markdown, and tokens are full of them.
_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_LINKS = re.compile(r"(:(?=//)|@|\bwww)", re.IGNORECASE)
_BARE_PIPE = re.compile(r"(?<!\\)((?:\\\\)*)\|")
_DIGEST_LINE = re.compile(r"`(sha256:[0-9a-f]{64})`\Z")
_WORD_JOINER = "\u2060"


def document(view: View) -> str:
    """The view as GitHub-flavoured Markdown. Pure."""
    lines = [f"# {prose(view.title)}", "", *facts(view.facts)]
    for section in view.sections:
        lines += ["", f"## {prose(section.title)}", "", *contents(section)]
    return "\n".join(lines)


def facts(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Facts as a list. Pure."""
    return [f"- {name}: {prose(value)}" for name, value in pairs]


def contents(section: Section) -> list[str]:
    """What a section has below its title. Pure."""
    rows = [[prose(cell) for cell in row] for row in section.rows]
    return [f"- {prose(line)}" for line in section.lines] + (table(section.header, rows) if rows else [])


def digest_line(digest: str) -> str:
    """The last line of a body: which plan it is about. Pure."""
    return f"Digest of what you see: `{digest}`"


def digest_shown(body: str | None) -> str:
    """The plan that a body is about, told by its last line; empty when it has none. Pure."""
    found = _DIGEST_LINE.search(body or "")
    return found[1] if found else ""


def ranges(versions: Iterable[int]) -> str:
    """Version numbers as ranges, `1-4, 7`; of very many the first ones, how many more, and the last. Pure."""
    spans: list[tuple[int, int]] = []
    for version in sorted(versions):
        if spans and version == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], version)
        else:
            spans.append((version, version))
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in spans[:MOST_RANGES]]
    if len(spans) > MOST_RANGES:
        left = spans[MOST_RANGES:]
        shown.append(f"and {count(sum(b - a + 1 for a, b in left), 'more version')} up to {left[-1][1]}")
    return ", ".join(shown)


def some(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first of these texts, and how many more there are. Pure."""
    more = [f"and {len(texts) - most:,} more"] if len(texts) > most else []
    return separator.join([*texts[:most], *more])


def human_seconds(seconds: int) -> str:
    """A duration in its largest whole unit, `7 days`. Pure."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return count(seconds // size, unit)
    return count(seconds, "second")


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [line(header), line(["---"] * len(header))]
    return lines + [line(row) for row in rows]


def line(cells: Sequence[str]) -> str:
    """One row of a table. Pure."""
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    # After an even number of backslashes a pipe opens another cell; an odd one escapes it already.
    return _BARE_PIPE.sub(r"\1\\|", " ".join(text.splitlines()))


def code(text: str) -> str:
    """Text from a graph as a code span, whatever it holds: nothing in it is Markdown, HTML or a link. Pure."""
    flat = " ".join(text.splitlines())
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    pad = " " if len(fence) > 1 or flat != flat.strip() or not flat else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def prose(text: str) -> str:
    """A sentence with names from a graph in it, escaped so that it only reads as text. Pure."""
    escaped = _SPECIAL.sub(r"\\\1", " ".join(text.splitlines()))
    return _LINKS.sub(rf"\1{_WORD_JOINER}", escaped)

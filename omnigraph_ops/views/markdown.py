"""Markdown of views, of their parts, and of questions; whatever comes from a graph is only text here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from omnigraph_ops.models.outcomes import Sealable
from omnigraph_ops.quantities import count, human_bytes, moment
from omnigraph_ops.views.view import Question, Section, View, first

MOST_RANGES = 50
"""A table of which every other version stays has as many ranges as versions."""

# An underscore inside a word means nothing to Markdown, and tokens are full of them.
_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
# Renderers make links of web addresses, mail addresses and mentions; none does of s3://.
_LINKS = re.compile(r"((?<!\bs3):(?=//)|@|\bwww)", re.IGNORECASE)
_COMMAND = re.compile(r"(?<!`)`(omnigraph-ops [^`]+)`(?!`)")
_BARE_PIPE = re.compile(r"(?<!\\)((?:\\\\)*)\|")
_DIGEST_LINE = re.compile(r"`(sha256:[0-9a-f]{64})`\Z")
_WORD_JOINER = "\u2060"
PAGE_ROWS = 1000
"""Files, or rows of any other list, that a page shows; the kept plan has all of them."""


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


_MOST_NAMED = 5


def some(texts: Sequence[str], most: int = _MOST_NAMED, separator: str = ", ") -> str:
    """The first of these texts, and how many more there are. Pure."""
    more = [f"and {len(texts) - most:,} more"] if len(texts) > most else []
    return separator.join([*texts[:most], *more])


_OF_ONE = re.compile(r"\S*/\S*|(?<=version )\d+|(?<=HEAD )\d+|\d[\d.,]* (?:B|[KMGTP]iB)\b")
"""What differs between the messages of one cause: files, versions and sizes."""


def cause_of(message: str, name: str = "") -> str:
    """A message without what is only its own: the name of what failed, files, versions and sizes. Pure."""
    return _OF_ONE.sub("", re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "", message) if name else message)


FailureRow = tuple[str, str, str]
"""The task, where that is told, the name of what failed, and why."""


def causes(found: Iterable[FailureRow]) -> list[list[FailureRow]]:
    """What failed, together where it has one cause: only the own name, file, version or size differs. Pure."""
    failed: dict[tuple[str, str], list[FailureRow]] = {}
    for task, name, message in found:
        failed.setdefault((task, cause_of(message, name)), []).append((task, name, message))
    return list(failed.values())


def by_cause(found: Iterable[FailureRow]) -> Iterator[str]:
    """One sentence for all that has the same cause: the task, the first names, and why, as the first tells it. Pure."""
    for those in causes(found):
        task, _, message = those[0]
        names = tuple(dict.fromkeys(name for _, name, _ in those))
        subject = " ".join(filter(None, (task, some(names))))
        differ = any(said != message for _, _, said in those)
        others = " (the others name their own files, versions and sizes)" if differ else ""
        yield f"{subject}: {message}{others}" if subject else f"{message}{others}"


def human_seconds(seconds: int) -> str:
    """A duration in its largest whole unit, `7 days`. Pure."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return count(seconds // size, unit)
    return count(seconds, "second")


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
    """A sentence with names from a graph in it, escaped so that it only reads as text. Pure.

    Its commands are code spans, which nothing links either, so that they can be copied as they are.
    """
    parts = _COMMAND.split(" ".join(text.splitlines()))  # every other one is a command
    return "".join(code(part) if i % 2 else _escaped(part) for i, part in enumerate(parts))


def _escaped(text: str) -> str:
    return _LINKS.sub(rf"\1{_WORD_JOINER}", _SPECIAL.sub(r"\\\1", text))


def bounded(view: View, kept: str) -> View:
    """The view with the first of very many lines, rows and characters, and where the whole plan is. Pure."""
    sections = tuple(_first(section) for section in view.sections)
    if sections == view.sections:
        return view
    return replace(view, facts=(*view.facts, ("The whole plan", kept)), sections=sections)


def _first(section: Section) -> Section:
    part, hidden = first(section, PAGE_ROWS)
    return replace(
        part,
        title=section.title + (f", the first {PAGE_ROWS:,} of {PAGE_ROWS + hidden:,}" if hidden else ""),
        lines=tuple(map(cut, part.lines)),
        rows=tuple(tuple(map(cut, row)) for row in part.rows),
    )


def cut(text: str, longest: int = 2000) -> str:
    """The first characters of a very long text. Pure."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def sealed_facts(plan: Sealable) -> tuple[tuple[str, str], ...]:
    """When a plan was made, until when it may be applied, and its digest. Pure."""
    return (
        ("Planned", moment(plan.planned_at_us)),
        ("May be applied until", moment(plan.expires_at_us)),
        ("Digest", plan.digest),
    )


def files_section(rows: Iterable[tuple[str, str, str]]) -> Section:
    """Every file that a plan removes: path, kind, size. Pure."""
    found = tuple(rows)
    number = "" if len(found) > PAGE_ROWS else f" ({len(found):,})"
    return Section.table(f"Every file that goes{number}", ("Path", "What", "Size"), found, most=0)


def left_tables(title: str, rows: Iterable[tuple[str, str]]) -> Section:
    """Tables that a plan leaves, and why; an approval shows a sentence for each cause. Pure."""
    why = tuple(rows)
    return Section(title=title, header=("Table", "Why"), rows=why, asked=tuple(by_cause(("", *one) for one in why)))


def counted(number: int | None) -> str:
    """A number for a cell, `?` for what is not known. Pure."""
    return "?" if number is None else f"{number:,}"


def size_of(files: Iterable[Any]) -> str:
    """The size of some files together. Pure."""
    return human_bytes(sum(f.size for f in files))


MOST_ROWS = 30
"""Rows or lines of a section."""
MOST_CHARACTERS = 12_000
"""Of all sections together: about as much as a person reads before an answer."""
_LONGEST_CELL = 600


def body(
    view: View,
    question: Question,
    *,
    digest: str,
    answer_by: str | None = None,
    full_plan: str | None = None,
    note: str | None = None,
) -> str:
    """The body of an approval; its last line names the digest. Pure.

    Args:
        view: of the plan.
        answer_by: until when an answer counts, for a person.
        full_plan: Markdown that leads to the whole plan, for what is left out of a long one.
        note: why an approval given in advance does not cover this plan.
    """
    lines = [
        prose(question.intro),
        *(["", f"Not covered by what was approved in advance: {note}."] if note else []),
        "",
        *facts((name, cut(value, _LONGEST_CELL)) for name, value in view.facts if value != digest),
        *_sections(view.sections, full_plan),
        *(line for sentence in question.notes for line in ("", prose(sentence))),
        "",
        "Your answer:",
        "",
        f"- **Approve**: {prose(question.on_approve)}",
        f"- **Reject**: {prose(question.on_reject)}",
        f"- **No answer**{f' by {answer_by}' if answer_by else ' in time'}: counts as Reject.",
        "",
        *([f"The whole plan is in {full_plan}.", ""] if full_plan else []),
        f"Digest of what you see: `{digest}`",
    ]
    return "\n".join(lines)


def _sections(sections: Sequence[Section], full_plan: str | None) -> Iterator[str]:
    """The sections in their order, each as far as there is room. Pure."""
    left, skipped = MOST_CHARACTERS, 0
    for section in sections:
        if section.most == 0:
            continue
        part, hidden = _fitting(section, left)
        if not (part.lines or part.rows):
            skipped += 1
            continue
        found = ["", f"**{prose(part.title)}**", "", *_contents(part)]
        found += ["", f"And {hidden:,} more{f', listed in {full_plan}' if full_plan else ''}."] if hidden else []
        left -= _length(found)
        yield from found
    if skipped:
        where = f"; they are in {full_plan}" if full_plan else ""
        yield from ("", f"{count(skipped, 'more list')} {'is' if skipped == 1 else 'are'} left out here{where}.")


def _fitting(section: Section, room: int) -> tuple[Section, int]:
    """As many of the first lines and rows as fit, and how many do not. Pure."""
    if section.asked:
        section = replace(section, lines=section.asked, rows=())
    part, hidden = first(section, MOST_ROWS if section.most is None else min(section.most, MOST_ROWS))
    part = replace(part, rows=tuple(tuple(cut(cell, _LONGEST_CELL) for cell in row) for row in part.rows))
    part = replace(part, lines=tuple(cut(line, _LONGEST_CELL) for line in part.lines))
    while (part.lines or part.rows) and _length(_contents(part)) + len(part.title) > room:
        part, more = first(part, max(len(part.lines), len(part.rows)) - 1)
        hidden += more
    return part, hidden


def _contents(section: Section) -> list[str]:
    """As Markdown has it; the first cell of a row is a name or an address, to be copied as it is. Pure."""
    if not section.rows:
        return contents(section)
    return table(section.header, ([code(row[0]), *map(prose, row[1:])] for row in section.rows))


def _length(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)

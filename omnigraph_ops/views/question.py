"""What a person reads of a sealed plan before an answer: a bounded part of its view, and what an answer does. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from omnigraph_ops.quantities import human_bytes, moment
from omnigraph_ops.views.markdown import code, contents, count, digest_line, facts, prose, table
from omnigraph_ops.views.view import Question, Section, View, first

PAGE_ROWS = 1000
"""Files, or rows of any other list, that a page shows; the kept plan has all of them."""


class SealedPlan(Protocol):
    """What the plans of all stages have."""

    @property
    def planned_at_us(self) -> int: ...
    @property
    def expires_at_us(self) -> int: ...
    @property
    def digest(self) -> str: ...


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


def sealed_facts(plan: SealedPlan) -> tuple[tuple[str, str], ...]:
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
    return Section(title=f"Every file that goes{number}", header=("Path", "What", "Size"), rows=found, most=0)


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
        digest_line(digest),
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

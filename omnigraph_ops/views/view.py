"""What a person is shown, as titles, facts and tables: stages make views, renderers only know these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


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

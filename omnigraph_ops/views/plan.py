"""What the views of all sealed plans have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

from omnigraph_ops.quantities import human_bytes, moment
from omnigraph_ops.views.view import Section, View, first

MOST_ROWS = 1000
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
    part, hidden = first(section, MOST_ROWS)
    return replace(
        part,
        title=section.title + (f", the first {MOST_ROWS:,} of {MOST_ROWS + hidden:,}" if hidden else ""),
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
    number = "" if len(found) > MOST_ROWS else f" ({len(found):,})"
    return Section(title=f"Every file that goes{number}", header=("Path", "What", "Size"), rows=found, most=0)


def counted(number: int | None) -> str:
    """A number for a cell, `?` for what is not known. Pure."""
    return "?" if number is None else f"{number:,}"


def size_of(files: Iterable[Any]) -> str:
    """The size of some files together. Pure."""
    return human_bytes(sum(f.size for f in files))

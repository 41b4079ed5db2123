"""A view of the history for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph_ops.views.readable import safe
from omnigraph_ops.views.view import Section, View


def text(view: View) -> str:
    """The view in aligned columns; control characters of a name are shown, never sent. Pure."""
    lines = [view.title]
    width = max((len(name) for name, _ in view.facts), default=0)
    lines += [f"  {name:<{width}}  {value}" for name, value in view.facts]
    for section in view.sections:
        lines += ["", section.title, *(f"  - {line}" for line in section.lines), *_columns(section)]
    return "\n".join(safe(line) for line in lines)


def _columns(section: Section) -> Iterator[str]:
    rows: list[Sequence[str]] = [section.header, *section.rows] if section.rows else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()

"""A view of the history as Markdown. Pure."""

from __future__ import annotations

from omnigraph_ops.views.markdown import prose, table
from omnigraph_ops.views.view import Section, View


def markdown(view: View) -> str:
    """The view as GitHub-flavoured Markdown; whatever a graph names itself is only text in it. Pure."""
    lines = [f"# {prose(view.title)}", ""]
    lines += [f"- {name}: {prose(value)}" for name, value in view.facts]
    for section in view.sections:
        lines += ["", f"## {section.title}", "", *_body(section)]
    return "\n".join(lines)


def _body(section: Section) -> list[str]:
    rows = [[prose(cell) for cell in row] for row in section.rows]
    return [f"- {prose(line)}" for line in section.lines] + (table(section.header, rows) if rows else [])

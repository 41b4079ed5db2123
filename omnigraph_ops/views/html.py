"""A view as one self-contained page of HTML."""

from __future__ import annotations

from importlib import resources

from omnigraph_ops.views.view import View

_TEMPLATE = "page.html.j2"


def page(view: View) -> str:
    """The page: no script, nothing from elsewhere, light or dark as the reader has it. Reads the template."""
    from jinja2 import Environment, StrictUndefined

    source = resources.files("omnigraph_ops.views").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    # Names of tables and branches are whatever somebody wrote into the graph: everything is escaped.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source).render(view=view)

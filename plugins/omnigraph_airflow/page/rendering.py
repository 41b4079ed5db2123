"""Templates: everything that comes from a graph, from Airflow or from an address is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from omnigraph_airflow.addresses import PAGES
from omnigraph_airflow.page import charts, texts
from omnigraph_ops.outcomes.history.views import what, words
from omnigraph_ops.views.markdown import ranges


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("omnigraph_airflow.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A name is one segment of a path, whatever is in it.
    found.filters.update(segment=lambda text: quote(str(text), safe=""), words=words, what=what, ranges=ranges)
    found.globals.update(texts=texts, width=charts.WIDTH, height=charts.HEIGHT)
    return found


def render(template: str, *, airflow: str, **values: Any) -> str:
    """A page; `airflow` is the path that Airflow is served under. Reads the template."""
    return (
        _environment()
        .get_template(template)
        .render(airflow=airflow, pages=airflow + PAGES, now=datetime.now(UTC), **values)
    )

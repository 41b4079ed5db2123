"""Templates and small charts: everything that comes from a graph, from Airflow or from an address is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from omnigraph_airflow import PAGES
from omnigraph_airflow.page import texts
from omnigraph_ops.outcomes.history_views import what, words
from omnigraph_ops.views.markdown import ranges

WIDTH, HEIGHT = 240.0, 64.0
_EDGE = 5.0
"""Room for a point at the border."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One run's figure."""

    when: str
    number: float | None
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run in a chart: a dot, or a cross when it failed; a bar reaches from `y` to the floor."""

    x: float
    y: float
    text: str
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A line or bars over runs, oldest first."""

    title: str
    latest: str
    change: str
    """Against the oldest shown; empty when that is the only one."""
    top: str
    bottom: str
    first: str
    last: str
    summary: str
    """The whole chart in a sentence, for those who do not see it."""
    lines: tuple[str, ...]
    """Points of each unbroken stretch; empty in a bar chart."""
    dots: tuple[Point, ...]
    """Runs without a neighbour that knows the figure: a line of one point draws nothing. Empty in a bar chart."""
    areas: tuple[str, ...]
    points: tuple[Point, ...]
    bar_width: float = 0.0


def chart(title: str, values: Sequence[Value], text: Callable[[float], str], *, bars: bool = False) -> Chart | None:
    """A chart of the values, oldest first; None where no run knows the figure. Pure."""
    known = [v.number for v in values if v.number is not None]
    if not known:
        return None
    low, high = (0.0, max(known)) if bars else (min(known), max(known))
    step = 1 / (len(values) - 1) if len(values) > 1 else 0.0
    points = [_point(v, i * step if step else 0.5, (low, high), text) for i, v in enumerate(values)]
    stretches = _stretches(points)
    return Chart(
        title=title,
        latest=text(known[-1]),
        change=_change(known, text),
        top=text(high),
        bottom=text(low),
        first=values[0].when,
        last=values[-1].when,
        summary=_summary(title, known, text),
        lines=() if bars else tuple(" ".join(f"{m.x:.1f},{m.y:.1f}" for m in s) for s in stretches if len(s) > 1),
        dots=() if bars else tuple(s[0] for s in stretches if len(s) == 1),
        areas=() if bars else tuple(_area(s) for s in stretches if len(s) > 1),
        points=tuple(m for m in points if m is not None),
        bar_width=max(1.5, min(14.0, 0.66 * (WIDTH - 2 * _EDGE) / len(values))) if bars else 0.0,
    )


def sparkline(values: Sequence[float | None]) -> Chart | None:
    """Only the shape, oldest first; None with fewer than two known values. Pure."""
    if sum(v is not None for v in values) < 2:
        return None
    return chart("trend", [Value(when="", number=v) for v in values], lambda v: f"{v:g}")


def _point(value: Value, across: float, bounds: tuple[float, float], text: Callable[[float], str]) -> Point | None:
    if value.number is None:
        return None
    low, high = bounds
    # A flat line lies in the middle: it is neither low nor high.
    up = (value.number - low) / (high - low) if high > low else (0.5 if low or high else 0.0)
    return Point(
        x=_EDGE + across * (WIDTH - 2 * _EDGE),
        y=HEIGHT - _EDGE - up * (HEIGHT - 2 * _EDGE),
        text=f"{value.when}: {text(value.number)}{', failed' if value.failed else ''}",
        failed=value.failed,
    )


def _stretches(points: Sequence[Point | None]) -> list[list[Point]]:
    """Neighbours that know the figure; a run that does not breaks the line. Pure."""
    found: list[list[Point]] = [[]]
    for point in points:
        if point is not None:
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [stretch for stretch in found if stretch]


def _area(stretch: Sequence[Point]) -> str:
    inner = " ".join(f"{m.x:.1f},{m.y:.1f}" for m in stretch)
    return f"{stretch[0].x:.1f},{HEIGHT:.1f} {inner} {stretch[-1].x:.1f},{HEIGHT:.1f}"


def _change(known: Sequence[float], text: Callable[[float], str]) -> str:
    if len(known) < 2:
        return ""
    if text(known[0]) == text(known[-1]):
        return "as at first"
    return f"{'▲' if known[-1] > known[0] else '▼'} from {text(known[0])}"


def _summary(title: str, known: Sequence[float], text: Callable[[float], str]) -> str:
    if len(known) == 1:
        return f"{title}: {text(known[0])} in one run"
    return (
        f"{title} over {len(known)} runs: from {text(known[0])} to {text(known[-1])}, "
        f"lowest {text(min(known))}, highest {text(max(known))}"
    )


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
    found.globals.update(texts=texts, width=WIDTH, height=HEIGHT)
    return found


def render(template: str, *, airflow: str, **values: Any) -> str:
    """A page; `airflow` is the path that Airflow is served under. Reads the template."""
    return (
        _environment()
        .get_template(template)
        .render(airflow=airflow, pages=airflow + PAGES, now=datetime.now(UTC), **values)
    )

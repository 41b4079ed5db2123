"""What a page reads of a graph. Each function is one look: it opens the graph itself and may take seconds."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.hooks.omnigraph import OmnigraphHook
from omnigraph_airflow.hooks.store_variables import SECRETS
from omnigraph_ops.errors import OpsError
from omnigraph_ops.outcomes.history.redacted import redacted
from omnigraph_ops.stages.registry import planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph_airflow.page.listing import ListedGraph
    from omnigraph_ops.coordination.graph_view import GraphView
    from omnigraph_ops.coordination.holds import Hold
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.graph.state import TableEntry
    from omnigraph_ops.models import HealthReport, ProtectedVersion, TableHealth
    from omnigraph_ops.models.history import RunRecord, TableTrendPoint

GLANCED = 30
"""Runs that the list of graphs shows as a trend."""
CHARTED = 60
"""Runs that the charts and the list of reports of a graph show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One table now: its health, its drift, and what cleanup must leave."""

    health: TableHealth
    published: int | None = None
    """None: it could not be looked at."""
    head: int | None = None
    """The newest version."""
    protected: tuple[ProtectedVersion, ...] = ()
    problem: str | None = None
    """Why it is not known what is protected."""

    @property
    def drifted(self) -> bool:
        return self.published is not None and self.head is not None and self.head != self.published


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphState:
    """A graph now, worst table first."""

    report: HealthReport
    tables: tuple[TableState, ...]
    """Those that were asked for; the report has all."""
    unreadable_branches: tuple[tuple[str, str], ...] = ()


def sentence(listed: ListedGraph, error: BaseException) -> str:
    """Why a read failed, for a person, without what must not be shown; a surprise is logged. Reads."""
    if isinstance(error, OpsError):
        return redacted(str(error), _secrets(listed))
    if isinstance(error, FileNotFoundError):
        return "the file is gone"
    logging.getLogger(__name__).error("The page of %s could not be made", listed.name, exc_info=error)
    return f"{type(error).__name__}; the log of the API server says more"


def _secrets(listed: ListedGraph) -> tuple[str, ...]:
    """The values of the graph's connection that must not be shown. Reads."""
    try:
        store = OmnigraphHook(listed.wanted).address().store
    except Exception:  # it is only asked while another error is told
        return ()
    return tuple(store[name] for name in SECRETS & store.keys())


def opened(listed: ListedGraph) -> Graph:
    """The graph. Reads."""
    return OmnigraphHook(listed.wanted).get_conn()


def runs_of(listed: ListedGraph, last: int) -> tuple[RunRecord, ...]:
    """Its newest runs, newest first. Reads."""
    from omnigraph_ops.outcomes.history import read_runs

    return read_runs(opened(listed), last=last)


def run_of(listed: ListedGraph, run_id: str) -> RunRecord | None:
    """One run with its tables. Reads."""
    from omnigraph_ops.outcomes.history import read_run

    return read_run(opened(listed), run_id)


def trend_of(listed: ListedGraph, table_key: str) -> tuple[TableTrendPoint, ...]:
    """The newest runs that looked at a table. Reads."""
    from omnigraph_ops.outcomes.history import table_trend

    return table_trend(opened(listed), table_key, last=CHARTED)


def holds_of(listed: ListedGraph) -> tuple[Hold, ...]:
    """The holds that count now, oldest first. Reads."""
    from omnigraph_ops.coordination.holds import active_holds

    return active_holds(opened(listed).storage)


def plan_of(listed: ListedGraph, stage: str, digest: str) -> Any:
    """A kept plan. Reads.

    Raises:
        InvalidInput: no such stage keeps one, or that is no digest.
        StalePlan: it is no longer kept.
    """
    from omnigraph_ops.coordination import sealed

    return sealed.load(opened(listed).storage, planned(stage).plan_type, digest)


def state_of(listed: ListedGraph, *, most: int | None, only: Sequence[str] = ()) -> GraphState:
    """Health of every table (or of those named), and drift and protection of the worst so many. Reads."""
    from omnigraph_ops.coordination.graph_view import look
    from omnigraph_ops.parallel import in_parallel
    from omnigraph_ops.stages.health.read import health

    graph = opened(listed)
    report = health(graph, tables=only)
    view = look(graph)
    shown = report.tables[:most]
    tables = in_parallel(
        lambda row: _table(graph, view, row, view.main.get(row.table_key)), shown, workers=graph.settings.concurrency
    )
    # What a cleanup would refuse to look past is worse than any score.
    ordered = sorted(tables, key=lambda t: not (t.drifted or t.problem or t.health.error))
    return GraphState(report=report, tables=tuple(ordered), unreadable_branches=view.unreadable)


def _table(graph: Graph, view: GraphView, row: TableHealth, entry: TableEntry | None) -> TableState:
    """Drift and protection of one table. Reads."""
    from omnigraph_ops.stages.cleanup.protect import protect

    if entry is None:
        return TableState(health=row, problem="it went away while this page was made")
    try:
        head = graph.open_head(entry)
        protection = protect(graph.lance, entry, head, view)
    except OpsError as error:
        return TableState(health=row, published=entry.version, problem=redacted(str(error)))
    return TableState(health=row, published=entry.version, head=int(head.version), protected=protection.versions)

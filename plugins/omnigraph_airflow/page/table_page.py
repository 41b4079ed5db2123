"""The page of one table: now, over its runs, and every protected version with its reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from omnigraph_airflow.page import reads, texts
from omnigraph_airflow.page.charts import Chart, Value, chart
from omnigraph_airflow.page.looks import Deadline, Look, Looks
from omnigraph_ops.models.history import RunOutcome

if TYPE_CHECKING:
    from omnigraph_airflow.page.listing import ListedGraph
    from omnigraph_airflow.page.reads import GraphState
    from omnigraph_ops.models.history import TableRecord, TableTrendPoint

MOST_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage:
    """Everything on the page of a table."""

    key: str
    state: Look[GraphState]
    trend: Look[tuple[TableTrendPoint, ...]]
    charts: tuple[Chart, ...]

    @property
    def unknown(self) -> bool:
        """Whether neither the graph nor its history has such a table. Pure."""
        return bool(self.state.problem) and not self.trend.pending and not self.trend.value


def table_page(looks: Looks, graph: ListedGraph, key: str) -> TablePage:
    """Read it, for as long as a person waits. Reads."""
    state = looks.begin(graph, ("table", key), partial(reads.state_of, graph, most=1, only=(key,)))
    trend = looks.begin(graph, ("trend", key), partial(reads.trend_of, graph, key))
    deadline, why = Deadline(MOST_SECONDS), partial(reads.sentence, graph)
    points = deadline.wait(trend, why)
    return TablePage(key=key, state=deadline.wait(state, why), trend=points, charts=_charts(points.value or ()))


def _charts(points: Sequence[TableTrendPoint]) -> tuple[Chart, ...]:
    """How the table changed over its runs, which are given newest first. Pure."""
    oldest_first = points[::-1]

    def over(title: str, pick: Callable[[TableRecord], float | None], text: Callable[[float], str]) -> Chart | None:
        values = [
            Value(when=texts.day(p.started_at_us), number=pick(p.table), failed=p.table.outcome is RunOutcome.FAILED)
            for p in oldest_first
        ]
        return chart(title, values, text)

    found = (
        over("Health score", lambda t: t.after.score, texts.whole),
        over("Fragments", lambda t: t.after.fragments, texts.whole),
        over("Rows", lambda t: t.after.rows, texts.whole),
        over("Data", lambda t: t.after.data_bytes, texts.size),
        over("Deleted rows", lambda t: t.after.deleted_share, texts.share),
        over("Unindexed rows", lambda t: t.after.unindexed_share, texts.share),
        over("Dead bytes", lambda t: t.after.dead_bytes, texts.size),
        over("Kept versions", lambda t: t.after.versions, texts.whole),
    )
    return tuple(drawn for drawn in found if drawn is not None)

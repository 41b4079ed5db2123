"""The pages: all graphs, one graph, one table of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from omnigraph_airflow.graphs import default_graph
from omnigraph_airflow.page import listing, reads, rendering, texts
from omnigraph_airflow.page.listing import (
    CHECK,
    Access,
    DagFacts,
    ListedGraph,
    NewestRun,
    OpenQuestion,
    asking_dags,
    listed_graphs,
    questions_by_graph,
)
from omnigraph_airflow.page.reads import Deadline, GraphState, Look, Looks
from omnigraph_airflow.page.rendering import Chart, Value, chart
from omnigraph_ops.coordination.holds import Hold
from omnigraph_ops.models.history import RunOutcome, RunRecord, TableTrendPoint
from omnigraph_ops.stages.registry import BY_NAME
from omnigraph_ops.views.view import View

R = TypeVar("R")
OVERVIEW_SECONDS = 6.0
"""How long a page waits for graphs; those that are slower say so."""
_BAD = frozenset({RunOutcome.FAILED, RunOutcome.INTERRUPTED, RunOutcome.UNAPPROVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRow:
    """One graph in the list."""

    graph: ListedGraph
    problem: str | None
    pending: str
    """Why its history was not ready in time."""
    score: int | None
    scored_at: datetime | None
    last: RunRecord | None
    """The run that ended last."""
    night: RunRecord | None
    """The run of the nightly DAG that ended last, but for previews."""
    trend: rendering.Chart | None
    questions: tuple[OpenQuestion, ...]
    dag: DagFacts | None
    newest: NewestRun | None
    """The newest run of the nightly DAG, with or without a report."""

    @property
    def failed_silently(self) -> bool:
        """Whether the newest run failed and left no report. Pure."""
        run = self.newest
        if run is None or run.state != "failed" or run.started_at is None:
            return False
        night, started_us = self.night, int(run.started_at.timestamp() * 1e6)
        if night is not None and (night.header.dag_id, night.header.dag_run_id) == (run.dag_id, run.run_id):
            # Of a run that was cleared, the report has the first start, and Airflow the last one.
            return night.ended_at_us < started_us
        return night is None or night.header.started_at_us < started_us

    @property
    def told(self) -> tuple[RunRecord, ...]:
        """The run that the graph is listed by, and the other one of last run and night. Pure.

        A backup or a run by hand that ended after a bad night does not hide it.
        """
        night, last = self.night, self.last
        if night is None or last is None or night.run_id == last.run_id:
            return (last,) if last is not None else ()
        return (night, last) if night.outcome in _BAD else (last, night)

    @property
    def running(self) -> bool:
        return self.newest is not None and self.newest.at_work

    @property
    def badness(self) -> tuple[int, int, str]:
        """What sorts the worst graphs first. Pure."""
        failed = self.failed_silently or any(run.outcome in _BAD for run in self.told[:1])
        kind = 0 if self.problem else 1 if failed else 2 if self.questions else 3
        return (kind, 101 if self.score is None else self.score, self.graph.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The first page."""

    rows: tuple[GraphRow, ...]
    problems: tuple[str, ...]
    """Of the graphs file."""
    hidden_problems: int
    """Those that this person may not read."""

    @property
    def waiting(self) -> int:
        """Approvals that wait for a person. Pure."""
        return sum(len(row.questions) for row in self.rows)

    @property
    def unread(self) -> int:
        """Graphs that cannot be read. Pure."""
        return sum(row.problem is not None for row in self.rows)

    def count(self, outcome: str) -> int:
        """How many graphs are listed by a run that ended so. Pure."""
        return sum(run.outcome == outcome for row in self.rows for run in row.told[:1])


def overview(access: Access, looks: Looks) -> Overview:
    """Everything the first page shows. Reads."""
    listing = listed_graphs()
    seen = tuple(graph for graph in listing.graphs if access.sees(graph.dag_id))
    told = access.sees(CHECK)
    return Overview(
        rows=tuple(sorted(_rows(access, looks, seen), key=lambda row: row.badness)),
        problems=listing.problems if told else (),
        hidden_problems=0 if told else len(listing.problems),
    )


def _rows(access: Access, looks: Looks, graphs: Sequence[ListedGraph]) -> list[GraphRow]:
    reading = [looks.begin(g, "runs", partial(reads.runs_of, g, reads.GLANCED)) for g in graphs]
    dag_ids = [g.dag_id for g in graphs]
    dags, newest = listing.dag_facts(dag_ids), listing.newest_runs(dag_ids)
    asking = {dag_id for dag_id in (*dag_ids, *asking_dags()) if access.sees_questions(dag_id)}
    questions = questions_by_graph(graphs, listing.open_questions(asking), default=default_graph())
    deadline = Deadline(OVERVIEW_SECONDS)
    return [
        _row(graph, deadline.wait(future, partial(reads.sentence, graph)), questions, dags, newest)
        for graph, future in zip(graphs, reading, strict=True)
    ]


def _row(
    graph: ListedGraph,
    look: Look[tuple[RunRecord, ...]],
    questions: Mapping[str, tuple[OpenQuestion, ...]],
    dags: Mapping[str, DagFacts],
    newest: Mapping[str, NewestRun],
) -> GraphRow:
    # The history has them by start: a backup or a preview may begin while a night waits for an answer.
    runs = sorted(look.value or (), key=lambda run: run.ended_at_us, reverse=True)
    nights = (r for r in runs if r.header.dag_id == graph.dag_id and r.outcome is not RunOutcome.PREVIEWED)
    scored = next((run for run in runs if run.after.score is not None), None)
    return GraphRow(
        graph=graph,
        problem=look.problem,
        pending=look.pending,
        score=scored.after.score if scored else None,
        scored_at=texts.of_micros(scored.ended_at_us) if scored else None,
        last=runs[0] if runs else None,
        night=next(nights, None),
        trend=rendering.sparkline([run.after.score for run in reversed(runs)]),
        questions=questions.get(graph.name, ()),
        dag=dags.get(graph.dag_id),
        newest=newest.get(graph.dag_id),
    )


MOST_TABLES = 100
PAGE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A DAG that can be started for the graph."""

    label: str
    dag_id: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An open approval with the plan that it is about."""

    question: OpenQuestion
    plan: Look[View]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPage:
    """Everything on the page of a graph."""

    graph: ListedGraph
    state: Look[GraphState]
    runs: Look[tuple[RunRecord, ...]]
    holds: Look[tuple[Hold, ...]]
    asked: tuple[Asked, ...]
    actions: tuple[Action, ...]
    dag: DagFacts | None
    newest: NewestRun | None
    charts: tuple[Chart, ...]

    @property
    def failed_unread(self) -> bool:
        """Whether nothing at all could be read. Pure."""
        return bool(self.state.problem and self.runs.problem and self.holds.problem)


def graph_page(access: Access, looks: Looks, graph: ListedGraph, *, most: int | None) -> GraphPage:
    """Read it all, side by side, for as long as a person waits. Reads."""
    state = looks.begin(graph, ("state", most), partial(reads.state_of, graph, most=most))
    runs = looks.begin(graph, "charted", partial(reads.runs_of, graph, reads.CHARTED))
    holds = looks.begin(graph, "holds", partial(reads.holds_of, graph))
    asking = {dag_id for dag_id in (graph.dag_id, *asking_dags()) if access.sees_questions(dag_id)}
    asked = listing.open_questions(asking)
    questions = questions_by_graph((graph,), asked, default=default_graph()).get(graph.name, ())
    planned = [
        looks.begin(graph, ("plan", q.stage, q.digest), partial(reads.plan_of, graph, q.stage, q.digest))
        for q in questions
    ]
    deadline, why = Deadline(PAGE_SECONDS), partial(reads.sentence, graph)
    read_runs = deadline.wait(runs, why)
    return GraphPage(
        graph=graph,
        runs=read_runs,
        charts=charts_of(read_runs.value or ()),
        asked=tuple(
            Asked(question=q, plan=deadline.wait(future, why)) for q, future in zip(questions, planned, strict=True)
        ),
        holds=deadline.wait(holds, why),
        state=deadline.wait(state, why),
        actions=_actions(access, graph),
        dag=listing.dag_facts([graph.dag_id]).get(graph.dag_id),
        newest=listing.newest_runs([graph.dag_id]).get(graph.dag_id),
    )


def charts_of(runs: Sequence[RunRecord]) -> tuple[Chart, ...]:
    """How the graph changed over its runs. Pure."""
    told = [(r.ended_at_us, r.outcome, r) for r in runs]
    found = (
        _over(told, "Health score", lambda r: r.after.score, texts.whole),
        _over(told, "Fragments", lambda r: r.after.fragments, texts.whole),
        _over(told, "Data", lambda r: r.after.data_bytes, texts.size),
        _over(told, "Dead bytes", lambda r: r.after.dead_bytes, texts.size),
        _over(told, "Rewritten", lambda r: r.work.bytes_rewritten, texts.size, bars=True),
        _over(told, "Write amplification", lambda r: r.work.write_amplification, texts.factor, bars=True),
        _over(told, "Reclaimed", lambda r: r.work.bytes_reclaimed, texts.size, bars=True),
        _over(told, "Run time", lambda r: r.seconds, texts.took, bars=True),
    )
    return tuple(drawn for drawn in found if drawn is not None)


def _over(
    told: Sequence[tuple[int, RunOutcome, R]],
    title: str,
    pick: Callable[[R], float | None],
    text: Callable[[float], str],
    *,
    bars: bool = False,
) -> Chart | None:
    """One figure over the runs; `told` has when each ended, how, and what to pick the figure from. Pure."""
    # Not by their start: a run that was cleared was measured at its second end.
    runs = sorted(told, key=lambda run: run[0])
    values = [Value(when=texts.day(at), number=pick(of), failed=how is RunOutcome.FAILED) for at, how, of in runs]
    return chart(title, values, text, bars=bars)


def _actions(access: Access, graph: ListedGraph) -> tuple[Action, ...]:
    """The DAGs that this person may start for the graph. Asks the auth manager."""
    nightly = Action(label="Run a night now", dag_id=graph.dag_id, hint="Optimize, repair, clean up; asks as at night")
    which = f"choose {graph.wanted} as the graph" if graph.named else "leave the graph empty"
    hint = f"Shows what it would do first; in the form, {which}"
    buttons = (stage for stage in BY_NAME.values() if stage.button)
    manual = tuple(Action(label=stage.button, dag_id=stage.dag_id, hint=hint) for stage in buttons)
    return tuple(action for action in (nightly, *manual) if access.triggers(action.dag_id))


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
    deadline, why = Deadline(PAGE_SECONDS), partial(reads.sentence, graph)
    points = deadline.wait(trend, why)
    return TablePage(key=key, state=deadline.wait(state, why), trend=points, charts=_charts(points.value or ()))


def _charts(points: Sequence[TableTrendPoint]) -> tuple[Chart, ...]:
    """How the table changed over its runs. Pure."""
    told = [(p.ended_at_us, p.table.outcome, p.table) for p in points]
    found = (
        _over(told, "Health score", lambda t: t.after.score, texts.whole),
        _over(told, "Fragments", lambda t: t.after.fragments, texts.whole),
        _over(told, "Rows", lambda t: t.after.rows, texts.whole),
        _over(told, "Data", lambda t: t.after.data_bytes, texts.size),
        _over(told, "Deleted rows", lambda t: t.after.deleted_share, texts.share),
        _over(told, "Unindexed rows", lambda t: t.after.unindexed_share, texts.share),
        _over(told, "Dead bytes", lambda t: t.after.dead_bytes, texts.size),
        _over(told, "Kept versions", lambda t: t.after.versions, texts.whole),
    )
    return tuple(drawn for drawn in found if drawn is not None)

"""The page of one graph: its tables now, its runs over time, what waits for a person, what holds what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from omnigraph_airflow.graphs import default_graph
from omnigraph_airflow.page import metadata, reads, texts
from omnigraph_airflow.page.charts import Chart, Value, chart
from omnigraph_airflow.page.looks import Deadline, Look, Looks
from omnigraph_airflow.page.plans import plan_view
from omnigraph_airflow.page.questions import asking_dags, questions_by_graph
from omnigraph_ops.models.history import RunOutcome, RunRecord
from omnigraph_ops.stages.registry import BY_NAME

if TYPE_CHECKING:
    from omnigraph_airflow.page.access import Access
    from omnigraph_airflow.page.listing import ListedGraph
    from omnigraph_airflow.page.metadata import DagFacts, NewestRun, OpenQuestion
    from omnigraph_airflow.page.reads import GraphState
    from omnigraph_ops.coordination.holds import Hold
    from omnigraph_ops.views.view import View

MOST_TABLES = 100
MOST_SECONDS = 10.0


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
    asked = metadata.open_questions(asking)
    questions = questions_by_graph((graph,), asked, default=default_graph()).get(graph.name, ())
    planned = [looks.begin(graph, ("plan", q.stage, q.digest), partial(_plan, graph, q)) for q in questions]
    deadline, why = Deadline(MOST_SECONDS), partial(reads.sentence, graph)
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
        dag=metadata.dag_facts([graph.dag_id]).get(graph.dag_id),
        newest=metadata.newest_runs([graph.dag_id]).get(graph.dag_id),
    )


def charts_of(runs: Sequence[RunRecord]) -> tuple[Chart, ...]:
    """How the graph changed over its runs, which are given newest first. Pure."""
    oldest_first = runs[::-1]

    def over(
        title: str, pick: Callable[[RunRecord], float | None], text: Callable[[float], str], bars: bool
    ) -> Chart | None:
        values = [
            Value(when=texts.day(r.header.started_at_us), number=pick(r), failed=r.outcome is RunOutcome.FAILED)
            for r in oldest_first
        ]
        return chart(title, values, text, bars=bars)

    found = (
        over("Health score", lambda r: r.after.score, texts.whole, False),
        over("Fragments", lambda r: r.after.fragments, texts.whole, False),
        over("Data", lambda r: r.after.data_bytes, texts.size, False),
        over("Dead bytes", lambda r: r.after.dead_bytes, texts.size, False),
        over("Rewritten", lambda r: r.work.bytes_rewritten, texts.size, True),
        over("Write amplification", lambda r: r.work.write_amplification, texts.factor, True),
        over("Reclaimed", lambda r: r.work.bytes_reclaimed, texts.size, True),
        over("Run time", lambda r: r.seconds, texts.took, True),
    )
    return tuple(drawn for drawn in found if drawn is not None)


def _plan(graph: ListedGraph, question: OpenQuestion) -> View:
    return plan_view(reads.plan_of(graph, question.stage, question.digest))


def _actions(access: Access, graph: ListedGraph) -> tuple[Action, ...]:
    """The DAGs that this person may start for the graph. Asks the auth manager."""
    nightly = Action(label="Run a night now", dag_id=graph.dag_id, hint="Optimize, repair, clean up; asks as at night")
    which = f"choose {graph.wanted} as the graph" if graph.named else "leave the graph empty"
    hint = f"Shows what it would do first; in the form, {which}"
    buttons = (stage for stage in BY_NAME.values() if stage.button)
    manual = tuple(Action(label=stage.button, dag_id=stage.dag_id, hint=hint) for stage in buttons)
    return tuple(action for action in (nightly, *manual) if access.triggers(action.dag_id))

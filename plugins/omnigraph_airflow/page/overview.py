"""The first page: every graph that a person may see, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from omnigraph_airflow.graphs import default_graph
from omnigraph_airflow.page import charts, metadata, reads, texts
from omnigraph_airflow.page.access import Access
from omnigraph_airflow.page.listing import CHECK, ListedGraph, listed_graphs
from omnigraph_airflow.page.looks import Deadline, Look, Looks
from omnigraph_airflow.page.metadata import DagFacts, NewestRun, OpenQuestion
from omnigraph_airflow.page.questions import asking_dags, questions_by_graph
from omnigraph_ops.models.history import RunOutcome, RunRecord

MOST_SECONDS = 6.0
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
    trend: charts.Chart | None
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
        return self.last is None or self.last.header.started_at_us < int(run.started_at.timestamp() * 1e6)

    @property
    def running(self) -> bool:
        return self.newest is not None and self.newest.state in {"running", "queued"}

    @property
    def badness(self) -> tuple[int, int, str]:
        """What sorts the worst graphs first. Pure."""
        failed = self.failed_silently or (self.last is not None and self.last.outcome in _BAD)
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
        """How many graphs' last run ended so. Pure."""
        return sum(row.last is not None and row.last.outcome == outcome for row in self.rows)


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
    dags, newest = metadata.dag_facts(dag_ids), metadata.newest_runs(dag_ids)
    asking = {dag_id for dag_id in (*dag_ids, *asking_dags()) if access.sees_questions(dag_id)}
    questions = questions_by_graph(graphs, metadata.open_questions(asking), default=default_graph())
    deadline = Deadline(MOST_SECONDS)
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
    runs = look.value or ()
    scored = next((run for run in runs if run.after.score is not None), None)
    return GraphRow(
        graph=graph,
        problem=look.problem,
        pending=look.pending,
        score=scored.after.score if scored else None,
        scored_at=texts.of_micros(scored.ended_at_us) if scored else None,
        last=runs[0] if runs else None,
        trend=charts.sparkline([run.after.score for run in reversed(runs)]),
        questions=questions.get(graph.name, ()),
        dag=dags.get(graph.dag_id),
        newest=newest.get(graph.dag_id),
    )

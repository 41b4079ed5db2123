"""Which graph an open approval is about. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from omnigraph_airflow.page.listing import DEPLOYMENT, NIGHTLY

if TYPE_CHECKING:
    from omnigraph_airflow.page.listing import ListedGraph
    from omnigraph_airflow.page.metadata import Question

MANUAL = ("omnigraph_repair", "omnigraph_cleanup", "omnigraph_orphans")
ASKING = (NIGHTLY, *MANUAL, "omnigraph_row_retention")
"""DAGs that work on the graph which the run's params name."""


def questions_by_graph(graphs: Sequence[ListedGraph], asked: Iterable[Question]) -> Mapping[str, tuple[Question, ...]]:
    """The questions of each graph by its name; those about a graph without a page are left out. Pure."""
    of_dag = {graph.dag_id: graph.name for graph in graphs if graph.named}
    of_place = {graph.place: graph.name for graph in graphs if graph.place}
    names = {graph.name for graph in graphs if graph.named}
    alone = DEPLOYMENT if any(graph.name == DEPLOYMENT and not graph.named for graph in graphs) else None
    found: dict[str, list[Question]] = defaultdict(list)
    for question in asked:
        name = of_dag.get(question.dag_id)
        if name is None and question.graph:
            name = question.graph if question.graph in names else of_place.get(question.graph.rstrip("/"))
        elif name is None:
            name = alone
        if name is not None:
            found[name].append(question)
    return {name: tuple(listed) for name, listed in found.items()}

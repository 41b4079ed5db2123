"""Which graph an open approval is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from omnigraph_airflow.graphs import NIGHTLY, real_place
from omnigraph_airflow.page.listing import root_of
from omnigraph_ops.stages.registry import BY_NAME

if TYPE_CHECKING:
    from omnigraph_airflow.page.listing import ListedGraph
    from omnigraph_airflow.page.metadata import OpenQuestion


def asking_dags() -> tuple[str, ...]:
    """The DAGs that ask about the graph which the run's params name. Pure."""
    return (NIGHTLY, *(stage.dag_id for stage in BY_NAME.values()))


def questions_by_graph(
    graphs: Sequence[ListedGraph], asked: Iterable[OpenQuestion], *, default: str | None
) -> Mapping[str, tuple[OpenQuestion, ...]]:
    """The questions of each graph by its name; those about a graph without a page are left out. Reads the file system.

    Args:
        default: what an empty param `graph` means; None when nobody said.
    """
    of_dag = {graph.dag_id: graph for graph in graphs if graph.named}
    found: dict[str, list[OpenQuestion]] = defaultdict(list)
    for question in asked:
        graph = of_dag.get(question.dag_id) or _meant(graphs, question.graph or default)
        if graph is not None:
            found[graph.name].append(question)
    return {name: tuple(listed) for name, listed in found.items()}


def _meant(graphs: Sequence[ListedGraph], text: str | None) -> ListedGraph | None:
    """The graph that a param means: by its name, or by any path or URI that leads to it. Reads the file system."""
    for graph in graphs:
        if (text == graph.name) if graph.named else text is None:
            return graph
    root = root_of(text or "")
    # Links are followed only here: a mount that hangs must not hold up the list of graphs.
    same = (graph for graph in graphs if root and graph.root and real_place(graph.root) == real_place(root))
    return next(same, None)

"""Which graphs this deployment has: those of its graphs file, else the one that it names."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_airflow.graphs import NIGHTLY, default_graph, nightly_dag_id, read_graphs_file
from omnigraph_airflow.hooks.omnigraph import OmnigraphHook
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.outcomes.history.redacted import redacted
from omnigraph_ops.storage.location import locate

CHECK = "omnigraph_graphs_check"
DEPLOYMENT = "deployment"
"""What the one graph of a deployment without a graphs file is called in addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGraph:
    """A graph that has a page."""

    name: str
    """In addresses."""
    title: str
    place: str
    """For people, without user info."""
    root: str
    """Where it lies, in one spelling, for comparing only; empty when nobody named it."""
    dag_id: str
    """Of its nightly DAG: who may see that one may see the graph."""
    wanted: str | None
    """What the hook takes; None: nobody named a graph."""
    named: bool
    """Whether the forms of the manual DAGs know it by `wanted`."""
    owner: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All of them, and what is wrong with the file."""

    graphs: tuple[ListedGraph, ...]
    problems: tuple[str, ...] = ()


def listed_graphs() -> Listing:
    """The graphs of the deployment, in the order of the file. Reads."""
    reading = read_graphs_file()
    if reading is None:
        return Listing(graphs=(_deployment(),))
    graphs = tuple(
        ListedGraph(
            name=entry.name,
            title=entry.name,
            place=redacted(entry.place),
            root=entry.root,
            dag_id=nightly_dag_id(entry.name),
            wanted=entry.name,
            named=True,
            owner=entry.owner,
            description=entry.description or "",
        )
        for entry in reading.graphs
    )
    return Listing(graphs=graphs, problems=tuple(redacted(str(problem)) for problem in reading.problems))


def _deployment() -> ListedGraph:
    wanted = default_graph()
    try:
        place = redacted(OmnigraphHook(wanted).target())
    except OpsError:
        place = ""  # opening it says why
    title = place.rstrip("/").rpartition("/")[2] or "The deployment's graph"
    root = root_of(wanted or "")
    return ListedGraph(name=DEPLOYMENT, title=title, place=place, root=root, dag_id=NIGHTLY, wanted=wanted, named=False)


def root_of(text: str) -> str:
    """Where a path or URI leads, in one spelling; empty for what is neither. Reads the working directory."""
    try:
        return locate(text).root
    except InvalidInput:
        return ""

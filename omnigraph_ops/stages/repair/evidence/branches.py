"""Which branches of the graph read a table, and whether they would see its drift."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.models import BranchEvidence
from omnigraph_ops.views.readable import short


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchView:
    """One branch and what it publishes, None when that cannot be read."""

    name: str
    state: BranchState | None
    problem: str = ""


def branch_views(graph: Graph) -> tuple[BranchView, ...]:
    """Every branch but main; one that cannot be read holds up no other. Reads."""
    return tuple(_view(graph, name) for name in graph.branches())


def branch_evidence(
    entry: TableEntry, views: Iterable[BranchView], *, content_equal: bool | None
) -> tuple[BranchEvidence, ...]:
    """How main and the branches read the table of `entry`. Pure."""
    changes = None if content_equal is None else not content_equal
    main = BranchEvidence(branch=None, version=entry.version, sees_change=changes, note="reads what is published here")
    return (main, *(found for view in views if (found := _evidence(entry, view)) is not None))


def _view(graph: Graph, name: str) -> BranchView:
    try:
        return BranchView(name=name, state=graph.state(name))
    except OpsError as error:
        return BranchView(name=name, state=None, problem=short(str(error), 200))


def _evidence(entry: TableEntry, view: BranchView) -> BranchEvidence | None:
    name = short(view.name, 200)
    if view.state is None:
        return BranchEvidence(branch=name, version=None, note=f"cannot be read: {view.problem}")
    mine = next((e for e in view.state.entries if e.path == entry.path), None)
    if mine is None:
        return None
    if mine.branch is not None:
        note = f"has its own fork {short(mine.branch, 200)}"
        return BranchEvidence(
            branch=name, version=mine.version, fork=short(mine.branch, 200), sees_change=False, note=note
        )
    if mine.version > entry.version:
        note = f"already reads version {mine.version} of the main chain, which main does not publish"
    else:
        note = f"reads version {mine.version} of the main chain and stays there"
    return BranchEvidence(branch=name, version=mine.version, sees_change=False, note=note)

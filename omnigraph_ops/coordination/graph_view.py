"""One look at everything that can hold a version: the branches of the graph, their pins, and the holds."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.coordination.holds import Hold, active_holds
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import BranchState, TableEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """The state of every live branch, main first; branches that could not be read with the reason."""

    main: BranchState
    branches: tuple[BranchState, ...]
    unreadable: tuple[tuple[str, str], ...]
    holds: tuple[Hold, ...] = ()

    @property
    def live_names(self) -> frozenset[str]:
        read = {b.branch for b in self.branches if b.branch is not None}
        return frozenset(read | {name for name, _ in self.unreadable})

    def places(self, entry: TableEntry, branch: str) -> bool:
        """Whether the graph branch of that name keeps this table on its own Lance branch. Pure."""
        for state in self.branches:
            if state.branch == branch:
                return any(e.path == entry.path and e.branch == branch for e in state.entries)
        return False

    def held(self, table_path: str, branch: str | None) -> list[tuple[int, str]]:
        """Versions of one chain that a hold keeps, each with the hold. Pure."""
        return [
            (held.version, hold.label())
            for hold in self.holds
            for held in hold.versions
            if held.table_path == table_path and held.branch == branch
        ]


def look(graph: Graph) -> GraphView:
    """Read main, every live branch and every hold afresh; raises `CorruptGraph` for an unreadable hold. Reads."""
    branches, unreadable = [], []
    # The schema-apply lock is a branch too: while it lives, what it pins is protected like any other.
    for ref in graph.lance_branches():
        try:
            branches.append(graph.state(ref.name))
        except OpsError as error:
            unreadable.append((ref.name, str(error)))
    return GraphView(
        main=graph.state(), branches=tuple(branches), unreadable=tuple(unreadable), holds=active_holds(graph.storage)
    )

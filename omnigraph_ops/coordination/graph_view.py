"""What a graph needs right now: main, every live branch, what merges of them start from, and every hold."""

from __future__ import annotations

from dataclasses import dataclass

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from omnigraph_ops.coordination.holds import Hold, active_holds
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.references import base_states
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.gateway import DatasetMissing


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """The state of every live branch, main first; branches that could not be read with the reason."""

    main: BranchState
    branches: tuple[BranchState, ...]
    unreadable: tuple[tuple[str, str], ...]
    holds: tuple[Hold, ...] = ()
    bases: tuple[BranchState, ...] = ()
    """What the commits published that merges start from: of live branches, and of those that are made of them."""

    @property
    def states(self) -> tuple[BranchState, ...]:
        """What main and every live branch publish."""
        return (self.main, *self.branches)

    @property
    def live_names(self) -> frozenset[str]:
        read = {b.branch for b in self.branches if b.branch is not None}
        return frozenset(read | {name for name, _ in self.unreadable})

    def places(self, entry: TableEntry, branch: str) -> bool:
        """Whether this table is read on the Lance branch of that name: by any graph branch, or by a merge. Pure.

        A graph branch made from another reads the Lance branches of that one, also once that one left them.
        """
        states = (*self.states, *self.bases)
        return any(e.branch == branch for state in states for e in state.at(entry.path))

    def held(self, table_path: str, branch: str | None) -> list[tuple[int, str]]:
        """Versions of one chain that a hold keeps, each with the hold. Pure."""
        return [
            (held.version, hold.label())
            for hold in self.holds
            for held in hold.versions
            if held.table_path == table_path and held.branch == branch
        ]


beside_deletes = Retrying(
    retry=retry_if_exception_type(DatasetMissing), stop=stop_after_attempt(4), wait=wait_fixed(0.2), reraise=True
)
"""Reads anew what an engine deleted a branch of between two reads; what is lost for good is still missing then."""


def look(graph: Graph, table_key: str | None = None) -> GraphView:
    """Read main, every live branch, what merges of them start from and every hold afresh. Reads.

    Args:
        table_key: the one table that it is about, None for all; plain Lance is read only as far as that.

    Raises:
        CorruptGraph, StorageError: a hold cannot be read, or a commit from which merges start.
    """
    return beside_deletes(look_once, graph, table_key)


def look_once(graph: Graph, table_key: str | None = None) -> GraphView:
    """As `look`, for callers that read anew themselves. Reads.

    Raises:
        DatasetMissing: an engine deleted a branch between two reads, or it is lost for good.
    """
    branches, unreadable = [], []
    # The lock of a schema apply is a branch too: while it lives, what it pins is protected like any other.
    for ref in graph.lance_branches():
        if ref.is_bare:
            continue
        try:
            branches.append(graph.state(ref.name))
        except OpsError as error:
            unreadable.append((ref.name, str(error)))
    if unreadable:
        listed = {ref.name for ref in graph.lance_branches()}
        unreadable = [(name, problem) for name, problem in unreadable if name in listed]  # others were deleted since
    main = graph.state() if table_key is None else graph.state_of(table_key)
    return GraphView(
        main=main,
        branches=tuple(branches),
        unreadable=tuple(unreadable),
        holds=active_holds(graph.storage),
        # Also of main alone: a branch that is made of it next is merged from the commit that is its head now, and a
        # writer that died between publish and commit row left that one behind.
        bases=base_states(graph, (main, *branches)),
    )

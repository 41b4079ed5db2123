"""What stages of row retention look at: tables of a branch, edges beside a node type, bounds. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.graph.type_facts import TypeFacts
from omnigraph_ops.lance.gateway import Dataset, live_rows
from omnigraph_ops.lance.rows import Keys, touching
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.suggest import unknown_table

_LOOKS, _LOOK_SECONDS = 5, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeEnds:
    """An edge table and its columns that hold ids of one node type."""

    table_key: str
    columns: tuple[str, ...]


def edges_of(facts: Mapping[str, TypeFacts], table_key: str) -> tuple[EdgeEnds, ...]:
    """The edge tables that end at a node type; none for a table of edges. Pure."""
    if not table_key.startswith("node:"):
        return ()
    name = table_key.removeprefix("node:")
    found = ((key, fact.ends_at(name)) for key, fact in sorted(facts.items()))
    return tuple(EdgeEnds(table_key=key, columns=columns) for key, columns in found if columns)


def state_of(graph: Graph, branch: str | None) -> BranchState:
    """What a branch publishes now; `InvalidInput` when there is no such branch. Reads."""
    if branch is not None and graph.format.publishes and branch not in graph.branches():
        raise InvalidInput(f"{graph.uri} has no branch {branch!r}; nothing was deleted")
    return graph.state(branch)


def entry_in(graph: Graph, state: BranchState, table_key: str) -> TableEntry:
    """A table of a state; `UnknownTable` when it is not live there. Pure."""
    entry = state.get(table_key)
    if entry is None or entry not in graph.maintained(state):
        known = [e.table_key for e in graph.maintained(state)]
        raise unknown_table(graph.uri, table_key, known, "nothing was deleted")
    return entry


def dataset_in(graph: Graph, state: BranchState, table_key: str) -> Dataset:
    """A table of a state at its published version. Reads."""
    return graph.open_pinned(entry_in(graph, state, table_key))


def rows_in(graph: Graph, state: BranchState) -> dict[str, int]:
    """How many rows every table of a state has. Reads manifests."""
    entries = graph.maintained(state)
    counts = in_parallel(lambda e: live_rows(graph.open_pinned(e)), entries, workers=graph.settings.concurrency)
    return dict(zip((e.table_key for e in entries), counts, strict=True))


def edges_at(graph: Graph, state: BranchState, ends: tuple[EdgeEnds, ...], ids: Keys) -> dict[str, Keys]:
    """Ids of the edges at those nodes, by edge table. Reads."""
    return {e.table_key: touching(dataset_in(graph, state, e.table_key), e.columns, ids) for e in ends}


def over_bounds(expired: int, rows: int, *, max_rows: int, max_share: float) -> str | None:
    """Which bound so many rows exceed, as a phrase; None when they are inside. Pure."""
    if expired > max_rows:
        return f"{expired:,} rows are below the cut and at most {max_rows:,} may go"
    if expired > max_share * rows:
        share = expired / rows
        return f"{expired:,} of {rows:,} rows ({share:.0%}) are below the cut and at most {max_share:.0%} may go"
    return None


def lasting_drift(graph: Graph, table_key: str) -> str | None:
    """The drift of a table that a few looks agree on; a writer between commit and publish is none. Reads."""
    problem = None
    for _ in range(_LOOKS):
        entry = entry_in(graph, graph.state(), table_key)
        try:
            head = int(graph.open_head(entry).version)
        except OpsError as error:
            return str(error)
        if head == entry.version:
            return None
        problem = f"{table_key} has drifted ({entry.version} → {head}); `omnigraph-ops check` says what settles that"
        graph.run.pause(_LOOK_SECONDS)
    return problem

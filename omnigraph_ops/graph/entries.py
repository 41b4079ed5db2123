"""The tables that a run takes, and what the schema says of them."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph_ops.errors import UnknownTable
from omnigraph_ops.graph.catalog import TableSpec
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.suggest import unknown_table


def select_entries(graph: Graph, state: BranchState, tables: Sequence[str]) -> tuple[TableEntry, ...]:
    """The maintained tables, or exactly those named; `UnknownTable` for a key that is not live. Pure."""
    entries = graph.maintained(state)
    known = {e.table_key for e in entries}
    unknown = [key for key in tables if key not in known]
    if unknown:
        raise unknown_table(graph.uri, unknown[0], known, "nothing was written")
    return tuple(e for e in entries if not tables or e.table_key in tables)


def spec_of(graph: Graph, entry: TableEntry) -> TableSpec:
    """The catalog's view of a maintained table. Pure."""
    spec = graph.catalog.get(entry.table_key)
    if spec is None:
        raise UnknownTable(f"{entry.table_key} is not in the accepted schema of {graph.uri}")
    return spec

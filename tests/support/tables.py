"""One table of a graph, as Lance lists it."""

from __future__ import annotations

from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.tables import fragment_facts
from tests.support.rows import table_digest
from tests.support.writers import entry_of

PERSON = "node:Person"


def versions(graph: Graph, key: str = PERSON) -> list[int]:
    """Every version of the main chain. Reads."""
    return [v["version"] for v in graph.open_head(entry_of(graph, key)).versions()]


def fragment_sizes(graph: Graph, key: str = PERSON) -> list[int]:
    """Rows of each published fragment, deleted ones included. Reads."""
    return [f.physical_rows for f in fragment_facts(graph.open_pinned(entry_of(graph, key)))]


def rows_by_id(graph: Graph, key: str = PERSON) -> str:
    """Digest of the published rows by row id: a rewrite comes after what was appended meanwhile. Reads."""
    return table_digest(graph, entry_of(graph, key), in_order=False)

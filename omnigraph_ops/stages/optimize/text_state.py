"""Look at the text indexes of a table: who wrote them, and what is installed here to write them. Reads only."""

from __future__ import annotations

from dataclasses import replace

from omnigraph_ops.graph.catalog import TableSpec
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.graph.text_indexes import certifying_engine, text_indexes
from omnigraph_ops.lance.tables import TableFacts, index_type_of
from omnigraph_ops.lance.text_indexer import RELEASES, home_of, is_installed
from omnigraph_ops.stages.optimize.folds import index_folds
from omnigraph_ops.stages.optimize.text_plan import INVERTED, TextState, foreign_texts


def text_state(graph: Graph, entry: TableEntry, spec: TableSpec, facts: TableFacts) -> TextState | None:
    """The state of the text indexes of a table at the version of `facts`; None where it has and wants none. Reads.

    Raises:
        CorruptGraph: the manifest of that version cannot be read.
    """
    there = [i for i in facts.indexes if index_type_of(i) == INVERTED]
    missing = any(
        b.index_type == INVERTED and not any(i.serves(b.column, INVERTED) for i in there)
        for b in spec.declared_indexes()
    )
    if not there and not missing:
        return None
    home = home_of(graph.settings.text_indexers)
    state = TextState(
        writer=graph.format.text_writer,
        indexes=text_indexes(graph.storage, entry.path, facts.version) if there else {},
        installed=frozenset(release for release in RELEASES if is_installed(home, release)),
    )
    behind = missing or index_folds(there, facts.fragments) or foreign_texts(facts, state)
    # A look at who wrote the graph is needed only where an index would be written.
    if not behind or state.writer is None or not state.writer.certifies:
        return state
    return replace(state, certified_by=certifying_engine(graph.storage, entry.path, facts.version))

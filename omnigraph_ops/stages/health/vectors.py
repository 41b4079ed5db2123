"""The health of vector indexes: from metadata, and on demand from queries. Reads only."""

from __future__ import annotations

from functools import partial

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.vector_indexes import Answers, VectorFacts, answers, vector_facts
from omnigraph_ops.models import VectorHealth


def vectors_of(graph: Graph, entry: TableEntry, queries: int) -> tuple[VectorHealth, ...]:
    """The vector indexes of a table at its HEAD. Reads metadata; with queries, samples of the vectors and the index."""
    head = graph.open_head(entry)
    found = vector_facts(head)
    if not found or not queries:
        return tuple(_health(facts, None) for facts in found)
    reopen = partial(graph.lance.open, graph.table_uri(entry), version=int(head.version))
    return tuple(_health(facts, answers(reopen, facts, queries)) for facts in found)


def _health(facts: VectorFacts, found: Answers | None) -> VectorHealth:
    return VectorHealth(
        name=facts.name,
        column=facts.column,
        kind=facts.kind,
        metric=facts.metric,
        partitions=len(facts.sizes),
        recommended=facts.wanted,
        rows=facts.rows,
        smallest=min(facts.sizes, default=0),
        largest=max(facts.sizes, default=0),
        segments=facts.segments,
        uncovered_rows=facts.uncovered_rows,
        size_bytes=facts.size_bytes,
        problem=facts.problem,
        recall=found.recall if found else None,
        bytes_per_query=found.bytes_read if found else None,
        partitions_per_query=found.partitions_read if found else None,
        drift=found.drift if found else None,
    )

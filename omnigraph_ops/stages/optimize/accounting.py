"""What a run wrote of a table, against what others had added to it since the run before."""

from __future__ import annotations

from dataclasses import replace

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.errors import LanceFailure
from omnigraph_ops.lance.tables import fragment_facts
from omnigraph_ops.models import TableStats, amplification
from omnigraph_ops.stages.optimize.ingest import bytes_since, record_run
from omnigraph_ops.stages.optimize.units import Effort, written_indexes


def accounted(
    graph: Graph, before: TableEntry, after: TableEntry | None, effort: Effort, stats: TableStats
) -> TableStats:
    """The outcome of a table with its bytes; notes the run for the next one. Writes under `__maintenance/`.

    Args:
        before: the entry that the run was planned on.
        after: the entry as published now.
    """
    if not stats.committed or after is None:
        return stats
    try:
        published = graph.open_pinned(after)
        index_bytes = written_indexes(published, effort)
        ingested = bytes_since(graph, before, fragment_facts(graph.open_pinned(before)))
        record_run(graph, after, published, waiting=effort.rewrite_deferred)
    except LanceFailure:
        # The table is done and published; only its figures are lost.
        return replace(stats, bytes_rewritten=effort.bytes_written)
    rewritten = effort.bytes_written + index_bytes
    return replace(
        stats,
        bytes_rewritten=rewritten,
        index_bytes_rewritten=index_bytes,
        bytes_ingested=ingested,
        write_amplification=amplification(rewritten, ingested),
    )

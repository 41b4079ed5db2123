"""What stops every stage before its first effect: something pending, the schema-apply lock, a freeze."""

from __future__ import annotations

from omnigraph_ops.coordination import journal
from omnigraph_ops.coordination.frozen import refuse_frozen
from omnigraph_ops.errors import RecoveryPending
from omnigraph_ops.graph.contract import staging_files
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.sidecars import sidecar_names


def refuse_pending(graph: Graph, *, beside_siblings: bool = False, table_key: str | None = None) -> None:
    """Raise on any sidecar, schema staging file or schema-apply lock, and on a freeze. Reads.

    With `beside_siblings`, for looks without the lease, sidecars of our own journal do not count: another
    table may be in its window right now. A dead run's sidecar is still refused once the lease is held.

    Raises:
        RecoveryPending: something is pending.
        GraphFrozen: the whole graph is frozen, or the table that this is about.
    """
    staged = staging_files(graph.storage)
    if staged:
        raise RecoveryPending(
            f"{graph.uri} has schema staging files ({', '.join(staged)}); nothing was written; "
            "let the schema apply finish or open the graph read-write with omnigraph"
        )
    names = sidecar_names(graph.storage)
    if beside_siblings:
        names = frozenset(name for name in names if not _is_siblings(graph, name))
    if names:
        raise RecoveryPending(
            f"{graph.uri} has {len(names)} pending recovery sidecar(s), first {min(names)}; nothing was written; "
            "run `omnigraph-ops check`, then `omnigraph-ops recover`"
        )
    if graph.is_locked():
        raise RecoveryPending(
            f"maintenance of {graph.uri} is unavailable while schema apply is in progress; nothing was written"
        )
    refuse_frozen(graph, table_key)


def _is_siblings(graph: Graph, name: str) -> bool:
    """Whether a sidecar was ours, or is gone by now: disarming removes it before its record. Reads."""
    known = journal.lookup(graph.storage, name.removesuffix(".json")) is not None
    return known or name not in sidecar_names(graph.storage)

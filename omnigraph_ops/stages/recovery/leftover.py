"""Commits of this tool that no sidecar covers any more: finished by their own marks.

An engine that opens the graph while we are armed withdraws our sidecar. When our process dies after the commit that
follows, only the properties of that commit's transaction tell whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.coordination.guards import refuse_pending
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.history import CONTENT_PRESERVING, commits_after
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import OPERATION_PROPERTY
from omnigraph_ops.lance.content import wrong_content
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.models import RecoveryOutcome
from omnigraph_ops.models.runs import Unit


@dataclass(frozen=True, slots=True)
class Leftover:
    """A version that only commits of this tool made, proven to hold the rows of the pin."""

    operation_id: str
    """Of the newest of them."""
    head: Dataset


def left_by_us(graph: Graph, entry: TableEntry) -> Leftover | None:
    """What we left a table ahead of its pin with; None where anything of that is not ours or not proven. Reads."""
    try:
        head = graph.open_head(entry)
        commits = commits_after(graph.storage, entry.path, entry.version, int(head.version))
        marks = [dict(commit.properties).get(OPERATION_PROPERTY) for commit in commits]
        ours = all(marks) and CONTENT_PRESERVING.issuperset(commit.operation for commit in commits)
        if not marks or not ours or wrong_content(graph.open_pinned(entry), head) is not None:
            return None
    except OpsError:
        return None
    return Leftover(str(marks[-1]), head)


def publish_leftovers(graph: Graph) -> tuple[RecoveryOutcome, ...]:
    """Publish every table that only our own commits moved. Publishes.

    Raises:
        RecoveryPending, GraphFrozen: something else has to be settled first; nothing was published.
        LeaseHeld: another maintenance run is at work.
    """
    found = [entry for entry in graph.maintained(graph.state()) if left_by_us(graph, entry) is not None]
    return tuple(outcome for entry in found if (outcome := _publish(graph, entry.table_key)) is not None)


def _publish(graph: Graph, table_key: str) -> RecoveryOutcome | None:
    """Decide again under the lease, then publish. Writes."""
    with committer_turn(graph, f"recover {table_key}") as keeper:
        refuse_pending(graph, table_key=table_key)
        entry = graph.published(table_key)
        left = left_by_us(graph, entry) if entry is not None else None
        if entry is None or left is None:
            return None
        outcome = RecoveryOutcome(
            operation_id=left.operation_id,
            table_key=table_key,
            action="rolled_forward",
            from_version=entry.version,
            to_version=int(left.head.version),
            detail="a commit of this tool that no sidecar covers any more; it was published as it is",
        )
        unit = Unit(name=f"recovery of {table_key}", stage="recover", table_key=table_key, version=entry.version)
        graph.run.begins(unit)
        keeper.assert_held()
        publish(graph, (table_update(graph, entry, left.head),), actor=None)
        graph.run.ended(unit, outcome)
    return outcome

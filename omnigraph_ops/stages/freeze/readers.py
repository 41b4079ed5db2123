"""Holds of readers that announce what they read: our cleanup leaves that version alone while they last."""

from __future__ import annotations

from omnigraph_ops.coordination.holds import HeldVersion, Hold, HoldKind, place_hold, read_hold, release_hold
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.coordination.removals import refuse_removed
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph.entries import select_entries
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.freeze import UnfreezeReport
from omnigraph_ops.stages.freeze.take import check_ttl
from omnigraph_ops.suggest import unknown_table


def hold_version(
    graph: Graph,
    table_key: str,
    *,
    version: int | None,
    branch: str | None,
    ttl_seconds: float,
    reason: str,
    owner: str,
) -> Hold:
    """Hold one version of a table, by default the one that the branch publishes now. Writes a hold.

    Under the lease, and with a look for announced removals: a cleanup has either seen the hold, or removed the version
    before, or is found to be about to.

    Raises:
        InvalidInput, UnknownTable: there is no such table or the time is out of bounds.
        StorageError: that version is gone.
        StalePlan: a cleanup is removing it.
    """
    check_ttl(ttl_seconds)
    with committer_turn(graph, f"hold {table_key}"):
        state = graph.state(branch)
        (entry,) = select_entries(graph, state, (table_key,)) if branch is None else (state.get(table_key),)
        if entry is None:
            known = [e.table_key for e in state.entries]
            raise unknown_table(f"branch {branch!r} of {graph.target}", table_key, known, "nothing was held")
        number = entry.version if version is None else version
        graph.lance.open(graph.table_uri(entry), branch=entry.branch, version=number)
        held = HeldVersion(table_path=entry.path, version=number, branch=entry.branch)
        hold = place_hold(
            graph.storage, (held,), kind=HoldKind.READER, reason=reason, ttl_seconds=ttl_seconds, owner=owner
        )
        try:
            refuse_removed(graph.storage, (held,))
        except OpsError:
            release_hold(graph.storage, hold.hold_id)
            raise
        return hold


def release(graph: Graph, hold_id: str) -> UnfreezeReport:
    """End a reader's hold. Destroys only the hold.

    Raises:
        InvalidInput: there is no such hold, or it is a freeze or a running rewrite's.
    """
    hold = read_hold(graph.storage, hold_id)
    if hold is None:
        raise InvalidInput(f"{graph.target} has no hold {hold_id}")
    if hold.kind is not HoldKind.READER:
        raise InvalidInput(
            f"{hold_id} is a {hold.kind} hold; a freeze ends with `omnigraph-ops unfreeze`, a plan by itself"
        )
    release_hold(graph.storage, hold_id)
    return UnfreezeReport(uri=graph.target, released=(hold_id,), tags_removed=0)

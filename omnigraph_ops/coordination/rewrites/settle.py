"""End journals: after a round, and those that nobody goes on with."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from omnigraph_ops.coordination.lease import LeaseKeeper
from omnigraph_ops.coordination.rewrites import journal
from omnigraph_ops.coordination.rewrites.adopt import adopt
from omnigraph_ops.coordination.rewrites.claim import rewrite_lease
from omnigraph_ops.coordination.rewrites.journal import Attempt, FinishedTask
from omnigraph_ops.coordination.rewrites.reclaim import reclaim
from omnigraph_ops.coordination.state import REWRITES_DIR
from omnigraph_ops.errors import LeaseHeld, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.storage.inventory import folders_in


def end(
    graph: Graph,
    table_path: str,
    rewrite_id: str,
    keeper: LeaseKeeper,
    *,
    kept: Collection[Attempt],
    progress: Progress,
) -> bool:
    """Remove the files of every result but those kept, then the journal; False when that has to wait. Destroys."""
    names = tuple(n for n in journal.attempts(graph.storage, table_path, rewrite_id) if n not in kept)
    found = journal.read_attempts(graph.storage, table_path, rewrite_id, names)
    try:
        removed = reclaim(graph, table_path, [f for f in found if isinstance(f, FinishedTask)], keeper)
    except OpsError as error:
        progress(f"the journal of rewrite {rewrite_id} stays, with the files it names: {error}")
        return False
    if removed:
        progress(f"removed {removed} files of results that could not be committed")
    journal.close(graph.storage, table_path, rewrite_id)
    return True


def abandon(graph: Graph, table_path: str, progress: Progress) -> None:
    """End every journal of a table that has no use for them, unless a live run is at it. Destroys."""
    if not journal.open_journals(graph.storage, table_path):
        return
    try:
        with rewrite_lease(graph, table_path, wait_seconds=0) as keeper:
            for rewrite_id in journal.open_journals(graph.storage, table_path):
                end(graph, table_path, rewrite_id, keeper, kept=(), progress=progress)
    except LeaseHeld as error:
        progress(f"left alone: {error}")


def sweep_rewrites(graph: Graph, progress: Progress = SILENT) -> None:
    """End the journals that no run would go on with: of gone tables, and those with nothing left to do. Destroys."""
    folders = folders_in(graph.storage, REWRITES_DIR)
    if not folders:
        return
    live = {entry.path: entry for entry in graph.state().entries}
    for table_path in map(journal.table_path_of, folders):
        if table_path in live:
            _retire(graph, live[table_path], progress)
        elif graph.is_gone(table_path):
            abandon(graph, table_path, progress)


def _retire(graph: Graph, entry: TableEntry, progress: Progress) -> None:
    """End the journals of a live table whose results are all committed or lost. Destroys."""
    storage = graph.storage
    if entry.branch is not None or not journal.open_journals(storage, entry.path):
        return
    with contextlib.suppress(OpsError), rewrite_lease(graph, entry.path, wait_seconds=0) as keeper:
        pinned = graph.open_pinned(entry)
        for rewrite_id in journal.open_journals(storage, entry.path):
            found = adopt(graph, entry, pinned, rewrite_id, SILENT)
            if found.groups == 0:
                end(graph, entry.path, rewrite_id, keeper, kept=found.kept, progress=progress)

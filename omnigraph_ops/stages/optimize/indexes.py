"""Prepare the index work of a table outside of its lineage: fold and build on a clone, then move the files over.

Lance builds an index and commits it in one call. On a shallow clone of the published version that call commits to the
clone; what it did to the indexes is then one small commit of the table itself. Until that, no reader and no writer of
the table sees anything, however long the work takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from omnigraph_ops.coordination.holds import HeldVersion, plan_hold
from omnigraph_ops.coordination.state import CLONES_DIR
from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.commits import IndexChange, index_change
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.storage.inventory import below_folder, move_files

# A bound for a run on another machine that died: on this one its hold ends with the process.
_LONGEST_WORK_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedIndexes:
    """Index work that waits for its commit."""

    change: IndexChange | None
    """None when nothing came of it."""
    error: OpsError | None = None
    """What ended the work early; `change` is what was done before."""


def prepare_indexes(graph: Graph, entry: TableEntry, work: Callable[[Dataset], None]) -> PreparedIndexes:
    """Run index work of a table on a clone of its published version. Writes index files; makes no version.

    The version is held meanwhile: a cleanup would take the files that the clone reads.
    """
    reason = f"indexes of {entry.table_key}"
    held = HeldVersion(table_path=entry.path, version=entry.version)
    with plan_hold(graph.storage, held, reason=reason, ttl_seconds=_LONGEST_WORK_SECONDS) as hold:
        pinned = graph.open_pinned(entry)
        with _cloned(graph, pinned, clone_path(hold.hold_id)) as clone:
            # A commit to the clone would collect the versions before it, which tell what was built.
            graph.lance.strip_auto_cleanup(clone)
            since, error = int(clone.version), None
            try:
                work(clone)
            except OpsError as failure:
                error = failure
            change = index_change(pinned, clone, since)
            if change is None:
                return PreparedIndexes(change=None, error=error)
            _move_over(graph, clone_path(hold.hold_id), entry.path, change)
            return PreparedIndexes(change=change, error=error)


def clone_path(hold_id: str) -> str:
    """Where the clone of a run is, relative to the graph: named by the hold that tells whether it is in use. Pure."""
    return f"{CLONES_DIR}/{hold_id}.lance"


@contextlib.contextmanager
def _cloned(graph: Graph, pinned: Dataset, path: str) -> Iterator[Dataset]:
    try:
        yield graph.lance.clone(pinned, graph.context.location.uri(path))
    finally:
        graph.storage.delete_tree(path)


def _move_over(graph: Graph, clone: str, table: str, change: IndexChange) -> None:
    """Move the files of the new segments into the table. Writes."""
    paths = [
        path
        for segment in change.added
        for path in sorted(
            f.path for f in below_folder(graph.storage, f"{clone}/_indices/{segment.uuid}") if not f.is_folder
        )
    ]
    moves = [(path, f"{table}/{path.removeprefix(f'{clone}/')}") for path in paths]
    faults = move_files(graph.storage, moves)
    if faults:
        raise StorageError(
            f"index files of {table} could not be put in place: {faults[0].path}: {faults[0].reason}; "
            "nothing was committed"
        )

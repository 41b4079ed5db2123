"""What killed runs leave behind: journal records, holds, half-written files and rewrites that are done with."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from omnigraph_ops import journal
from omnigraph_ops.edges.inventory import folders_in
from omnigraph_ops.errors import LeaseHeld
from omnigraph_ops.freeze.release import sweep_ended_here
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MAINTENANCE_DIR, RECOVERY_DIR
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.holds import HOLDS_DIR, sweep_holds
from omnigraph_ops.lease import committer_turn
from omnigraph_ops.rewrites.journal import REWRITES_DIR
from omnigraph_ops.rewrites.settle import sweep_rewrites

# A younger temporary file may be a write in flight, whatever the grace period is.
_SWEPT_AFTER_SECONDS = 60.0


def sweep_litter(graph: Graph, grace: float) -> None:
    """Remove what no run needs any more; does nothing while another run works. Destroys only litter.

    Under the lease, because a run notes its operation before it arms: without it the note could be
    swept in between, and the run's own sidecar would look foreign.
    """
    storage = graph.storage
    sweep_rewrites(graph)
    if not (storage.list(journal.JOURNAL_DIR) or storage.list(HOLDS_DIR) or any(_temporary_files(graph))):
        return
    with (
        contextlib.suppress(LeaseHeld),
        committer_turn(graph, "recover", wait_seconds=0),
    ):
        journal.sweep(storage, sidecar_names(storage))
        sweep_ended_here(graph)
        sweep_holds(storage)
        _sweep_temporary_files(graph, max(grace, _SWEPT_AFTER_SECONDS))


def _sweep_temporary_files(graph: Graph, older_than: float) -> None:
    """Delete half-written small files of killed writers, ours or the engine's. Destroys only `*.tmp`."""
    for path in _temporary_files(graph):
        with contextlib.suppress(FileNotFoundError):
            modified = graph.storage.stat(path).modified_at
            if modified is not None and time.time() - modified > older_than:
                graph.storage.delete(path)


def _temporary_files(graph: Graph) -> Iterator[str]:
    for folder in (RECOVERY_DIR, MAINTENANCE_DIR, *folders_in(graph.storage, REWRITES_DIR)):
        yield from (f"{folder}/{name}" for name in graph.storage.list(folder) if name.endswith(".tmp"))

"""Sweep what killed runs left below `__maintenance/` and beside it: clones, holds, announcements, half-written files.

A run on another machine, whose process nobody can ask, counts as at work until its hold expires.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

from omnigraph_ops.coordination import guards
from omnigraph_ops.coordination.environment import clock_problem
from omnigraph_ops.coordination.freezes import refuse_frozen, sweep_ended_here
from omnigraph_ops.coordination.holds import active_holds, sweep_holds, sweep_removals
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.coordination.rewrites import sweep_rewrites
from omnigraph_ops.coordination.state import CLONES_DIR, HOLDS_DIR, OPERATIONS_DIR, REMOVALS_DIR, REWRITES_DIR
from omnigraph_ops.errors import CorruptGraph, GraphFrozen, LeaseHeld, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MAINTENANCE_DIR, RECOVERY_DIR
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.storage.inventory import folders_in

# A younger temporary file may be a write in flight, whatever the grace period is.
_SWEPT_AFTER_SECONDS = 60.0
_LOG = logging.getLogger(__name__)


def sweep_litter(graph: Graph, grace: float) -> None:
    """Remove what no run needs any more; does nothing while another run works. Destroys only litter.

    Under the lease, because a run notes its operation before it arms: without it the note could be
    swept in between, and the run's own sidecar would look foreign.
    """
    storage = graph.storage
    sweep_rewrites(graph)
    small_files = (OPERATIONS_DIR, HOLDS_DIR, REMOVALS_DIR)
    if not (any(map(storage.list, small_files)) or folders_in(storage, CLONES_DIR) or any(_temporary_files(graph))):
        return
    if (problem := clock_problem(storage)) is not None:
        _LOG.warning("what killed runs left behind stays: %s", problem)
        return
    with (
        contextlib.suppress(LeaseHeld),
        committer_turn(graph, "sweep what killed runs left", wait_seconds=0),
    ):
        guards.sweep_operations(storage, sidecar_names(storage))
        sweep_ended_here(graph)
        sweep_holds(storage)
        sweep_removals(storage)
        _sweep_clones(graph)
        _sweep_temporary_files(graph, max(grace, _SWEPT_AFTER_SECONDS))


def sweep_beside(graph: Graph) -> None:
    """The same at the start of a run that has other work: what stays stops nothing. Destroys only litter.

    Nothing of a graph that is wholly frozen is swept.
    """
    try:
        refuse_frozen(graph)
        sweep_litter(graph, graph.settings.recovery_grace_seconds)
    except GraphFrozen:
        return
    except OpsError as error:
        _LOG.warning("what killed runs left behind stays: %s", error)


def _sweep_clones(graph: Graph) -> None:
    """Remove the clones of index work whose process is gone: its hold no longer counts. Destroys only clones."""
    # Before the holds: a run places its hold and then makes its clone, so a clone that is listed has its hold by now.
    folders = folders_in(graph.storage, CLONES_DIR)
    try:
        held = {hold.hold_id for hold in active_holds(graph.storage)}
    except CorruptGraph:
        return  # one that cannot be read protects everything
    for folder in folders:
        if folder.rpartition("/")[2].removesuffix(".lance") not in held:
            graph.storage.delete_tree(folder)


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

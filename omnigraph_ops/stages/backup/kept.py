"""The freeze that a backup copies: the caller's, or one of its own, which ends with the backup in every outcome."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from omnigraph_ops.coordination.freeze_release import unfreeze
from omnigraph_ops.coordination.holds import read_hold
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.backup import BackupStart
from omnigraph_ops.models.freeze import Freeze
from omnigraph_ops.progress import Progress
from omnigraph_ops.stages.freeze.take import active_freeze, extend_freeze, freeze_graph
from omnigraph_ops.watch import Stopped

OWN_TTL_SECONDS = 3600.0
"""After a kill the graph stays frozen this long at most; while the backup works, the end is moved."""


def given_freeze(graph: Graph, freeze_id: str) -> Freeze:
    """A freeze that somebody else took and ends. Reads.

    Raises:
        InvalidInput: there is none, it is still being taken, it has ended, or it is about some tables only.
    """
    freeze = active_freeze(graph, freeze_id)
    if freeze.tables:
        raise InvalidInput(
            f"freeze {freeze_id} is about {', '.join(freeze.tables)} only, a backup is of the whole graph; nothing was "
            "copied"
        )
    return freeze


@contextlib.contextmanager
def own_freeze(
    graph: Graph, backup_id: str, before: BackupStart | None, progress: Progress, ttl: float
) -> Iterator[Freeze]:
    """Freeze the graph for the block, or go on with the freeze of a killed attempt. Writes tags and a hold."""
    freeze = _of_before(graph, before, ttl) or freeze_graph(
        graph, ttl_seconds=ttl, reason=f"backup {backup_id}", progress=progress
    )
    stop = threading.Event()
    thread = threading.Thread(target=_prolong, args=(graph, freeze.freeze_id, ttl, stop), name="freeze", daemon=True)
    thread.start()
    try:
        yield freeze
    finally:
        stop.set()
        thread.join()
        _end(graph, freeze.freeze_id, progress)


def end_of_before(graph: Graph, before: BackupStart | None, progress: Progress) -> None:
    """End the freeze of a killed attempt that is not gone on with. Destroys its tags and record."""
    if before is not None and before.own_freeze and read_hold(graph.storage, before.freeze_id) is not None:
        _end(graph, before.freeze_id, progress)


def _of_before(graph: Graph, before: BackupStart | None, ttl: float) -> Freeze | None:
    if before is None or not before.own_freeze:
        return None
    try:
        return extend_freeze(graph, before.freeze_id, ttl)
    except InvalidInput:
        return None  # ended: another cut then


def _prolong(graph: Graph, freeze_id: str, ttl: float, stop: threading.Event) -> None:
    while not stop.wait(ttl / 4):
        # One that fails costs a quarter of the time that is left; that the cut is whole is looked at in the end.
        with contextlib.suppress(OpsError, Stopped):
            extend_freeze(graph, freeze_id, ttl)


def _end(graph: Graph, freeze_id: str, progress: Progress) -> None:
    try:
        unfreeze(graph, freeze_id)
    except (OpsError, Stopped) as error:
        why = "the run was asked to stop" if isinstance(error, Stopped) else error
        progress(f"freeze {freeze_id} could not be ended ({why}); it ends by itself")

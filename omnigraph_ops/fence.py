"""The fence: the engine's own schema-apply lock, held by us so that no engine writer starts.

A Lance branch named `__schema_apply_lock__` on the graph manifest makes every load, optimize, repair,
cleanup and branch creation of the engine refuse; reads and opens go on. It is ours when its
identifier is the one we noted, and only then may we remove it without asking.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph_ops import serde
from omnigraph_ops.edges.lance_errors import LanceFailure
from omnigraph_ops.edges.lance_gateway import BranchRef
from omnigraph_ops.errors import ApprovalMissing, InvalidInput, RecoveryPending
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MAINTENANCE_DIR, SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lease import process_name

_NOTE = f"{MAINTENANCE_DIR}/fence.json"
_DRAIN_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceNote:
    """Our record of a fence: the identifier of the lock branch's lifetime, and who put it up."""

    identifier: tuple[tuple[int, str], ...]
    owner: str
    raised_at: float
    """Seconds since the epoch."""


@contextlib.contextmanager
def fenced(graph: Graph, *, drain_seconds: float = 10.0) -> Iterator[None]:
    """Keep engine writers away for the block; released in every outcome. Writes the lock branch.

    Raises:
        RecoveryPending: somebody else holds the lock, or a writer did not drain in time.
    """
    note = _raise(graph)
    graph.own_fence = note.identifier
    try:
        _drain(graph, drain_seconds)
        yield
    finally:
        graph.own_fence = None
        _release(graph, note)


def unlock(graph: Graph, *, force: bool) -> BranchRef | None:
    """Remove a lock left by a crash: ours, or with `force` anybody's; None when there is none. Destroys the lock.

    Raises:
        ApprovalMissing: the lock is not ours and `force` was not given; nothing was removed.
    """
    lock = current_lock(graph)
    if lock is None:
        graph.storage.delete(_NOTE)
        return None
    note = read_note(graph)
    if not force and (note is None or note.identifier != lock.identifier):
        raise ApprovalMissing(
            f"the schema-apply lock of {graph.uri} was not raised by this tool; a schema apply may be running; "
            "nothing was removed; when you know that none is, repeat with --force"
        )
    graph.lance.delete_branch(graph.manifest(), lock.name)
    graph.storage.delete(_NOTE)
    return lock


def current_lock(graph: Graph) -> BranchRef | None:
    """The schema-apply lock as it is now, anybody's. Reads."""
    return next((b for b in graph.lance_branches() if b.name.lstrip("/") == SCHEMA_APPLY_LOCK), None)


def read_note(graph: Graph) -> FenceNote | None:
    """Our record of the fence, None when there is none. Reads."""
    try:
        return serde.from_json(FenceNote, graph.storage.read(_NOTE))
    except (FileNotFoundError, InvalidInput):
        return None


def _raise(graph: Graph) -> FenceNote:
    # A second create fails with misleading texts, so existence is decided by listing.
    if current_lock(graph) is not None:
        raise RecoveryPending(
            f"the fence of {graph.uri} cannot be raised: the schema-apply lock is held; nothing was written; "
            "wait for the schema apply, or see `omnigraph-ops unlock --help`"
        )
    with contextlib.suppress(LanceFailure):
        graph.lance.create_branch(graph.manifest(), SCHEMA_APPLY_LOCK)
    lock = current_lock(graph)
    if lock is None:
        raise RecoveryPending(f"the fence of {graph.uri} could not be raised; nothing was written; try again")
    owner = process_name()
    note = FenceNote(identifier=lock.identifier, owner=owner, raised_at=time.time())
    graph.storage.write(_NOTE, serde.dumps(note).encode())
    return note


def _drain(graph: Graph, seconds: float) -> None:
    """Wait until writers that passed their last lock check are done. Reads."""
    deadline = time.monotonic() + seconds
    while sidecar_names(graph.storage):
        if time.monotonic() >= deadline:
            raise RecoveryPending(
                f"a writer of {graph.uri} did not finish within {seconds:.0f} s of the fence; nothing was written; "
                "run `omnigraph-ops check`"
            )
        time.sleep(_DRAIN_POLL_SECONDS)


def _release(graph: Graph, note: FenceNote) -> None:
    lock = current_lock(graph)
    if lock is not None and lock.identifier == note.identifier:
        graph.lance.delete_branch(graph.manifest(), lock.name)
    graph.storage.delete(_NOTE)

"""The fence: the engine's own schema-apply lock, held by us so that no engine writer starts.

A Lance branch named `__schema_apply_lock__` on the graph manifest makes every load, optimize, repair,
cleanup and branch creation of the engine refuse; reads and opens go on. It is ours when a note of ours has its
identifier, and only then may we remove it without asking. Each run that wants a fence writes a note of its own first,
so that none loses its note to another one that starts with it. Ours is the reference alone, without
the data of a branch: it appears in one step, and nobody opens it. A fence is bounded: it is lifted in time and the run
goes on beside the writers. One whose process was killed is lifted by whoever of us comes by.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from omnigraph_ops.coordination.environment import clock_problem, is_running, process_name, this_machine, this_process
from omnigraph_ops.coordination.lease import working_holder
from omnigraph_ops.coordination.state import FENCE_PATH, FENCES_DIR, Records
from omnigraph_ops.errors import ApprovalMissing, OpsError, RecoveryPending, StorageError
from omnigraph_ops.graph.graph import Graph, HeldFence
from omnigraph_ops.graph.layout import MANIFEST_DIR, SCHEMA_APPLY_LOCK, branch_contents, branch_reference
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.gateway import BranchRef

_LOG = logging.getLogger(__name__)
INTERNAL_COMPACTION = "compact internal tables"
"""Purpose of the committer lease during the one thing that a fence may not be lifted in the middle of."""
_LOCK = branch_reference(MANIFEST_DIR, SCHEMA_APPLY_LOCK)
_POLL_SECONDS = 0.2
# A holder that is alive lifts its fence by itself; this long after its time it is taken for dead.
_OVERDUE_SECONDS = 60.0
_LIFTED_AGAIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceNote:
    """Our record of a fence: the identifier of the lock branch's lifetime, and who put it up."""

    identifier: tuple[tuple[int, str], ...]
    owner: str
    raised_at: float
    """Seconds since the epoch."""
    until: float | None = None
    """When it is lifted whatever goes on; earlier releases had fences without a bound."""
    pid: int = 0
    machine: str = ""
    """Where `pid` means something."""
    process_started: str = ""
    """Which process has that number; empty in files of earlier releases."""

    @property
    def is_abandoned(self) -> bool:
        """Whether its process was killed on this machine, or it is overdue by the clock of this host. Reads."""
        overdue = self.until is not None and time.time() > self.until + _OVERDUE_SECONDS
        return overdue or not is_running(self)

    @property
    def is_at_work(self) -> bool:
        """Whether its process is known to live, which only its own machine can tell. Reads."""
        return self.machine == this_machine() and not self.is_abandoned

    @property
    def standing(self) -> str:
        """Who keeps writers away, and whether that run is known to live or to be dead. Reads."""
        if self.is_abandoned:
            return f"a killed run of {self.owner} left it"
        return f"{self.owner} keeps writers away with --fence" + (", and is at work" if self.is_at_work else "")


_NOTES = Records(FenceNote)
_RELEASING = threading.Lock()


@contextlib.contextmanager
def fenced(
    graph: Graph,
    *,
    drain_seconds: float = 10.0,
    at_most_seconds: float = 900.0,
    on_lift: Callable[[], None] | None = None,
) -> Iterator[Graph]:
    """Keep engine writers away for the block, so that it is alone; released in every outcome. Writes the lock branch.

    Yields the graph behind the fence: only through it the fence is known for ours, and the run for alone.

    Args:
        at_most_seconds: lift the fence after so long; the block goes on beside writers, no longer alone.
        on_lift: called when that happens.

    Raises:
        RecoveryPending: somebody else holds the lock or took it over, or a writer did not drain in time.
    """
    drop_stale_fence(graph)
    note = _raise(graph, at_most_seconds)
    fence = HeldFence(note.identifier)
    over = threading.Event()
    lifting = threading.Timer(at_most_seconds, _lift, (graph, note, fence, over, on_lift))
    lifting.daemon = True
    lifting.start()
    failure: BaseException | None = None
    try:
        _drain(graph, drain_seconds)
        behind = graph.under(replace(graph.run_context, fence=fence))
        if not behind.has_fence():
            # The engine looks for a lock, and then writes its own over whatever is there by then.
            raise RecoveryPending(
                f"a schema apply of {graph.uri} that had begun before took the place of the fence, or somebody removed "
                "it; nothing was written; try again"
            )
        yield behind
    except BaseException as error:
        failure = error
        raise
    finally:
        over.set()
        lifting.cancel()
        fence.take_down()
        _lower(graph, note, failure)


def drop_stale_fence(graph: Graph) -> bool:
    """Remove a fence of ours whose process was killed on this machine, or that is overdue. Destroys only that lock."""
    note = stale_fence(graph)
    if note is None:
        return False
    _release(graph, note)
    return True


def stale_fence(graph: Graph) -> FenceNote | None:
    """Our fence whose process was killed on this machine, or that is overdue; None: there is no such one. Reads."""
    note = own_fence(graph)
    if note is None or not note.is_abandoned:
        return None
    if not is_running(note):
        return note
    # Only overdue: its run may be in the middle of what it does not lift its fence in.
    return None if _compacts_internal_tables(graph) or clock_problem(graph.storage) is not None else note


def own_fence(graph: Graph) -> FenceNote | None:
    """The fence of another run of this tool that is up, alive or not; None when there is none. Reads."""
    lock = current_lock(graph)
    return None if lock is None or graph.is_own_fence(lock) else _note_of(graph, lock)


def unlock(graph: Graph, *, force: bool) -> BranchRef | None:
    """Remove a lock left by a crash: ours, or with `force` anybody's; None when there is none. Destroys the lock.

    With `force` also what a schema apply staged by half, which would lock the graph for good at its next open.

    Raises:
        ApprovalMissing: the lock is not ours, or that of a run that is at work here, and `force` was not given.
    """
    for staged in graph.half_staged() if force else ():
        graph.storage.delete(staged)
        _LOG.warning("removed %s of a schema apply that did not end", staged)
    lock = current_lock(graph)
    if lock is None:
        _sweep_notes(graph)
        return None
    note = _note_of(graph, lock)
    if not force and note is None:
        raise ApprovalMissing(
            f"the schema-apply lock of {graph.uri} was not raised by this tool; a schema apply may be running; "
            "nothing was removed; when you know that none is, repeat with --force"
        )
    if not force and note is not None and note.is_at_work:
        raise ApprovalMissing(
            f"{note.owner} is at work on {graph.uri} and keeps writers away with --fence; nothing was removed; wait "
            "for it, or stop it: its fence goes with it; --force removes the fence of a run that is at work"
        )
    graph.lance.delete_branch(graph.manifest(), lock.name)
    _forget(graph, lock.identifier)
    _sweep_notes(graph)
    return lock


def current_lock(graph: Graph) -> BranchRef | None:
    """The schema-apply lock as it is now, anybody's. Reads."""
    return next(iter(graph.schema_apply_locks()), None)


def notes(graph: Graph) -> Iterator[tuple[str, FenceNote]]:
    """Our records of fences with their paths: of those that are up, and of runs that were killed before. Reads."""
    yield from _NOTES.all(graph.storage, FENCES_DIR)
    if (earlier := _NOTES.read(graph.storage, FENCE_PATH)) is not None:
        yield FENCE_PATH, earlier


def _note_of(graph: Graph, lock: BranchRef) -> FenceNote | None:
    """Our record of that lock; None for one of a schema apply. Reads."""
    return next((note for _, note in notes(graph) if note.identifier == lock.identifier), None)


def _raise(graph: Graph, at_most_seconds: float) -> FenceNote:
    if (lock := current_lock(graph)) is not None:
        raise _refusal(graph, lock)
    now, lifetime = time.time(), uuid.uuid4().hex
    note = FenceNote(
        identifier=((int(graph.manifest().version), lifetime),),
        owner=process_name(),
        raised_at=now,
        until=now + at_most_seconds,
        **this_process(),
    )
    try:
        # The note first: however this ends, the lock is known for ours.
        _NOTES.write(graph.storage, f"{FENCES_DIR}/{lifetime}.json", note)
        if graph.storage.create(_LOCK, _reference(note)):
            with contextlib.suppress(OpsError):
                _sweep_notes(graph)
            return note
    except BaseException:
        with contextlib.suppress(OpsError):
            _release(graph, note)
        raise
    # A schema apply, or another run, was faster.
    _release(graph, note)
    raise _refusal(graph, current_lock(graph))


def _refusal(graph: Graph, lock: BranchRef | None) -> RecoveryPending:
    """Why no fence can be raised beside that lock; None: it is gone by now. Reads."""
    said = f"the fence of {graph.uri} cannot be raised: "
    note = None if lock is None else _note_of(graph, lock)
    if note is not None:
        cure = "run `omnigraph-ops recover`" if note.is_abandoned else "wait for that run"
        return RecoveryPending(
            f"{said}{note.standing}; nothing was written; {cure}, or see `omnigraph-ops unlock --help`"
        )
    if lock is not None:
        return RecoveryPending(
            f"{said}the schema-apply lock is held; nothing was written; wait for the schema apply, or see "
            "`omnigraph-ops unlock --help`"
        )
    return RecoveryPending(f"{said}somebody held the schema-apply lock meanwhile; nothing was written; try again")


def _reference(note: FenceNote) -> bytes:
    """The lock as Lance refers to a branch at the open version; nobody opens it, so it has no data. Pure."""
    return branch_contents(parent_branch=None, identifier=note.identifier, created_at=note.raised_at, manifest_size=0)


def _drain(graph: Graph, seconds: float) -> None:
    """Wait until writers that passed their last lock check are done. Reads."""
    deadline = time.monotonic() + seconds
    while sidecar_names(graph.storage):
        if time.monotonic() >= deadline:
            raise RecoveryPending(
                f"a writer of {graph.uri} did not finish within {seconds:.0f} s of the fence; nothing was written; "
                "run `omnigraph-ops check`"
            )
        graph.run.pause(_POLL_SECONDS)


def _lift(
    graph: Graph, note: FenceNote, fence: HeldFence, over: threading.Event, on_lift: Callable[[], None] | None
) -> None:
    """Let the writers go on; never in the middle of what needs to be alone, which looks again under its lease.

    Args:
        over: the block has ended, which lifts its fence itself; a block may last for hours after its fence.
    """
    fence.take_down()
    while not over.is_set():
        try:
            if not _compacts_internal_tables(graph):
                _release(graph, note)
                break
        except OpsError:
            over.wait(_LIFTED_AGAIN_SECONDS)
        else:
            over.wait(_POLL_SECONDS)
    else:
        return
    if on_lift is not None:
        on_lift()


def _compacts_internal_tables(graph: Graph) -> bool:
    lease = working_holder(graph.storage)
    return lease is not None and lease.purpose == INTERNAL_COMPACTION


def _lower(graph: Graph, note: FenceNote, failure: BaseException | None) -> None:
    """End the fence of a block that ended, well or by a failure; a fence that stays is told beside it. Destroys it."""
    try:
        _release(graph, note)
    except OpsError as error:
        before = f"{failure}; " if isinstance(failure, OpsError) else ""
        raise StorageError(
            f"{before}the fence of {graph.uri} could not be lifted: {error}; until it is, the engine refuses to write; "
            f"`omnigraph-ops unlock {graph.target} --confirm` lifts it, and so does the next `optimize` or `recover` "
            "once it sees that this run is over"
        ) from error


def _release(graph: Graph, note: FenceNote) -> None:
    # Lance deletes by name: of the timer and the end of the block, the later one could take the next lock.
    with _RELEASING:
        lock = current_lock(graph)
        if lock is not None and lock.identifier == note.identifier:
            graph.lance.delete_branch(graph.manifest(), lock.name)
        _forget(graph, note.identifier)


def _forget(graph: Graph, identifier: tuple[tuple[int, str], ...]) -> None:
    """Remove the note of a lock that is gone or was never up; those of other runs stay. Destroys only that note."""
    for path, note in list(notes(graph)):
        if note.identifier == identifier:
            graph.storage.delete(path)


def _sweep_notes(graph: Graph) -> None:
    """Remove the notes of runs that were killed before their lock was up. Destroys only these."""
    left = [(path, note) for path, note in notes(graph) if note.is_abandoned]
    # The lock after the notes: whoever is dead by now raises none any more.
    lock = current_lock(graph) if left else None
    for path, note in left:
        if lock is None or note.identifier != lock.identifier:
            graph.storage.delete(path)

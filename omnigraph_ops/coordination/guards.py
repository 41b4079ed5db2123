"""What stops a stage before its first effect: something pending, a lock, a freeze, a lost lease, a graph not quiet.

The journal of our own operations: which sidecars are ours, and which of their runs are still alive. Kept under
`__maintenance/operations/`; losing it never harms a graph, it only makes our own sidecars look foreign, which delays
their recovery by the grace period.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from omnigraph_ops.coordination.fence import own_fence, stale_fence
from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.lease import LeaseKeeper, is_held, working_holder
from omnigraph_ops.coordination.state import OPERATIONS_DIR, Records
from omnigraph_ops.errors import OpsError, RecoveryNeeded, RecoveryPending
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.schema import staging_files
from omnigraph_ops.graph.sidecars import list_sidecars, sidecar_names
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.models.outcomes import TableRow
from omnigraph_ops.models.runs import Unit
from omnigraph_ops.parallel import asked
from omnigraph_ops.quantities import count
from omnigraph_ops.storage.store import Storage

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One armed unit of ours."""

    operation_id: str
    table_key: str
    unit: str
    owner: str
    started_at_us: int
    lease_number: int = 0
    """The number of the committer lease under which it was armed."""


_OPERATIONS = Records(Operation)


def note_operation(storage: Storage, operation: Operation) -> None:
    """Note an operation before its sidecar is armed. Writes under `__maintenance/`."""
    _OPERATIONS.write(storage, _operation_path(operation.operation_id), operation)


def operation_of(storage: Storage, operation_id: str) -> Operation | None:
    """Our record of an operation, None when it is not ours (or the record is lost). Reads."""
    return _OPERATIONS.read(storage, _operation_path(operation_id))


def forget_operation(storage: Storage, operation_id: str) -> None:
    """Drop the record of a finished operation. Destroys only the record."""
    storage.delete(_operation_path(operation_id))


def sweep_operations(storage: Storage, pending: frozenset[str]) -> None:
    """Drop records of operations that have no sidecar any more: they finished or never armed. Destroys records."""
    for path in _OPERATIONS.paths(storage, OPERATIONS_DIR):
        if path.rpartition("/")[2] not in pending:
            storage.delete(path)


def _operation_path(operation_id: str) -> str:
    return f"{OPERATIONS_DIR}/{operation_id}.json"


_LOOKS, _MOST_LOOKS, _LOOK_SECONDS = 10, 100, 0.3
_AT_WORK_SECONDS = 60.0
"""How young the sidecar of another writer is that may be at work; a load of many tables takes more than a few looks."""


def looks(graph: Graph, *, brief: bool = False) -> Iterator[int]:
    """Count a few looks, with a pause before each but the first. Reads sidecars, and waits.

    Together they take three seconds, and up to thirty beside the young sidecar of another writer. Within that time it
    publishes what it committed, and removes its sidecar. What every look finds is not of a writer at work.

    Args:
        brief: three seconds, whoever is at work: a person waits for what is to be seen now.
    """
    for number in range(_LOOKS if brief else _MOST_LOOKS):
        if number >= _LOOKS and not _is_beside_writer(graph):
            return
        if number == _LOOKS:
            _LOG.warning("%s: another writer is at work; waiting for it, half a minute at most", graph.uri)
        if number:
            graph.run.pause(_LOOK_SECONDS)
        yield number


def _is_beside_writer(graph: Graph) -> bool:
    """Whether another writer armed in the last minute, as far as the clocks agree, and has not ended. Reads."""
    files, now = list_sidecars(graph.storage, graph.format.sidecar_version), time.time()
    return any(
        abs(now - (sidecar.started_at_us or 0) / 1e6) < _AT_WORK_SECONDS
        and operation_of(graph.storage, sidecar.operation_id) is None
        for sidecar in (file.sidecar for file in files)
        if sidecar is not None
    )


R = TypeVar("R", bound=TableRow)


def look_again(
    graph: Graph, rows: Iterable[R], moved: Callable[[R], bool], find: Callable[[Sequence[TableEntry]], Iterable[R]]
) -> list[R]:
    """Find rows anew while their tables seem to be between the commit and the publish of a writer. Waits.

    Args:
        rows: what the first look found.
        moved: whether a table seems to be there by its row.
        find: makes the rows of tables as they are published now.
    """
    found = {row.table_key: row for row in rows}
    for number in looks(graph):
        keys = {key for key, row in found.items() if moved(row)}
        if not keys:
            break
        if number:
            entries = [entry for entry in graph.maintained(graph.state()) if entry.table_key in keys]
            found |= {row.table_key: row for row in find(entries)}
    return list(found.values())


def refuse_lasting(graph: Graph, *, beside_siblings: bool = False, table_key: str | None = None) -> None:
    """Do as `refuse_pending`, but wait a few looks for what may go by itself. For before the first effect. Reads.

    Writers of which each is at work for a moment, one after the other, are no reason to refuse.

    Raises:
        LanceFailure: a branch cannot be read. The engine does not write to such a graph either.
        As `refuse_pending`.
    """
    graph.lance_branches()
    found: list[RecoveryPending] = []
    for _ in looks(graph):
        try:
            refuse_pending(graph, beside_siblings=beside_siblings, table_key=table_key)
        except RecoveryNeeded:
            raise
        except RecoveryPending as error:
            found.append(error)
        else:
            return
    if frozenset.intersection(*(error.sidecars for error in found)) or not found[-1].sidecars:
        raise found[-1]


def refuse_pending(graph: Graph, *, beside_siblings: bool = False, table_key: str | None = None) -> None:
    """Raise on any sidecar, schema staging file or schema-apply lock, and on a freeze. Reads.

    With `beside_siblings`, for looks without the lease, sidecars of our own journal do not count as long as their
    lease may be held: another table may be in its window right now.

    Raises:
        RecoveryNeeded: what is pending is of a run of ours that ended.
        RecoveryPending: something else is pending.
        GraphFrozen: the whole graph is frozen, or the table that this is about.
    """
    staged, (names, left), is_locked = asked(
        lambda: staging_files(graph.storage),
        lambda: _pending(graph, beside_siblings=beside_siblings),
        graph.is_locked,
        at_once=not graph.storage.is_local,
    )
    if staged:
        raise RecoveryPending(
            f"{graph.uri} has schema staging files ({', '.join(staged)}); nothing was written; "
            "let the schema apply finish; `omnigraph-ops check` says what settles one that crashed"
        )
    if names:
        raise (RecoveryNeeded if left else RecoveryPending)(
            f"{graph.uri} has {count(len(names), 'pending recovery sidecar')}, first {min(names)}; nothing was "
            "written; run `omnigraph-ops check` to see what settles it",
            sidecars=names,
        )
    if is_locked:
        raise _locked(graph)
    refuse_frozen(graph, table_key)


def _locked(graph: Graph) -> RecoveryPending:
    """The refusal of a graph with a schema-apply lock. Reads."""
    with contextlib.suppress(OpsError):  # of the store: then the lock may be anybody's
        fence = own_fence(graph)
        if fence is not None:
            cure = "`omnigraph-ops recover` removes it"
            if stale_fence(graph) is None:
                cure = "wait for that run, or run `omnigraph-ops check` to see what settles it"
            return RecoveryPending(f"{graph.uri} has a fence, and {fence.standing}; nothing was written; {cure}")
    return RecoveryPending(
        f"maintenance of {graph.uri} is unavailable while schema apply is in progress; nothing was written; "
        "run `omnigraph-ops check` to see what settles it"
    )


def _pending(graph: Graph, *, beside_siblings: bool) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the pending sidecars, and of those of them that a window of ours left which is over. Reads.

    A window is over when its lease is nobody's, or that of another run.
    """
    names = sidecar_names(graph.storage)
    operations = {name: operation_of(graph.storage, name.removesuffix(".json")) for name in names}
    over = frozenset(
        name
        for name, operation in operations.items()
        if operation is not None and operation.lease_number and not is_held(graph.storage, operation.lease_number)
    )
    # What ended between these looks took its sidecar along, and then its record.
    there = sidecar_names(graph.storage) if names else names
    left = over & there
    foreign = frozenset(name for name in names & there if operations[name] is None)
    return left | foreign if beside_siblings else names, left


_LEAST_ARMING_SECONDS, _MOST_ARMING_SECONDS, _TIMES_OURS = 0.05, 2.0, 2
"""How long a writer may take from its look at sidecars to its own, at least, at most, and in terms of our arming.

In between it reads the heads of the graph and of its tables.
"""


@contextlib.contextmanager
def letting_writers_arm(graph: Graph) -> Iterator[None]:
    """Arm in the block, then wait until writers that looked for sidecars before that have written theirs. Waits.

    On stamp 6 a publish between that look and that sidecar fails the write, whatever its tables, and leaves the sidecar
    behind. A running server of the engine does not settle it, and refuses every write until it is restarted.
    """
    began = time.monotonic()
    yield
    if graph.format.compares_heads and not graph.is_alone():
        theirs = _TIMES_OURS * (time.monotonic() - began)
        time.sleep(min(max(theirs, _LEAST_ARMING_SECONDS), _MOST_ARMING_SECONDS))


def begin_held(graph: Graph, unit: Unit, keeper: LeaseKeeper) -> None:
    """Begin a unit; if its lease is lost by then, it did nothing. Writes to the run.

    Without that end, the run would be credited with whatever the new holder does to the graph.

    Raises:
        LeaseHeld: another run took the lease over; the unit must not go on.
        As `Run.begins`.
    """
    graph.run.begins(unit)
    try:
        keeper.assert_held()
    except OpsError:
        graph.run.ended(unit, None)
        raise


def quiet_state(graph: Graph, quiet_seconds: float) -> tuple[bool, str]:
    """Whether the last publish is at least `quiet_seconds` old and no other run holds the lease, and why. Reads.

    Pending recovery does not count, nor does a fence of a run that was killed: the recovery check comes next and
    decides about both.
    """
    published_at = graph.published_at()
    age = max(0.0, time.time() - published_at) if published_at else 0.0
    lease = working_holder(graph.storage)
    if lease is not None:
        return False, f"{lease.owner} is maintaining it ({lease.purpose})"
    if graph.is_locked() and stale_fence(graph) is None:
        fence = own_fence(graph)
        return False, "a schema apply is in progress" if fence is None else fence.standing
    if age < quiet_seconds:
        return False, f"last publish {age:.0f} s ago"
    return True, f"no publish for {age:.0f} s"

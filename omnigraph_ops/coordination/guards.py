"""What stops a stage before its first effect: something pending, a lock, a freeze, a graph that is not quiet.

The journal of our own operations: which sidecars are ours, and which of their runs are still alive. Kept under
`__maintenance/operations/`; losing it never harms a graph, it only makes our own sidecars look foreign, which delays
their recovery by the grace period.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from omnigraph_ops.coordination.fence import stale_fence
from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.lease import is_held, working_holder
from omnigraph_ops.coordination.state import OPERATIONS_DIR, Records
from omnigraph_ops.errors import RecoveryNeeded, RecoveryPending
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.schema import staging_files
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.models.health import QuietState
from omnigraph_ops.models.runs import TableRow
from omnigraph_ops.storage.store import Storage


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


_LOOKS, _LOOK_SECONDS = 10, 0.3


def looks(graph: Graph) -> Iterator[int]:
    """Count a few looks, with a pause before each but the first; together they take three seconds. Waits.

    A writer publishes what it committed, and removes its sidecar, within that time. What every look finds is not of a
    writer at work.
    """
    for number in range(_LOOKS):
        if number:
            graph.run.pause(_LOOK_SECONDS)
        yield number


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

    Raises:
        LanceFailure: a branch cannot be read. The engine does not write to such a graph either.
        As `refuse_pending`.
    """
    graph.lance_branches()
    for number in looks(graph):
        try:
            refuse_pending(graph, beside_siblings=beside_siblings, table_key=table_key)
        except RecoveryPending as error:
            if number == _LOOKS - 1 or isinstance(error, RecoveryNeeded):
                raise
        else:
            return


def refuse_pending(graph: Graph, *, beside_siblings: bool = False, table_key: str | None = None) -> None:
    """Raise on any sidecar, schema staging file or schema-apply lock, and on a freeze. Reads.

    With `beside_siblings`, for looks without the lease, sidecars of our own journal do not count as long as their
    lease may be held: another table may be in its window right now.

    Raises:
        RecoveryNeeded: what is pending is of a run of ours that ended.
        RecoveryPending: something else is pending.
        GraphFrozen: the whole graph is frozen, or the table that this is about.
    """
    staged = staging_files(graph.storage)
    if staged:
        raise RecoveryPending(
            f"{graph.uri} has schema staging files ({', '.join(staged)}); nothing was written; "
            "let the schema apply finish or open the graph read-write with omnigraph"
        )
    names = sidecar_names(graph.storage)
    left = _left_behind(graph, names)
    if beside_siblings:
        names = left | {name for name in names if not _is_siblings(graph, name)}
    if names:
        raise (RecoveryNeeded if left else RecoveryPending)(
            f"{graph.uri} has {len(names)} pending recovery sidecar(s), first {min(names)}; nothing was written; "
            "run `omnigraph-ops check`, then `omnigraph-ops recover`"
        )
    if graph.is_locked():
        raise RecoveryPending(
            f"maintenance of {graph.uri} is unavailable while schema apply is in progress; nothing was written; "
            "run `omnigraph-ops check` to see what settles it"
        )
    refuse_frozen(graph, table_key)


def _left_behind(graph: Graph, names: frozenset[str]) -> frozenset[str]:
    """Those sidecars that a window of ours left which is over: its lease is that of another run, or nobody's. Reads."""
    ours = ((name, operation_of(graph.storage, name.removesuffix(".json"))) for name in names)
    over = frozenset(
        name
        for name, operation in ours
        if operation is not None and operation.lease_number and not is_held(graph.storage, operation.lease_number)
    )
    # What ended between these looks took its sidecar along.
    return over & sidecar_names(graph.storage) if over else over


def _is_siblings(graph: Graph, name: str) -> bool:
    """Whether a sidecar was ours, or is gone by now: disarming removes it before its record. Reads."""
    known = operation_of(graph.storage, name.removesuffix(".json")) is not None
    return known or name not in sidecar_names(graph.storage)


def quiet_state(graph: Graph, quiet_seconds: float) -> QuietState:
    """Whether the last publish is at least `quiet_seconds` old and no other run holds the lease. Reads.

    Pending recovery does not count, nor does a fence of a run that was killed: the recovery check comes next and
    decides about both.
    """
    age = seconds_since_publish(graph)
    lease = working_holder(graph.storage)
    if lease is not None:
        return _state(graph, quiet=False, reason=f"{lease.owner} is maintaining it ({lease.purpose})", age=age)
    if graph.is_locked() and stale_fence(graph) is None:
        return _state(graph, quiet=False, reason="a schema apply is in progress", age=age)
    if age < quiet_seconds:
        return _state(graph, quiet=False, reason=f"last publish {age:.0f} s ago", age=age)
    return _state(graph, quiet=True, reason=f"no publish for {age:.0f} s", age=age)


def seconds_since_publish(graph: Graph) -> float:
    """Age of the newest publish in seconds. Reads the clock."""
    published_at = graph.published_at()
    return max(0.0, time.time() - published_at) if published_at else 0.0


def _state(graph: Graph, *, quiet: bool, reason: str, age: float) -> QuietState:
    return QuietState(uri=graph.uri, quiet=quiet, reason=reason, seconds_since_publish=round(age, 1))

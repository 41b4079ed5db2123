"""The journal of our own operations: which sidecars are ours, and which of their runs are still alive.

Kept under `__maintenance/operations/`; losing it never harms a graph, it only makes our own sidecars
look foreign, which delays their recovery by the grace period.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.coordination.records import Records
from omnigraph_ops.coordination.state import OPERATIONS_DIR
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


def record(storage: Storage, operation: Operation) -> None:
    """Note an operation before its sidecar is armed. Writes under `__maintenance/`."""
    _OPERATIONS.write(storage, _path(operation.operation_id), operation)


def lookup(storage: Storage, operation_id: str) -> Operation | None:
    """Our record of an operation, None when it is not ours (or the record is lost). Reads."""
    return _OPERATIONS.read(storage, _path(operation_id))


def forget(storage: Storage, operation_id: str) -> None:
    """Drop the record of a finished operation. Destroys only the record."""
    storage.delete(_path(operation_id))


def sweep(storage: Storage, pending: frozenset[str]) -> None:
    """Drop records of operations that have no sidecar any more: they finished or never armed. Destroys records."""
    for path in _OPERATIONS.paths(storage, OPERATIONS_DIR):
        if path.rpartition("/")[2] not in pending:
            storage.delete(path)


def _path(operation_id: str) -> str:
    return f"{OPERATIONS_DIR}/{operation_id}.json"

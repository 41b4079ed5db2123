"""Refuse object stores without an atomic create-if-absent: every commit would be a coin toss there."""

from __future__ import annotations

import contextlib
import functools
import uuid
from concurrent.futures import ThreadPoolExecutor

from omnigraph_ops.coordination.state import PROBE_PREFIX
from omnigraph_ops.errors import StorageError
from omnigraph_ops.storage.store import Storage

_ROUNDS, _RACERS = 3, 8


def refuse_unsafe_store(storage: Storage) -> None:
    """Race exclusive creates below `__maintenance/`; raise `StorageError` unless exactly one wins each time. Writes.

    Local file systems link atomically and are not raced. A store that passed is not asked again by
    this process; its keys are deleted.
    """
    if not storage.is_local:
        _race(storage)


def _race(storage: Storage) -> None:
    if storage.root in _passed():
        return
    for _ in range(_ROUNDS):
        key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
        try:
            with ThreadPoolExecutor(max_workers=_RACERS) as pool:
                bodies = [f"racer {n}".encode() for n in range(_RACERS)]
                winners = sum(pool.map(functools.partial(storage.create, key), bodies))
        finally:
            with contextlib.suppress(StorageError):
                storage.delete(key)
        if winners != 1:
            raise StorageError(
                f"the object store of {storage.root} let {winners} of {_RACERS} writers create the same object: it "
                "does not honour conditional puts (If-None-Match), so commits would be lost without an error; nothing "
                "was written; use a store that does"
            )
    _passed().add(storage.root)


@functools.cache
def _passed() -> set[str]:
    return set()

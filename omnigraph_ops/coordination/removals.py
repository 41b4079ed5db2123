"""Announced removals: the versions that a cleanup is about to remove, for whoever wants to hold one of them.

A cleanup announces before it looks for holds, and a holder places its hold before it looks for announcements. So one of
the two always sees the other, also when the cleanup was stopped right before its effect for as long as you like.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omnigraph_ops.coordination.holds import HeldVersion
from omnigraph_ops.coordination.lease import is_running, process_name, this_machine
from omnigraph_ops.coordination.records import Records
from omnigraph_ops.coordination.state import REMOVALS_DIR
from omnigraph_ops.errors import StalePlan
from omnigraph_ops.graph.ids import new_ulid
from omnigraph_ops.storage.store import Storage

_DEAD_AFTER_SECONDS = 86_400.0
"""After so long a process on another machine, which nobody can ask, is taken for dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What a process is about to remove of one chain of a dataset."""

    table_path: str
    branch: str | None
    versions: tuple[int, ...] | None
    """None for the whole branch."""
    owner: str
    pid: int
    machine: str
    announced_at: float
    """Seconds since the epoch."""

    def takes(self, held: HeldVersion) -> bool:
        """Whether it removes that version. Pure."""
        same_chain = (self.table_path, self.branch) == (held.table_path, held.branch)
        return same_chain and (self.versions is None or held.version in self.versions)


_REMOVALS = Records(Removal)


@contextlib.contextmanager
def announced(
    storage: Storage, table_path: str, *, branch: str | None, versions: Sequence[int] | None
) -> Iterator[None]:
    """Announce a removal for the block, which looks for holds and then removes. Writes under `__maintenance/`."""
    removal = Removal(
        table_path=table_path,
        branch=branch,
        versions=None if versions is None else tuple(versions),
        owner=process_name(),
        pid=os.getpid(),
        machine=this_machine(),
        announced_at=time.time(),
    )
    path = f"{REMOVALS_DIR}/{new_ulid()}.json"
    _REMOVALS.write(storage, path, removal)
    try:
        yield
    finally:
        storage.delete(path)


def refuse_removed(storage: Storage, versions: Sequence[HeldVersion]) -> None:
    """Raise `StalePlan` when a cleanup is removing one of these versions; ask after the hold is placed. Reads."""
    for _, removal in _REMOVALS.all(storage, REMOVALS_DIR):
        taken = [held for held in versions if _is_active(removal) and removal.takes(held)]
        if taken:
            raise StalePlan(
                f"version {taken[0].version} of {taken[0].table_path} is being removed by a cleanup ({removal.owner}); "
                "nothing is held; hold a newer version, or try again when that cleanup has ended"
            )


def sweep_removals(storage: Storage) -> None:
    """Drop the announcements of processes that are gone. Destroys them."""
    for path, removal in _REMOVALS.all(storage, REMOVALS_DIR):
        if not _is_active(removal):
            storage.delete(path)


def _is_active(removal: Removal) -> bool:
    return is_running(removal.machine, removal.pid) and time.time() - removal.announced_at < _DEAD_AFTER_SECONDS

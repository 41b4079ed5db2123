"""The backup that this process makes: its folder, claimed by a lease, and its freeze.

The freeze is given by somebody, or taken by the backup itself, prolonged while it works, and ended.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph_ops.coordination.freezes import active_freezes, unfreeze
from omnigraph_ops.coordination.holds import read_hold
from omnigraph_ops.coordination.lease import LeaseKeeper, LeasePlace, patient_lease
from omnigraph_ops.errors import InvalidInput, LeaseHeld, OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import BACKUP_START, is_ulid, new_ulid
from omnigraph_ops.models.backup import BackupStart
from omnigraph_ops.models.freeze import Freeze
from omnigraph_ops.outcomes.backups import JOURNAL, LEASE, backup_ids, is_finished, read_start
from omnigraph_ops.progress import Progress, Stopped
from omnigraph_ops.stages.freeze.observe import verify_cut
from omnigraph_ops.stages.freeze.take import active_freeze, extend_freeze, freeze_graph, said_of
from omnigraph_ops.storage.inventory import files_below, remove_folder
from omnigraph_ops.storage.store import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A backup that is this process's to make."""

    backup_id: str
    before: BackupStart | None
    """How it was begun, when it is gone on with."""
    keeper: LeaseKeeper


@contextlib.contextmanager
def claimed(destination: Storage, uri: str) -> Iterator[Claim]:
    """Claim a backup for the block. Writes a lease into its folder."""
    with contextlib.ExitStack() as stack:
        yield _unfinished(stack, destination, uri) or _new(stack, destination)


def _unfinished(stack: contextlib.ExitStack, destination: Storage, uri: str) -> Claim | None:
    for backup_id in backup_ids(destination):
        if is_finished(destination, backup_id) or not _may_continue(destination, backup_id, uri):
            continue
        attempt = contextlib.ExitStack()
        try:
            keeper = attempt.enter_context(_lease(destination, backup_id))
        except LeaseHeld:
            continue
        if is_finished(destination, backup_id):  # its maker was just done
            attempt.close()
            continue
        stack.enter_context(attempt)
        return Claim(backup_id=backup_id, before=read_start(destination, backup_id), keeper=keeper)
    return None


def _may_continue(destination: Storage, backup_id: str, uri: str) -> bool:
    """Whether it is of this graph, or was killed before it said of which. Reads."""
    start = read_start(destination, backup_id)
    if start is not None:
        return start.uri == uri
    return _holds_only(destination, backup_id, LEASE, BACKUP_START)


def _holds_only(destination: Storage, backup_id: str, *names: str) -> bool:
    """Whether all files of a backup begin with one of these names. Reads."""
    files = [s.path.rpartition("/")[2] for s in files_below(destination, backup_id)]
    return all(name.startswith(names) for name in files)


def _new(stack: contextlib.ExitStack, destination: Storage) -> Claim:
    backup_id = new_ulid()
    stack.callback(remove_folder, destination, backup_id)
    keeper = stack.enter_context(_lease(destination, backup_id))
    stack.callback(_drop_unbegun, destination, backup_id)
    return Claim(backup_id=backup_id, before=None, keeper=keeper)


def _drop_unbegun(destination: Storage, backup_id: str) -> None:
    """Leave nothing of a backup that ended before it began: the graph could not be frozen, say. Destroys its lease."""
    with contextlib.suppress(OpsError):
        if _holds_only(destination, backup_id, LEASE):
            destination.delete_tree(backup_id)


def _lease(destination: Storage, backup_id: str) -> contextlib.AbstractContextManager[LeaseKeeper]:
    place = LeasePlace(path=f"{backup_id}/{LEASE}", name=f"the backup {backup_id}")
    return patient_lease(destination, place, purpose="backup")


OWN_TTL_SECONDS = 3600.0
"""After a kill the graph stays frozen this long at most; while the backup works, the end is moved."""


def given_freeze(graph: Graph, freeze_id: str) -> Freeze:
    """A freeze that somebody else took and ends. Reads.

    Raises:
        InvalidInput: there is none, it is still being taken, it has ended, or it is about other tables.
    """
    freeze = active_freeze(graph, freeze_id)
    if freeze.tables != graph.addressed:
        about = f"{', '.join(freeze.tables)} only" if freeze.tables else "all there is"
        raise InvalidInput(
            f"freeze {freeze_id} is about {about}, a backup of {graph.target} is of "
            f"{', '.join(graph.addressed) or 'all of it'}; nothing was copied; freeze what is to be backed up, or back "
            "up without a freeze"
        )
    return freeze


@contextlib.contextmanager
def kept_freeze(graph: Graph, claim: Claim, given: str | None, progress: Progress) -> Iterator[Freeze]:
    """The freeze of which a backup is made, for the block. Writes tags and a hold where none is given."""
    if given is None:
        with own_freeze(graph, claim.backup_id, claim.before, progress) as freeze:
            yield freeze
    else:
        _end_of_before(graph, claim, given, progress)
        yield given_freeze(graph, given)


@contextlib.contextmanager
def own_freeze(graph: Graph, backup_id: str, before: BackupStart | None, progress: Progress) -> Iterator[Freeze]:
    """Freeze the graph for the block, or go on with the freeze of a killed attempt. Writes tags and a hold."""
    freeze = _of_before(graph, _left_freeze(graph, backup_id, before), progress) or freeze_graph(
        graph, ttl_seconds=OWN_TTL_SECONDS, reason=_reason(backup_id), progress=progress
    )
    stop = threading.Event()
    thread = threading.Thread(target=_prolong, args=(graph, freeze.freeze_id, stop), name="freeze", daemon=True)
    thread.start()
    try:
        yield freeze
    finally:
        stop.set()
        thread.join()
        _end(graph, freeze.freeze_id, progress)


def _end_of_before(graph: Graph, claim: Claim, given: str, progress: Progress) -> None:
    """End the freeze of a killed attempt, unless it is the given one. Destroys its tags and record."""
    left = _left_freeze(graph, claim.backup_id, claim.before)
    if left is not None and left != given and read_hold(graph.storage, left) is not None:
        _end(graph, left, progress)


def end_of_finished(graph: Graph, destination: Storage, given: str | None, progress: Progress) -> None:
    """End what backups left that were killed after they were finished. Destroys tags and records, and their journals.

    The freeze of a finished backup keeps nothing for it: one at work ends it next, and only finds that done.
    """
    for hold in active_freezes(graph.storage):
        backup_id = hold.reason.removeprefix(_reason(""))
        if hold.reason != _reason(backup_id) or not is_ulid(backup_id) or hold.hold_id == given:
            continue
        start = read_start(destination, backup_id)
        if start is None or start.freeze_id != hold.hold_id or not is_finished(destination, backup_id):
            continue
        _end(graph, hold.hold_id, progress)
        with contextlib.suppress(StorageError):
            destination.delete_tree(f"{backup_id}/{JOURNAL}")


def _reason(backup_id: str) -> str:
    return f"backup {backup_id}"


def _left_freeze(graph: Graph, backup_id: str, before: BackupStart | None) -> str | None:
    """The freeze that a killed attempt took for itself, also where it was killed before it noted that. Reads."""
    noted = before.freeze_id if before is not None and before.own_freeze else None
    found = (
        hold.hold_id
        for hold in active_freezes(graph.storage)
        if hold.reason == _reason(backup_id) and hold.freeze is not None and hold.freeze.tables == graph.addressed
    )
    return next(found, noted)


def _of_before(graph: Graph, left: str | None, progress: Progress) -> Freeze | None:
    """The freeze of a killed attempt; None if it has ended or has lost a part of its cut, which ends it."""
    if left is None:
        return None
    try:
        problems = verify_cut(graph, active_freeze(graph, left))
        if not problems:
            return extend_freeze(graph, left, OWN_TTL_SECONDS)
    except InvalidInput:
        return None
    progress(f"freeze {left} has lost {said_of(problems)}; the backup continues with a new freeze")
    _end(graph, left, progress)
    return None


def _prolong(graph: Graph, freeze_id: str, stop: threading.Event) -> None:
    while not stop.wait(OWN_TTL_SECONDS / 4):
        # One that fails costs a quarter of the time that is left; that the cut is whole is looked at in the end.
        with contextlib.suppress(OpsError, Stopped):
            extend_freeze(graph, freeze_id, OWN_TTL_SECONDS)


def _end(graph: Graph, freeze_id: str, progress: Progress) -> None:
    try:
        unfreeze(graph, freeze_id)
    except InvalidInput:
        progress(f"freeze {freeze_id} had ended already")
    except (OpsError, Stopped) as error:
        why = "the run was asked to stop" if isinstance(error, Stopped) else error
        progress(f"freeze {freeze_id} could not be ended ({why}); it ends by itself")

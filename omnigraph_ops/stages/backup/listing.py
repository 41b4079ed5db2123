"""The backups of a place, finished or not, and which of them this process works on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from omnigraph_ops.coordination.lease import LeaseKeeper, LeasePlace, patient_lease
from omnigraph_ops.errors import LeaseHeld, OpsError, StorageError
from omnigraph_ops.graph.layout import is_ulid, new_ulid
from omnigraph_ops.models.backup import BackupList, BackupStart, BackupState, ListedBackup
from omnigraph_ops.outcomes.backups import (
    LEASE,
    STARTED,
    is_finished,
    place_of,
    read_record,
    read_start,
    read_verification,
)
from omnigraph_ops.quantities import moment
from omnigraph_ops.stages.backup.transfer import tally
from omnigraph_ops.storage.inventory import below_folder, folders_in, remove_folder
from omnigraph_ops.storage.location import AMBIENT, StoreAccess
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


def backup_ids(destination: Storage) -> tuple[str, ...]:
    """Ids of all backups at a destination, finished or not, newest first. Reads."""
    names = (folder.rpartition("/")[2] for folder in folders_in(destination, ""))
    return tuple(sorted((name for name in names if is_ulid(name)), reverse=True))


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
    return _holds_only(destination, backup_id, LEASE, STARTED)


def _holds_only(destination: Storage, backup_id: str, *names: str) -> bool:
    """Whether all files of a backup begin with one of these names. Reads."""
    files = [s.path.rpartition("/")[2] for s in below_folder(destination, backup_id) if not s.is_folder]
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


def list_backups(target: str) -> BackupList:
    """Every backup below a destination, newest first. Reads."""
    destination = place_of(target)
    return BackupList(
        destination=destination.root,
        backups=tuple(_listed(destination, backup_id) for backup_id in backup_ids(destination)),
    )


def _listed(destination: Storage, backup_id: str) -> ListedBackup:
    listed = ListedBackup(backup_id=backup_id, backup=destination.uri(backup_id), state=BackupState.UNFINISHED)
    if not is_finished(destination, backup_id):
        start = read_start(destination, backup_id)
        if start is None:
            return listed
        return replace(listed, uri=start.uri, started_at=start.started_at, age_seconds=_age(start.started_at))
    try:
        record = read_record(destination, backup_id)
    except OpsError as error:
        state = BackupState.UNREADABLE if isinstance(error, StorageError) else BackupState.DAMAGED
        return replace(listed, state=state, detail=str(error))
    finished = replace(
        listed,
        state=BackupState.FINISHED,
        uri=record.uri,
        started_at=record.started_at,
        age_seconds=_age(record.cut_at),
        total=tally(record.files),
        incremental_from=record.incremental_from,
    )
    return _verified(destination, finished)


def _verified(destination: Storage, listed: ListedBackup) -> ListedBackup:
    """A finished backup with what its last verify found. Reads."""
    try:
        last = read_verification(destination, listed.backup_id)
    except OpsError as error:
        return replace(listed, sound=False, detail=str(error))
    if last is None:
        return listed
    when = moment(int(last.verified_at * 1e6))
    detail = "" if last.sound else f"failed verification at {when}, problems: {len(last.problems):,}"
    return replace(listed, verified_at=last.verified_at, sound=last.sound, detail=detail)


def _age(since: float) -> int:
    return max(int(time.time() - since), 0)


def newest_finished(target: str, uri: str, access: StoreAccess = AMBIENT) -> str | None:
    """The newest finished backup of that graph below a destination, None when there is none. Reads.

    One that failed its last verify is returned only when there is no other.
    """
    destination = place_of(target, access)
    failed: str | None = None
    for backup_id in backup_ids(destination):
        listed = _listed(destination, backup_id)
        if listed.state is not BackupState.FINISHED or listed.uri != uri:
            continue
        if listed.sound is not False:
            return listed.backup
        failed = failed or listed.backup
    return failed


def damaged_files(destination: Storage, files: Collection[str]) -> frozenset[str]:
    """Which of these files the last verify of any backup at a destination named. Reads.

    It asks for every backup there, because they share files: the same damaged file may be in several. Where the record
    of a verify cannot be read, all files count as named.
    """
    named = set[str]()
    for backup_id in backup_ids(destination):
        try:
            last = read_verification(destination, backup_id)
        except OpsError:
            return frozenset(files)
        if last is not None:
            named.update(problem.file for problem in last.problems)
    return frozenset(files) & named

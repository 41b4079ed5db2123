"""What is where below a destination of backups, and the files that say what a backup is and what verify found."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from omnigraph_ops import serde
from omnigraph_ops.coordination.state import Records
from omnigraph_ops.errors import CorruptGraph, InvalidInput, OpsError, StorageError
from omnigraph_ops.graph.layout import BACKUP_RECORD, BACKUP_START, MANIFEST_DIR, is_ulid
from omnigraph_ops.models.backup import (
    BackupLeft,
    BackupList,
    BackupRecord,
    BackupStart,
    BackupState,
    ListedBackup,
    Tally,
    Verification,
)
from omnigraph_ops.quantities import moment_at
from omnigraph_ops.storage.inventory import below_folder, folders_in
from omnigraph_ops.storage.location import AMBIENT, StoreAccess, locate
from omnigraph_ops.storage.store import Storage

VERIFIED = "verified.json"
LEASE = "lease"
JOURNAL = "journal"
ORDERS = "orders"
FILES = "files"
_PLACE = re.compile(r"/|s3://[^/]")


def place_of(target: str, access: StoreAccess = AMBIENT) -> Storage:
    """The store below a path or URI; `InvalidInput` for what is neither. Reads the working directory."""
    root = locate(target).root
    return Storage(root, access)


def backup_of(target: str, access: StoreAccess = AMBIENT) -> tuple[Storage, str]:
    """The destination and the id of the backup at `target`. Reads.

    Raises:
        InvalidInput: it is not the folder of a backup; backups below it are named.
    """
    root = locate(target).root
    parent, _, backup_id = root.rpartition("/")
    if is_ulid(backup_id) and _PLACE.match(parent):
        return Storage(parent, access), backup_id
    raise InvalidInput(
        f"{root} is not a backup: give the folder of one, named by its id; `omnigraph-ops backups {root}` lists "
        "those below a destination"
    )


def is_inside(place: Storage, root: str) -> bool:
    """Whether a place is a graph's or backup's root, or below it, however either is spelled. Reads links."""
    one, other = (os.path.realpath(p) if not p.startswith("s3://") else p for p in (place.root, root))
    return f"{one}/".startswith(f"{other}/")


def graph_around(place: Storage, *, itself: bool) -> str | None:
    """The graph that a place is inside of, or also is; None where none is to be seen. Reads."""
    root = os.path.realpath(place.root) if place.is_local else place.root
    for parent in [root, *_above(root)] if itself else _above(root):
        with contextlib.suppress(StorageError):
            if place.at(parent).list(f"{MANIFEST_DIR}/_versions"):
                return parent
    return None


def _above(root: str) -> list[str]:
    """Every folder above a path, every prefix above a key down to the bucket; nearest first. Pure."""
    scheme = "s3://" if root.startswith("s3://") else ""
    parts = root.removeprefix(scheme).split("/")
    return [scheme + "/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1) if parts[n - 1]]


def stored_at(backup_id: str, file: str) -> str:
    """Where a backup has a file of the graph, relative to the destination. Pure."""
    return f"{backup_id}/{FILES}/{file}"


def present_files(destination: Storage, backup_id: str) -> dict[str, int]:
    """Sizes of what a backup has, by the file of the graph. Reads."""
    folder = f"{backup_id}/{FILES}"
    return {s.path[len(folder) + 1 :]: s.size for s in below_folder(destination, folder) if not s.is_folder}


_STARTS = Records(BackupStart)


def write_record(destination: Storage, record: BackupRecord) -> BackupRecord:
    """Seal and write the record, which finishes the backup. Writes."""
    sealed = replace(record, digest=serde.digest(replace(record, digest="")))
    Records(BackupRecord).write(destination, f"{record.backup_id}/{BACKUP_RECORD}", sealed)
    return sealed


def read_record(destination: Storage, backup_id: str) -> BackupRecord:
    """The record of a finished backup. Reads.

    Raises:
        InvalidInput: there is no such backup, or it is not finished.
        CorruptGraph: its record was damaged or altered.
    """
    where = destination.uri(backup_id)

    def damaged(_path: str, error: InvalidInput) -> None:
        raise CorruptGraph(f"{where}/{BACKUP_RECORD} is damaged ({error}); the backup cannot be trusted") from None

    record = Records(BackupRecord, unreadable=damaged).read(destination, f"{backup_id}/{BACKUP_RECORD}")
    if record is None:
        raise InvalidInput(_why_none(destination, backup_id))
    if serde.digest(replace(record, digest="")) != record.digest or record.backup_id != backup_id:
        raise CorruptGraph(f"{where}/{BACKUP_RECORD} was altered after it was sealed; the backup cannot be trusted")
    outside = next((p for p in _paths(record) if {"", ".", ".."}.intersection(p.split("/"))), None)
    if outside is not None:
        raise CorruptGraph(
            f"{where}/{BACKUP_RECORD} names {outside!r}, which is outside of any graph; nothing was written"
        )
    return record


def is_finished(destination: Storage, backup_id: str) -> bool:
    """Whether a record was written, sound or not. Reads."""
    return destination.exists(f"{backup_id}/{BACKUP_RECORD}")


def write_start(destination: Storage, start: BackupStart) -> None:
    """Say that a backup is being made. Writes."""
    _STARTS.write(destination, f"{start.backup_id}/{BACKUP_START}", start)


def read_start(destination: Storage, backup_id: str) -> BackupStart | None:
    """How a backup was begun; None when nothing readable says so. Reads."""
    return _STARTS.read(destination, f"{backup_id}/{BACKUP_START}")


def _illegible(path: str, error: InvalidInput) -> None:
    raise InvalidInput(f"{path} cannot be read ({error}); verify the backup again") from None


_VERIFIED = Records(Verification, unreadable=_illegible)


def write_verification(destination: Storage, backup_id: str, outcome: Verification) -> str | None:
    """Record what a verify found; why that was not possible, None when it was. Writes."""
    try:
        # A folder that somebody deleted meanwhile must not come back as an unfinished backup.
        destination.stat(f"{backup_id}/{BACKUP_RECORD}")
        _VERIFIED.write(destination, f"{backup_id}/{VERIFIED}", outcome)
    except StorageError as error:
        return str(error)
    except FileNotFoundError:
        return "the backup was deleted during the verify"
    return None


def read_verification(destination: Storage, backup_id: str) -> Verification | None:
    """What the last verify of a backup found, None when none recorded it. Reads.

    Raises:
        InvalidInput: its record was damaged, or a later release wrote it.
        StorageError: the store does not give it.
    """
    path = f"{backup_id}/{VERIFIED}"
    found = _VERIFIED.read(destination, path)
    if found is not None and not math.isfinite(found.verified_at):
        raise InvalidInput(f"{path} cannot be read (its time is no number); verify the backup again")
    return found


def left_of(destination: Storage, backup_id: str) -> BackupLeft | None:
    """What lies in the place of a backup, None when that is nothing. Reads.

    Raises:
        CorruptGraph: its record was damaged or altered.
    """
    finished = is_finished(destination, backup_id)
    if not finished and read_start(destination, backup_id) is None:
        return None
    if finished:
        total = read_record(destination, backup_id).total
    else:
        sizes = present_files(destination, backup_id).values()
        total = Tally(files=len(sizes), bytes=sum(sizes))
    return BackupLeft(backup=destination.uri(backup_id), backup_id=backup_id, finished=finished, total=total)


def _paths(record: BackupRecord) -> Iterator[str]:
    """Every path that a restore would write or record. Pure."""
    yield from (f.file for f in record.files)
    yield from (r.place for r in record.roots if r.place)  # the root itself, or a place that stays as it is


def _why_none(destination: Storage, backup_id: str) -> str:
    where, start = destination.uri(backup_id), read_start(destination, backup_id)
    if start is None:
        return f"there is no backup at {where}"
    return (
        f"the backup {where} is unfinished and is never restored; "
        f"`omnigraph-ops backup {start.uri} {destination.root}` continues it"
    )


def backup_ids(destination: Storage) -> tuple[str, ...]:
    """Ids of all backups at a destination, finished or not, newest first. Reads."""
    names = (folder.rpartition("/")[2] for folder in folders_in(destination, ""))
    return tuple(sorted((name for name in names if is_ulid(name)), reverse=True))


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
        total=record.total,
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
    when = moment_at(last.verified_at)
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

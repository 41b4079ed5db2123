"""The two files that say what a backup is: begun (`started.json`) and finished (`backup.json`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omnigraph_ops import serde
from omnigraph_ops.coordination.records import Records
from omnigraph_ops.errors import CorruptGraph, InvalidInput
from omnigraph_ops.models.backup import BackupLeft, BackupRecord, BackupStart, Tally
from omnigraph_ops.outcomes.backup_places import RECORD, STARTED, present_files, uri_of
from omnigraph_ops.storage.store import Storage

_STARTS = Records(BackupStart)


def write_record(destination: Storage, record: BackupRecord) -> BackupRecord:
    """Seal and write the record, which finishes the backup. Writes."""
    sealed = replace(record, digest=serde.digest(replace(record, digest="")))
    Records(BackupRecord).write(destination, f"{record.backup_id}/{RECORD}", sealed)
    return sealed


def read_record(destination: Storage, backup_id: str) -> BackupRecord:
    """The record of a finished backup. Reads.

    Raises:
        InvalidInput: there is no such backup, or it is not finished.
        CorruptGraph: its record was damaged or altered.
    """
    where = uri_of(destination, backup_id)

    def damaged(_path: str, error: InvalidInput) -> None:
        raise CorruptGraph(f"{where}/{RECORD} is damaged ({error}); the backup cannot be trusted") from None

    record = Records(BackupRecord, unreadable=damaged).read(destination, f"{backup_id}/{RECORD}")
    if record is None:
        raise InvalidInput(_why_none(destination, backup_id))
    if serde.digest(replace(record, digest="")) != record.digest or record.backup_id != backup_id:
        raise CorruptGraph(f"{where}/{RECORD} was altered after it was sealed; the backup cannot be trusted")
    outside = next((p for p in _paths(record) if {"", ".", ".."}.intersection(p.split("/"))), None)
    if outside is not None:
        raise CorruptGraph(f"{where}/{RECORD} names {outside!r}, which is outside of any graph; nothing was written")
    return record


def is_finished(destination: Storage, backup_id: str) -> bool:
    """Whether a record was written, sound or not. Reads."""
    return destination.exists(f"{backup_id}/{RECORD}")


def write_start(destination: Storage, start: BackupStart) -> None:
    """Say that a backup is being made. Writes."""
    _STARTS.write(destination, f"{start.backup_id}/{STARTED}", start)


def read_start(destination: Storage, backup_id: str) -> BackupStart | None:
    """How a backup was begun; None when nothing readable says so. Reads."""
    return _STARTS.read(destination, f"{backup_id}/{STARTED}")


def left_of(destination: Storage, backup_id: str) -> BackupLeft | None:
    """What lies in the place of a backup, None when that is nothing. Reads.

    Raises:
        CorruptGraph: its record was damaged or altered.
    """
    finished = is_finished(destination, backup_id)
    if not finished and read_start(destination, backup_id) is None:
        return None
    if finished:
        record = read_record(destination, backup_id)
        total = Tally(files=len(record.files), bytes=record.total_bytes)
    else:
        sizes = present_files(destination, backup_id).values()
        total = Tally(files=len(sizes), bytes=sum(sizes))
    return BackupLeft(backup=uri_of(destination, backup_id), backup_id=backup_id, finished=finished, total=total)


def _paths(record: BackupRecord) -> Iterator[str]:
    """Every path that a restore would write or record. Pure."""
    yield from (f.file for f in record.files)
    yield from (r.place for r in record.roots)


def _why_none(destination: Storage, backup_id: str) -> str:
    where, start = uri_of(destination, backup_id), read_start(destination, backup_id)
    if start is None:
        return f"there is no backup at {where}"
    return (
        f"the backup {where} is unfinished and is never restored; "
        f"`omnigraph-ops backup {start.uri} {destination.root}` continues it"
    )

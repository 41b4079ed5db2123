"""The backups of a place, finished or not."""

from __future__ import annotations

import time

from omnigraph_ops.errors import OpsError
from omnigraph_ops.models.backup import BackupList, BackupState, ListedBackup
from omnigraph_ops.outcomes.backup_places import place_of, uri_of
from omnigraph_ops.outcomes.backup_records import is_finished, read_record, read_start
from omnigraph_ops.stages.backup.claim import backup_ids
from omnigraph_ops.stages.backup.plan import tally
from omnigraph_ops.storage.options import AMBIENT, StoreAccess
from omnigraph_ops.storage.store import Storage


def list_backups(target: str, access: StoreAccess = AMBIENT) -> BackupList:
    """Every backup below a destination, newest first. Reads."""
    destination = place_of(target, access)
    return BackupList(
        destination=destination.root,
        backups=tuple(_listed(destination, backup_id) for backup_id in backup_ids(destination)),
    )


def _listed(destination: Storage, backup_id: str) -> ListedBackup:
    where = uri_of(destination, backup_id)
    if not is_finished(destination, backup_id):
        return _unfinished(destination, backup_id, where)
    try:
        record = read_record(destination, backup_id)
    except OpsError as error:
        return ListedBackup(
            backup_id=backup_id,
            backup=where,
            state=BackupState.DAMAGED,
            uri="",
            started_at=None,
            age_seconds=None,
            total=None,
            incremental_from=None,
            detail=str(error),
        )
    return ListedBackup(
        backup_id=backup_id,
        backup=where,
        state=BackupState.FINISHED,
        uri=record.uri,
        started_at=record.started_at,
        age_seconds=_age(record.cut_at),
        total=tally(record.files),
        incremental_from=record.incremental_from,
    )


def _unfinished(destination: Storage, backup_id: str, where: str) -> ListedBackup:
    start = read_start(destination, backup_id)
    return ListedBackup(
        backup_id=backup_id,
        backup=where,
        state=BackupState.UNFINISHED,
        uri=start.uri if start is not None else "",
        started_at=start.started_at if start is not None else None,
        age_seconds=_age(start.started_at) if start is not None else None,
        total=None,
        incremental_from=None,
    )


def _age(since: float) -> int:
    return max(int(time.time() - since), 0)


def newest_finished(target: str, uri: str, access: StoreAccess = AMBIENT) -> str | None:
    """The newest finished backup of that graph below a destination, None when there is none. Reads."""
    destination = place_of(target, access)
    found = (_listed(destination, backup_id) for backup_id in backup_ids(destination))
    return next((b.backup for b in found if b.state is BackupState.FINISHED and b.uri == uri), None)

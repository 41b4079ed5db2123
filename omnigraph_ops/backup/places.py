"""What is where below a destination: one folder per backup, named by its id."""

from __future__ import annotations

from omnigraph_ops.edges.options import AMBIENT, StoreAccess
from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.ids import is_ulid
from omnigraph_ops.graph.location import locate

RECORD = "backup.json"
STARTED = "started.json"
LEASE = "lease.json"
JOURNAL = "journal"
FILES = "files"


def place_of(target: str, access: StoreAccess = AMBIENT) -> Storage:
    """The store below a path or URI; `InvalidInput` for what is neither. Reads the working directory."""
    root = locate(target).root
    return Storage(root, access.s3fs(root))


def backup_of(target: str, access: StoreAccess = AMBIENT) -> tuple[Storage, str]:
    """The destination and the id of the backup at `target`. Reads.

    Raises:
        InvalidInput: it is not the folder of a backup; backups below it are named.
    """
    root = locate(target).root
    parent, _, backup_id = root.rpartition("/")
    if is_ulid(backup_id):
        return Storage(parent, access.s3fs(parent)), backup_id
    raise InvalidInput(
        f"{root} is not a backup: give the folder of one, named by its id; `omnigraph-ops backups {root}` lists "
        "those below a destination"
    )


def stored_at(backup_id: str, file: str) -> str:
    """Where a backup has a file of the graph, relative to the destination. Pure."""
    return f"{backup_id}/{FILES}/{file}"


def uri_of(destination: Storage, backup_id: str) -> str:
    """What `verify` and `restore` take. Pure."""
    return f"{destination.root}/{backup_id}"

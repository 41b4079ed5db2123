"""What is where below a destination: one folder per backup, named by its id."""

from __future__ import annotations

import contextlib
import os
import re

from omnigraph_ops.edges.inventory import below_folder
from omnigraph_ops.edges.options import AMBIENT, StoreAccess
from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.errors import InvalidInput, StorageError
from omnigraph_ops.graph.ids import is_ulid
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.location import locate

RECORD = "backup.json"
STARTED = "started.json"
LEASE = "lease"
JOURNAL = "journal"
FILES = "files"
_PLACE = re.compile(r"/|s3://[^/]")


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
    if is_ulid(backup_id) and _PLACE.match(parent):
        return Storage(parent, access.s3fs(parent)), backup_id
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


def uri_of(destination: Storage, backup_id: str) -> str:
    """What `verify` and `restore` take. Pure."""
    return f"{destination.root}/{backup_id}"


def present_files(destination: Storage, backup_id: str) -> dict[str, int]:
    """Sizes of what a backup has, by the file of the graph. Reads."""
    folder = f"{backup_id}/{FILES}"
    return {s.path[len(folder) + 1 :]: s.size for s in below_folder(destination, folder) if not s.is_folder}

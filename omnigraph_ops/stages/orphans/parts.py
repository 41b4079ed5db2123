"""The files of a plan as Parquet files in the graph: written by tasks, read one after the other.

    __maintenance/plans/<id>/files-<task>-<number>.<attempt>.parquet

A part that is not named, with its checksum, in a sealed plan counts for nothing.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from omnigraph_ops.coordination.environment import clock_problem
from omnigraph_ops.coordination.sealed import KEPT_AFTER_EXPIRY_US
from omnigraph_ops.coordination.state import PLANS_DIR
from omnigraph_ops.errors import StalePlan
from omnigraph_ops.graph.layout import is_plain, is_ulid, made_at_us, now_us
from omnigraph_ops.models.orphans import FilesInParts, OrphanFile, OrphanGroup, OrphanKind, OrphansPlan, PlanPart
from omnigraph_ops.stages.orphans.sorting import Candidate, Totals
from omnigraph_ops.storage.inventory import folders_in
from omnigraph_ops.storage.parquet import from_parquet, to_parquet
from omnigraph_ops.storage.store import Storage

MOST_IN_PART = 100_000
"""Rows of a part: what a process that reads it holds in memory."""
_MOST_SHOWN = 1000
_TYPES = {"path": "string", "size": "int64", "modified_at": "float64", "kind": "string", "group": "string"}


def folder_of(plan_id: str) -> str:
    """Where the parts of a plan are, relative to the graph. Pure."""
    return f"{PLANS_DIR}/{plan_id}"


def put_part(storage: Storage, folder: str, name: str, candidates: Sequence[Candidate]) -> PlanPart:
    """Write one part. Writes."""
    rows = [(c.file.path, c.file.size, c.file.modified_at, c.file.kind.value, c.group) for c in candidates]
    data = to_parquet(_TYPES, rows)
    storage.write(f"{folder}/{name}", data)
    return PlanPart(name=name, rows=len(rows), sha256=hashlib.sha256(data).hexdigest())


def sweep_parts(storage: Storage, plan_ttl_seconds: float) -> None:
    """Drop the parts of plans that expired long ago, and what a lost submit left so long ago. Destroys files."""
    for folder in folders_in(storage, PLANS_DIR):
        plan_id, kept = folder.rpartition("/")[2], int(plan_ttl_seconds * 1e6) + KEPT_AFTER_EXPIRY_US
        if is_ulid(plan_id) and now_us() > made_at_us(plan_id) + kept and clock_problem(storage) is None:
            storage.delete_tree(folder)


def described(storage: Storage, parts: FilesInParts, totals: Totals, staying: Collection[str]) -> FilesInParts:
    """The parts with what a person is shown of them. Reads the first of them.

    Args:
        staying: groups that do not go.
    """
    files = (c.file for c in _candidates(storage, parts) if c.group not in staying)
    sample = sorted(itertools.islice(files, _MOST_SHOWN), key=lambda f: f.path)
    return replace(parts, places=totals.places(without=staying), sample=tuple(sample))


def files_of(storage: Storage, plan: OrphansPlan) -> Iterator[OrphanFile]:
    """Every file of a plan, part by part where they are in parts. Reads.

    Raises:
        StalePlan: a part is gone or was altered.
    """
    return iter(plan.files) if plan.parts is None else files_in_parts(storage, plan.parts, plan.groups)


def files_in_parts(storage: Storage, parts: FilesInParts, groups: Sequence[OrphanGroup]) -> Iterator[OrphanFile]:
    """Every file in parts, without the groups that stay. As `files_of`."""
    going = {None, *(g.path for g in groups if g.kept is None)}
    return (c.file for c in _candidates(storage, parts) if c.group in going)


def check_parts(storage: Storage, parts: FilesInParts) -> None:
    """Raise `StalePlan` if a part is gone or was altered. Reads all of them."""
    for part in parts.parts:
        _content(storage, parts.folder, part)


def copy_parts(storage: Storage, parts: FilesInParts, folder: str) -> FilesInParts:
    """Copy the parts into another folder of the graph. Writes."""
    for part in parts.parts:
        storage.write(f"{folder}/{part.name}", _content(storage, parts.folder, part))
    return replace(parts, folder=folder, sample=())


def _candidates(storage: Storage, parts: FilesInParts) -> Iterator[Candidate]:
    for part in parts.parts:
        for row in from_parquet(_content(storage, parts.folder, part)):
            file = OrphanFile(
                path=row["path"], size=row["size"], modified_at=row["modified_at"], kind=OrphanKind(row["kind"])
            )
            yield Candidate(file=file, group=row["group"])


def _content(storage: Storage, folder: str, part: PlanPart) -> bytes:
    path = f"{folder}/{part.name}"
    if not is_plain(path):
        raise StalePlan(f"{path!r} is no place of a part of a plan; plan again")
    try:
        data = storage.read(path)
    except FileNotFoundError:
        raise StalePlan(f"{path}, a part of the plan, is gone; nothing of it was deleted; plan again") from None
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise StalePlan(f"{path} was altered after the plan was made; nothing of it was deleted; plan again")
    return data

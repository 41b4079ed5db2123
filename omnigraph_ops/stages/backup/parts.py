"""A copy in parts, each done by another process: the same transfer, resumed from the same journal.

The submitter plans the copy and writes it below the backup; workers carry the parts out and journal every file:

    <backup>/orders/order.json          what all parts share, and which attempt they belong to
    <backup>/orders/part-<number>.json  the files of one part

The folder goes with the attempt. A worker that survives its attempt stops as soon as the order is gone or another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from omnigraph_ops.coordination.state import Records
from omnigraph_ops.errors import CorruptGraph, OpsError, StorageError
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.models.backup import CopyDone, CopyOrder, CopyPart, PlaceOfBackup, Tally
from omnigraph_ops.models.freeze import CutFile
from omnigraph_ops.outcomes.backups import ORDERS, present_files, stored_at
from omnigraph_ops.progress import SILENT, Meter
from omnigraph_ops.quantities import count, human_bytes
from omnigraph_ops.stages.backup.transfer import (
    CopyJournal,
    CopyPace,
    CopyPlan,
    Transfer,
    Transferred,
    plan_copy,
    read_journal,
    remove_all,
)
from omnigraph_ops.stages.stage import Submit
from omnigraph_ops.storage.half_written import is_half_written
from omnigraph_ops.storage.inventory import OpsFault, look_again
from omnigraph_ops.storage.store import Storage

T = TypeVar("T")
_PART_BYTES = 256 * 1024 * 1024
_PART_FILES = 500
"""Bounds one part: what a worker holds in memory and what a lost one repeats at most."""
THREADS = 4
"""Of one part: hides the waits of a store without filling the memory of a worker."""
_LOOK_SECONDS = 5.0
_ORDERS = Records(CopyOrder)
_PARTS = Records(CopyPart)


def parts_of(plan: CopyPlan) -> Iterator[CopyPart]:
    """The work of a plan in parts of bounded bytes and files, the largest files first. Pure."""
    kinds = (("copy", plan.copy), ("link", plan.link), ("unproven", plan.unproven))
    work = sorted(((kind, f) for kind, files in kinds for f in files), key=lambda w: (-w[1].size, w[1].file))
    for part in bounded(work, lambda w: w[1].size):
        yield CopyPart(**{name: tuple(f for kind, f in part if kind == name) for name, _ in kinds})


def bounded(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Things in order, in lists of bounded bytes and number. Pure."""
    part, size = list[T](), 0
    for item in items:
        if part and (len(part) >= _PART_FILES or size + size_of(item) > _PART_BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += size_of(item)
    if part:
        yield part


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedCopy:
    """Copies in tasks of the job `copy`; less than `from_bytes` is copied in this process."""

    submit: Submit
    from_bytes: int = 0

    def __call__(self, transfer: Transfer, plan: CopyPlan, check: Callable[[], None]) -> Transferred:
        """Do all of the plan. As `Transfer.run`."""
        work = Tally.of(plan.work)
        if not work.files or work.bytes < self.from_bytes:
            return transfer.run(plan)
        transfer.run(CopyPlan(keep=plan.keep, remove=plan.remove))  # removes what the plan does not want
        folder = f"{transfer.backup_id}/{ORDERS}"
        try:
            _write(transfer, plan)
            where = transfer.destination.uri(transfer.backup_id)
            done = self.submit("copy", ("--backup", where), CopyDone, check)
        finally:
            transfer.destination.delete_tree(folder)
        _sweep(transfer.destination, transfer.backup_id)
        transfer.meter.add(work.bytes)
        return _transferred(transfer, plan, done)


def _write(transfer: Transfer, plan: CopyPlan) -> None:
    """Put the order and its parts where workers read them; the order last. Writes."""
    folder, number = f"{transfer.backup_id}/{ORDERS}", 0
    for number, part in enumerate(parts_of(plan), start=1):
        _PARTS.write(transfer.destination, f"{folder}/part-{number:06d}.json", part)
    earlier = transfer.earlier
    order = CopyOrder(
        order_id=new_ulid(),
        parts=number,
        source=transfer.source.root,
        backup_id=transfer.backup_id,
        freeze_id=transfer.journal.freeze_id,
        earlier=None if earlier is None else PlaceOfBackup(root=earlier[0].root, backup_id=earlier[1]),
        need_checksums=transfer.need_checksums,
        bytes_per_second=transfer.pace.rate,
    )
    _ORDERS.write(transfer.destination, f"{folder}/order.json", order)


def _sweep(destination: Storage, backup_id: str) -> None:
    """Remove what workers that were lost, or were too late, had begun. Destroys half-written files."""
    begun = [stored_at(backup_id, file) for file in present_files(destination, backup_id) if is_half_written(file)]
    remove_all(destination, begun, "a lost worker")


def _transferred(transfer: Transfer, plan: CopyPlan, done: CopyDone) -> Transferred:
    """What became of the plan, with the checksums that the workers journalled. Reads."""
    journal = read_journal(transfer.destination, transfer.backup_id)
    files = [f for batch in journal if batch.freeze_id == transfer.journal.freeze_id for f in batch.files]
    # An attempt without checksums may have come before, by a clock that is ahead: a checksum wins.
    noted = {f.file: f for f in sorted(files, key=lambda f: f.checksum is not None)}

    def proven(file: CutFile) -> CutFile:
        found = noted.get(file.file)
        if found is None or found.size != file.size:
            raise StorageError(f"the job copy ended without {file.file}; the backup stays unfinished; back up again")
        return replace(file, checksum=found.checksum)

    unlinked = frozenset(done.unlinked)
    again = [f for f in plan.link if f.file in unlinked]
    return Transferred(
        copied=tuple(proven(f) for f in (*plan.copy, *again)),
        linked=tuple(proven(f) for f in plan.link if f.file not in unlinked),
        kept=(*plan.keep, *(proven(f) for f in plan.unproven)),
        refused=done.refused,
        refusal=done.refusal,
    )


def read_order(destination: Storage, backup_id: str) -> CopyOrder:
    """What the parts of a copy share. Reads.

    Raises:
        OpsError: nobody submits this copy, or no longer.
    """
    order = _ORDERS.read(destination, f"{backup_id}/{ORDERS}/order.json")
    if order is None:
        raise OpsError(f"the copy of {destination.uri(backup_id)} was given up; no file of it was changed")
    return order


def copy_part(destination_root: str, order: CopyOrder, number: int, rate: int | None, *, again: bool) -> CopyDone:
    """Carry out one part in this process; what it finished is journalled however it ends. Writes.

    Args:
        rate: bytes per second of this part; None: no bound.
        again: an earlier attempt at this part may have done some of it.

    Raises:
        CorruptGraph: a file of the cut is gone or has another size.
        StorageError: a store failed.
        OpsError: the attempt that this part belongs to has ended.
    """
    destination = Storage(destination_root)
    part = _PARTS.read(destination, f"{order.backup_id}/{ORDERS}/part-{number:06d}.json")
    current = _Current(destination, order)
    current.check(at_once=True)
    if part is None:
        raise StorageError(f"part {number} of the copy of {destination.uri(order.backup_id)} cannot be read")
    plan = CopyPlan(copy=part.copy, link=part.link, unproven=part.unproven)
    if again:
        plan = _left(destination, order, plan)
    transfer = _transfer(destination, order, current, rate)
    try:
        done = transfer.run(plan)
    except FileNotFoundError as error:
        raise CorruptGraph(f"{error.filename or error} of the cut is gone") from None
    linked = {f.file for f in done.linked}
    return CopyDone(
        copied=Tally.of(done.copied),
        linked=Tally.of(done.linked),
        kept=Tally.of(done.kept),
        unlinked=tuple(f.file for f in plan.link if f.file not in linked),
        refused=done.refused,
        refusal=done.refusal,
    )


def _transfer(destination: Storage, order: CopyOrder, current: _Current, rate: int | None) -> Transfer:
    earlier = order.earlier
    return Transfer(
        source=Storage(order.source),
        destination=destination,
        backup_id=order.backup_id,
        earlier=None if earlier is None else (Storage(earlier.root), earlier.backup_id),
        need_checksums=order.need_checksums,
        workers=THREADS,
        pace=CopyPace(rate, current.check),
        meter=Meter(SILENT, "copying", 0, "bytes"),
        journal=_JournalOfPart(current),
    )


def _left(destination: Storage, order: CopyOrder, plan: CopyPlan) -> CopyPlan:
    """What of a part is still to do: a file that is there and journalled is kept. Reads."""
    names = {f.file for f in plan.work}
    mine = (
        replace(batch, files=tuple(f for f in batch.files if f.file in names))
        for batch in read_journal(destination, order.backup_id)
    )
    kept = plan_copy(
        plan.work,
        freeze_id=order.freeze_id,
        present=sizes_now(destination, {f.file: stored_at(order.backup_id, f.file) for f in plan.work}),
        journal=[batch for batch in mine if batch.files],
        need_checksums=order.need_checksums,
    ).keep
    done = {f.file for f in kept}
    return CopyPlan(
        copy=tuple(f for f in plan.copy if f.file not in done),
        link=tuple(f for f in plan.link if f.file not in done),
        keep=kept,
        unproven=tuple(f for f in plan.unproven if f.file not in done),
    )


def sizes_now(destination: Storage, places: Mapping[str, str]) -> dict[str, int]:
    """The sizes of those files that are at their places, where an earlier attempt may have put them. Reads."""
    found = zip(places, look_again(destination, list(places.values())), strict=True)
    return {file: now.size for file, now in found if now is not None and not isinstance(now, OpsFault)}


@dataclass(slots=True)
class _Current:
    """Whether the attempt that a part belongs to is still at work."""

    destination: Storage
    order: CopyOrder
    _looked: float = field(default=0.0)

    def check(self, *, at_once: bool = False) -> None:
        """Raise `OpsError` if it is not. Reads every few seconds."""
        now = time.monotonic()
        if not at_once and now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if read_order(self.destination, self.order.backup_id).order_id != self.order.order_id:
            raise OpsError(f"another attempt copies {self.destination.uri(self.order.backup_id)}")


class _JournalOfPart(CopyJournal):
    """The journal of the backup, as long as the attempt is at work: a finished backup has none."""

    def __init__(self, current: _Current) -> None:
        super().__init__(current.destination, current.order.backup_id, current.order.freeze_id)
        self._current = current

    def _flush(self) -> None:
        try:
            self._current.check(at_once=True)
        except StorageError:
            raise
        except OpsError:
            return  # whoever goes on looks at the files themselves
        super()._flush()


def joined(one: CopyDone, other: CopyDone) -> CopyDone:
    """Two parts of a copy as one; the first failure stays. Pure."""
    failed = one if one.error is not None else other
    return CopyDone(
        copied=one.copied + other.copied,
        linked=one.linked + other.linked,
        kept=one.kept + other.kept,
        unlinked=(*one.unlinked, *other.unlinked),
        refused=one.refused + other.refused,
        refusal=one.refusal or other.refusal,
        error=failed.error,
        retryable=failed.retryable,
    )


def failed_part(error: OpsError) -> CopyDone:
    """The outcome of a part that failed for good. Pure."""
    none = Tally()
    return CopyDone(copied=none, linked=none, kept=none, error=str(error), retryable=error.retryable)


def said(done: CopyDone) -> str:
    """What a copy did, in a few words for the log. Pure."""
    return (
        f"{count(done.copied.files, 'file')} copied ({human_bytes(done.copied.bytes)}), {done.linked.files:,} linked, "
        f"{done.kept.files:,} kept"
    )

"""Which files of a cut are copied, taken from an earlier backup, or there already. Pure.

Data, deletion, index and transaction files carry a random name and are never written twice: the same path and size
is the same file. A manifest's name is a number, which a branch that was deleted and made again uses anew; manifests,
references and the root's files are small and are always read from this very cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.models.backup import BackedFile, BackupRecord, JournalledFile, JournalledFiles, Tally
from omnigraph_ops.models.freeze import CutFile, CutFileKind

IMMUTABLE = frozenset({CutFileKind.DATA, CutFileKind.DELETION, CutFileKind.INDEX, CutFileKind.TRANSACTION})


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A finished backup whose files may be taken."""

    record: BackupRecord
    present: Mapping[str, int]
    """Sizes of the files that it still has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What to do with every file of a cut."""

    copy: tuple[CutFile, ...]
    link: tuple[CutFile, ...]
    """With the checksum that the earlier backup recorded."""
    keep: tuple[CutFile, ...]
    """With the checksum that the journal recorded."""
    unproven: tuple[CutFile, ...]
    """There, of the right size, and not in the journal: their checksum is that of the original."""
    remove: tuple[str, ...]
    """What an attempt for another cut, or a killed write, left behind."""


def plan_copy(
    files: Sequence[CutFile],
    *,
    freeze_id: str,
    present: Mapping[str, int],
    journal: Iterable[JournalledFiles] = (),
    earlier: Earlier | None = None,
    need_checksums: bool = False,
) -> CopyPlan:
    """Decide for every file of the cut.

    Args:
        present: sizes of what the unfinished backup has already, by file.
        need_checksums: a file without a checksum counts as absent.
    """
    known = _journalled(journal, freeze_id)
    taken = _takeable(earlier)
    copy, link, keep, unproven = list[CutFile](), list[CutFile](), list[CutFile](), list[CutFile]()
    for file in files:
        immutable = file.kind in IMMUTABLE
        noted = known.get((file.file, immutable))
        old = taken.get(file.file) if immutable else None
        here = present.get(file.file) == file.size
        if here and noted is not None and noted.size == file.size and not (need_checksums and noted.checksum is None):
            keep.append(replace(file, checksum=noted.checksum))
        elif here and immutable:
            unproven.append(file)
        elif old is not None and old.size == file.size and not (need_checksums and old.checksum is None):
            link.append(replace(file, checksum=old.checksum))
        else:
            copy.append(file)
    wanted = {f.file for f in files}
    remove = tuple(sorted(set(present) - wanted))
    return CopyPlan(copy=tuple(copy), link=tuple(link), keep=tuple(keep), unproven=tuple(unproven), remove=remove)


def tally(files: Iterable[CutFile | BackedFile]) -> Tally:
    """How many files and bytes these are. Pure."""
    sizes = [f.size for f in files]
    return Tally(files=len(sizes), bytes=sum(sizes))


def _journalled(journal: Iterable[JournalledFiles], freeze_id: str) -> dict[tuple[str, bool], JournalledFile]:
    """What counts, by file and whether it may be of another cut. Pure."""
    return {
        (noted.file, immutable): noted
        for batch in journal
        for noted in batch.files
        for immutable in _may_count(batch, freeze_id)
    }


def _may_count(batch: JournalledFiles, freeze_id: str) -> Iterator[bool]:
    yield True
    if batch.freeze_id == freeze_id:
        yield False


def _takeable(earlier: Earlier | None) -> dict[str, BackedFile]:
    if earlier is None:
        return {}
    return {f.file: f for f in earlier.record.files if earlier.present.get(f.file) == f.size}

"""Everything that is stored below a root, and the bulk operations on it: list, look again, remove, move.

Listing goes folder by folder in parallel. Links are reported and never followed, so nothing outside of
the root is ever listed, and a path that leads through a link is never removed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from omnigraph_ops.errors import StorageError, reason_of
from omnigraph_ops.storage.half_written import temporary_beside
from omnigraph_ops.storage.store import BULK, FileInfo, Storage, no_folder

WORKERS = 16
_FEW = 16
_File = TypeVar("_File")
_Found = TypeVar("_Found")
TABLE_FOLDERS = ("nodes", "edges")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One object, or on local disk also a folder or something that is neither."""

    path: str
    """Relative to the root."""
    size: int
    modified_at: float
    """Seconds since the epoch; whole seconds on S3, whose listing and HEAD differ below that."""
    is_folder: bool = False
    is_special: bool = False
    """A link, socket or device: never followed, never removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """What is stored down to the folders of datasets, and the folders whose contents are not in it."""

    found: tuple[Stored, ...]
    deeper: tuple[str, ...]


def upper_levels(storage: Storage) -> Levels:
    """What lies directly below the root, the table folders and the folders of datasets. Reads."""
    found, folders = children(storage, "")
    for table_folder in [f for f in folders if f in TABLE_FOLDERS]:
        folders.remove(table_folder)
        files, below = children(storage, table_folder)
        found += files
        folders += below
    deeper: list[str] = []
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        for files, below in pool.map(functools.partial(children, storage), folders):
            found += files
            deeper += below
    return Levels(found=tuple(found), deeper=tuple(deeper))


def walk(storage: Storage, levels: Levels | None = None) -> Iterator[Stored]:
    """Everything below the root: the upper levels, then one deeper folder after the other. Reads."""
    levels = levels or upper_levels(storage)
    yield from levels.found
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        for batch in pool.map(lambda folder: list(below_folder(storage, folder)), levels.deeper):
            yield from batch


def below_folder(storage: Storage, folder: str) -> Iterator[Stored]:
    """Everything below one folder, at any depth; nothing when it is absent. Reads."""
    if not storage.is_local:
        for found, _ in _pages(storage, folder, delimiter=False):
            yield from found
        return
    pending = [folder]
    while pending:
        found, folders = _scan(storage, pending.pop())
        yield from found
        pending += folders


def files_below(storage: Storage, folder: str) -> Iterator[Stored]:
    """The files below one folder, at any depth, and whatever else is no folder; nothing when it is absent. Reads."""
    return (item for item in below_folder(storage, folder) if not item.is_folder)


def sizes_below(storage: Storage, folder: str) -> dict[str, int]:
    """The regular files below one folder with their sizes, by their paths in it; empty when it is absent. Reads."""
    files = (f for f in files_below(storage, folder) if not f.is_special)
    return {file.path.removeprefix(f"{folder}/"): file.size for file in files}


def stored_sizes(storage: Storage, paths: Collection[str]) -> dict[str, int]:
    """The sizes of all regular files in the folders of these, by listing the folders. Reads."""
    folders = sorted({path.rpartition("/")[0] for path in paths})
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        found = pool.map(lambda folder: files_in(storage, folder), folders)
        return {file.path: file.size for files in found for file in files if not file.is_special}


def files_in(storage: Storage, folder: str) -> tuple[Stored, ...]:
    """The files directly in one folder with size and time; empty when it is absent. Reads."""
    found, _ = children(storage, folder)
    return tuple(f for f in found if not f.is_folder)


def folders_in(storage: Storage, folder: str) -> tuple[str, ...]:
    """Paths of the folders directly in one folder; empty when it is absent. Reads."""
    _, folders = children(storage, folder)
    return tuple(folders)


def _each_file(storage: Storage, work: Callable[[_File], _Found], files: Sequence[_File]) -> Iterator[_Found]:
    """`work` of each file, in their order: on threads, but for a few local ones, which cost less. As the work."""
    if storage.is_local and len(files) < _FEW:
        yield from map(work, files)
        return
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        yield from pool.map(work, files)


def look_again(storage: Storage, paths: Sequence[str]) -> list[Stored | OpsFault | None]:
    """Each file as it is now: None when it is gone, the fault when it cannot be told. Reads."""
    linked = _linked(storage, paths)
    return list(_each_file(storage, lambda path: linked.get(path) or _look(storage, path), paths))


def first_missing(storage: Storage, sizes: Mapping[str, int]) -> str | None:
    """The first of these files that is not there as it was written, None when all are. Reads.

    Args:
        sizes: by path; 0 where the size is not known.
    """
    for (path, size), found in zip(sizes.items(), look_again(storage, list(sizes)), strict=True):
        if not isinstance(found, Stored) or size not in {0, found.size}:
            return path
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsFault:
    """Why one path could not be handled; the others were."""

    path: str
    reason: str
    is_changed: bool = False
    """Another file has its name now, and stays."""


def remove_files(storage: Storage, paths: Sequence[str]) -> tuple[OpsFault, ...]:
    """Remove these files; missing ones are success. Returns what failed. Destroys."""
    if storage.is_local:
        linked = _linked(storage, paths)
        faults = (linked.get(path) or _fault(path, functools.partial(_unlink, storage, path)) for path in paths)
        return tuple(f for f in faults if f is not None)
    batches = [paths[n : n + BULK] for n in range(0, len(paths), BULK)]
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        return tuple(fault for faults in pool.map(functools.partial(_bulk, storage), batches) for fault in faults)


def move_files(storage: Storage, moves: Sequence[tuple[str, str]]) -> tuple[OpsFault, ...]:
    """Move files to where nothing is: a rename on local disk, copy then delete on S3. Returns what failed. Writes."""
    linked = _linked(storage, [source for source, _ in moves])
    faults = _each_file(storage, lambda m: linked.get(m[0]) or _fault(m[0], lambda: _move(storage, *m)), moves)
    return tuple(f for f in faults if f is not None)


def take_unchanged(
    storage: Storage, files: Sequence[Stored], place: Callable[[str], str] | None = None
) -> tuple[OpsFault, ...]:
    """Remove these files, or move each to its place, where it still is what was seen. Returns what stays. Destroys.

    For names that a live writer uses again: a look and a removal by name would take what it wrote in between.

    Args:
        place: where to move a file, by its path; nothing is there.
    """
    linked = _linked(storage, [file.path for file in files])
    take = _take_local if storage.is_local else _take_remote

    def one(file: Stored) -> OpsFault | None:
        target = None if place is None else place(file.path)
        try:
            return linked.get(file.path) or _fault(file.path, functools.partial(take, storage, file, target))
        except _ChangedFile:
            return OpsFault(path=file.path, reason="another file has its name now", is_changed=True)

    return tuple(fault for fault in _each_file(storage, one, files) if fault is not None)


def remove_folder(storage: Storage, folder: str) -> bool:
    """Remove one local folder if it is empty; whether it went. Destroys."""
    if not storage.is_local or not _is_inside(storage, folder):
        return False
    try:
        os.rmdir(storage.full(folder))
    except OSError:
        return False
    return True


def children(storage: Storage, folder: str) -> tuple[list[Stored], list[str]]:
    """Files directly in a folder (local folders and links, too), and the folders to go into. Reads: one listing."""
    if storage.is_local:
        return _scan(storage, folder)
    found: list[Stored] = []
    folders: list[str] = []
    for files, below in _pages(storage, folder, delimiter=True):
        found += files
        folders += below
    return found, folders


def _scan(storage: Storage, folder: str) -> tuple[list[Stored], list[str]]:
    found, folders = [], []
    with storage.translated("list", folder):
        try:
            entries = list(os.scandir(storage.full(folder)))
        except FileNotFoundError:
            return [], []
        except NotADirectoryError:
            raise no_folder(storage.full(folder)) from None
        for entry in entries:
            path = posixpath.join(folder, entry.name)
            with contextlib.suppress(FileNotFoundError):
                item = _local(path, entry.stat(follow_symlinks=False))
                if not _is_text(entry.name):
                    # No plan could name it: reported under an escaped name, never entered, never removed.
                    shown = posixpath.join(folder, os.fsencode(entry.name).decode("utf-8", "backslashreplace"))
                    found.append(Stored(path=shown, size=item.size, modified_at=item.modified_at, is_special=True))
                    continue
                found.append(item)
                folders += [path] if item.is_folder else []
    return found, folders


def _is_text(name: str) -> bool:
    """Whether a file name is valid UTF-8. Pure."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _local(path: str, info: os.stat_result) -> Stored:
    is_folder = stat.S_ISDIR(info.st_mode)
    return Stored(
        path=path,
        size=0 if is_folder else info.st_size,
        modified_at=info.st_mtime,
        is_folder=is_folder,
        is_special=not is_folder and not stat.S_ISREG(info.st_mode),
    )


def _pages(storage: Storage, folder: str, *, delimiter: bool) -> Iterator[tuple[list[Stored], list[str]]]:
    """Objects and, with a delimiter, folders, one page of S3's listing after the other. Reads."""
    base = storage.object_key("")
    start = len(base) + 1 if base else 0
    for page in storage.pages(folder, delimiter=delimiter):
        yield (
            [_remote(o["Key"][start:], o["Size"], o["LastModified"]) for o in page.get("Contents", ())],
            [p["Prefix"][start:].rstrip("/") for p in page.get("CommonPrefixes", ())],
        )


def _remote(path: str, size: int, modified: datetime) -> Stored:
    return Stored(path=path, size=int(size), modified_at=float(int(modified.timestamp())))


def _look(storage: Storage, path: str) -> Stored | OpsFault | None:
    try:
        if storage.is_local:
            return _local(path, os.lstat(storage.full(path)))
        info = storage.stat(path)
    except FileNotFoundError:
        return None
    except (StorageError, OSError) as error:
        return OpsFault(path=path, reason=reason_of(error))
    return _remote_info(path, info)


def _remote_info(path: str, info: FileInfo) -> Stored:
    return Stored(path=path, size=info.size, modified_at=float(int(info.modified_at or 0)))


def _linked(storage: Storage, paths: Sequence[str]) -> dict[str, OpsFault]:
    """The paths of a local graph that lead through a link, each with that fault. Reads links."""
    if not storage.is_local:
        return {}
    inside: dict[str, bool] = {}
    for path in paths:
        folder = posixpath.dirname(path)
        if folder not in inside:
            inside[folder] = _is_inside(storage, path)
    return {
        path: OpsFault(path=path, reason="leads through a link out of the graph")
        for path in paths
        if not inside[posixpath.dirname(path)]
    }


def _is_inside(storage: Storage, path: str) -> bool:
    """Whether no link is on the way from the root to the folder of a path. Reads links."""
    folder = posixpath.dirname(path)
    return os.path.realpath(storage.full(folder)) == os.path.join(os.path.realpath(storage.root), folder).rstrip("/")


def _fault(path: str, action: Callable[[], None]) -> OpsFault | None:
    try:
        action()
    except (StorageError, OSError) as error:
        return OpsFault(path=path, reason=reason_of(error))
    return None


def _unlink(storage: Storage, path: str) -> None:
    with storage.translated("delete", path), contextlib.suppress(FileNotFoundError):
        os.unlink(storage.full(path))


def _bulk(storage: Storage, paths: Sequence[str]) -> list[OpsFault]:
    keys = {storage.object_key(path): path for path in paths}
    try:
        with storage.translated("delete from", ""):
            refused = storage.delete_keys(list(keys))
    except (StorageError, FileNotFoundError) as error:
        return [OpsFault(path=path, reason=reason_of(error)) for path in paths]
    return [OpsFault(path=keys[key], reason=why) for key, why in refused.items()]


def _move(storage: Storage, source: str, target: str) -> None:
    """One file to a place where nothing is; a crash leaves it in one of the two or, on S3, in both. Writes."""
    if storage.is_local:
        with storage.translated("move", source):
            os.makedirs(os.path.dirname(storage.full(target)), exist_ok=True)
            # A link, unlike a rename, never replaces what is there.
            os.link(storage.full(source), storage.full(target), follow_symlinks=False)
            os.unlink(storage.full(source))
        return
    with storage.translated("move", source):
        _copy_remote(storage, source, target)
        storage.delete(source)


def _copy_remote(storage: Storage, source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        storage.stat(target)
        raise FileExistsError(f"{target} is there already")
    storage.filesystem.cp_file(storage.full(source), storage.full(target))
    if storage.stat(target).size != storage.stat(source).size:
        raise StorageError(f"the copy of {source} is incomplete")


class _ChangedFile(Exception):
    """A file is not the one that was seen."""


def _take_local(storage: Storage, file: Stored, target: str | None) -> None:
    """Take whatever has the name, in one step, and put it back if it is another file. Destroys."""
    path = storage.full(file.path)
    taken = temporary_beside(path, ".tmp") if target is None else storage.full(target)
    with storage.translated("take", file.path), contextlib.suppress(FileNotFoundError):
        os.makedirs(os.path.dirname(taken), exist_ok=True)
        os.rename(path, taken)
        if _local(file.path, os.lstat(taken)) == file:
            if target is None:
                os.unlink(taken)
            return
        with contextlib.suppress(FileExistsError):  # then a still newer one has the name
            os.link(taken, path, follow_symlinks=False)
        os.unlink(taken)
        raise _ChangedFile


def _take_remote(storage: Storage, file: Stored, target: str | None) -> None:
    """Delete an object by its e-tag, so that the store compares; copy it before if it has a place. Destroys."""
    with storage.translated("take", file.path), contextlib.suppress(FileNotFoundError):
        info = storage.stat(file.path)
        if _remote_info(file.path, info) != file:
            raise _ChangedFile
        if target is not None:
            _copy_remote(storage, file.path, target)
        if not storage.delete_tagged(file.path, info.e_tag):
            if target is not None:
                storage.delete(target)
            raise _ChangedFile

"""Whole files from one store to another: a half-written one never has its final name.

Locally a temporary file is synced and renamed; an object appears when its upload is complete. Within one object
store, and from one folder of backups to another, nothing needs to pass through this process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.storage.half_written import temporary_beside
from omnigraph_ops.storage.store import Storage, translated

_PART = 16 * 1024 * 1024
"""Of an upload in parts: at most 10,000 of them, so files of up to 160 GB."""
_LOCAL_PIECE = 1024 * 1024
"""Measured with eight threads on two cores: pieces of 4 MiB, which fit no cache, take more than twice as long."""


class Pacing(Protocol):
    """What a copy asks before it takes the next bytes."""

    @property
    def chunk(self) -> int: ...
    def wait_for(self, size: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a file must be for its copy to get its name."""

    size: int
    checksum: str | None = None


def copy_file(
    source: tuple[Storage, str],
    target: tuple[Storage, str],
    expected: Expected,
    *,
    pacing: Pacing,
    on_bytes: Callable[[int], None] = lambda _size: None,
) -> str:
    """Copy one file through this process; its `sha256:` checksum. Writes.

    Raises:
        CorruptGraph: the source is not what was expected; nothing has the final name.
        FileNotFoundError: the source is gone.
        StorageError: the store failed.
    """
    storage, path = source
    found, size = hashlib.sha256(), 0
    with translated("copy", _both(source, target)), _sink(*target, small=expected.size <= pacing.chunk) as write:
        for piece in _pieces(storage, path, expected.size, pacing):
            found.update(piece)
            write(piece)
            size += len(piece)
            on_bytes(len(piece))
        checksum = f"sha256:{found.hexdigest()}"
        _compare(path, expected, size, checksum)
    return checksum


def copy_within(source: tuple[Storage, str], target: tuple[Storage, str], size: int, *, pacing: Pacing) -> bool:
    """Let the object store copy by itself; False where the two are not one store. Writes."""
    # fsspec gives one instance for one endpoint with one set of credentials.
    if source[0].is_local or source[0].filesystem is not target[0].filesystem:
        return False
    pacing.wait_for(size)
    with translated("copy", _both(source, target), source=source[0].uri(source[1])):
        target[0].filesystem.cp_file(source[0].full(source[1]), target[0].full(target[1]))
    return True


def link_file(source: tuple[Storage, str], target: tuple[Storage, str]) -> bool:
    """A hard link, only for files that nobody ever writes to; False where the disks cannot. Writes."""
    if not (source[0].is_local and target[0].is_local):
        return False
    place = target[0].full(target[1])
    with target[0].translated("link", target[1]):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
    try:
        os.link(source[0].full(source[1]), place)
    except OSError:
        return False
    return True


def _both(source: tuple[Storage, str], target: tuple[Storage, str]) -> str:
    """Both ends of a copy, either of which may be what failed. Pure."""
    return f"{source[0].uri(source[1])} to {target[0].uri(target[1])}"


def _pieces(storage: Storage, path: str, size: int, pacing: Pacing) -> Iterator[bytes]:
    most = min(pacing.chunk, _LOCAL_PIECE) if storage.is_local else pacing.chunk
    if size <= most:
        pacing.wait_for(size)
        yield storage.read(path)
        return
    for piece in storage.chunks(path, most):
        pacing.wait_for(len(piece))
        yield piece


def _compare(path: str, expected: Expected, size: int, checksum: str) -> None:
    if size != expected.size:
        raise CorruptGraph(f"{path} has {size} bytes instead of {expected.size}; it was not copied")
    if expected.checksum not in (None, checksum):
        raise CorruptGraph(f"{path} has the checksum {checksum} instead of {expected.checksum}; it was not copied")


@contextlib.contextmanager
def _sink(storage: Storage, path: str, *, small: bool) -> Iterator[Callable[[bytes], Any]]:
    """Where the bytes of a copy go; the file appears when the block ends without an error. Writes."""
    if storage.is_local:
        with _local_sink(storage.full(path)) as write:
            yield write
    elif small:
        pieces: list[bytes] = []
        yield pieces.append
        storage.write(path, b"".join(pieces))
    else:
        with _upload(storage, path) as write:
            yield write


@contextlib.contextmanager
def _local_sink(place: str) -> Iterator[Callable[[bytes], Any]]:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    temporary = temporary_beside(place, ".part")
    try:
        with open(temporary, "xb", buffering=0) as handle:
            yield lambda piece: _write_all(handle, piece)
            os.fsync(handle.fileno())
        os.replace(temporary, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _write_all(handle: Any, piece: bytes) -> None:
    """Write every byte: an unbuffered write may take a part. Writes."""
    left = memoryview(piece)
    while left:
        left = left[handle.write(left) :]


@contextlib.contextmanager
def _upload(storage: Storage, path: str) -> Iterator[Callable[[bytes], Any]]:
    """An upload in parts; given up, not closed, on an error: closing would complete it. Writes."""
    handle = storage.filesystem.open(storage.full(path), "wb", block_size=_PART)
    try:
        yield handle.write
        handle.close()  # the last part, and what completes the upload: it fails like any other part
    except BaseException:
        with contextlib.suppress(Exception):
            handle.discard()
        handle.closed = True
        raise

"""The object-store edge: small files of a graph through fsspec, local paths and `s3://` alike.

Only JSON-sized objects pass through here; table data belongs to Lance. Writes are atomic: a
temporary file, fsync and rename on local disk, one PutObject on S3. A local file that is not whole yet lies beside the
file that it becomes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import fsspec
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from omnigraph_ops.errors import BucketMissing, NotInstalled, StorageError, reason_of
from omnigraph_ops.storage.half_written import remove_temporary, temporary_beside
from omnigraph_ops.storage.location import AMBIENT, StoreAccess

HIDDEN_PREFIX = ".tmp_"
"""Begins the names of files beside which Lance itself leaves half-written ones of its own: it ignores them."""
_VERSION_ID = "?versionId="
BULK = 1000
"""Keys per bulk delete: the most that S3 takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """One stored object: its size in bytes, e_tag as the engine spells it, and age reference."""

    path: str
    size: int
    e_tag: str | None
    modified_at: float | None
    """Seconds since the epoch, None where the store does not say."""


@contextlib.contextmanager
def translated(action: str, path: str, *, source: str | None = None) -> Iterator[None]:
    """Turn whatever the store raises, except a missing or existing file, into `StorageError`.

    Args:
        source: what is missing where an error of an object store names no file; None: the path.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        reply = getattr(error.__cause__, "response", {})
        if reply.get("Error", {}).get("Code") == "NoSuchBucket":
            message = f"cannot {action} {path}: its bucket does not exist; create it or correct the address"
            raise BucketMissing(message) from error
        if error.filename is None and isinstance(error, FileNotFoundError):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source or path) from error
        raise
    except Exception as error:
        # Missing credentials (botocore) and a body that is cut (aiohttp) are no OSError; a local graph imports neither.
        if isinstance(error, (OSError, ValueError)) or type(error).__module__.startswith(("botocore.", "aiohttp.")):
            raise StorageError(f"cannot {action} {path}: {reason_of(error)}") from error
        raise


def _is_create_conflict(error: BaseException) -> bool:
    """Whether a store says that another request for the key was under way, and to send this one again. Pure."""
    return isinstance(error, OSError) and "ConditionalRequestConflict" in f"{error} {error.__cause__}"


class Storage:
    """Small-object access below one root, by default as the environment says. Relative paths in, no leading slash."""

    def __init__(self, root: str, access: StoreAccess = AMBIENT) -> None:
        self.root = root
        self.access = access
        """How this store is reached, and other places that it is copied to."""
        self.is_local = not root.startswith("s3://")
        protocol = "file" if self.is_local else "s3"
        try:
            self.filesystem: Any = fsspec.filesystem(protocol, **access.s3fs(root))
        except ImportError:
            raise NotInstalled.of(root, "s3fs", "s3") from None
        self._base = root if self.is_local else root.removeprefix("s3://")

    def at(self, root: str) -> Storage:
        """The same store below another root. Pure."""
        return Storage(root, self.access)

    def full(self, path: str) -> str:
        """The path as the file system spells it; `StorageError` for a key that s3fs reads as another one. Pure."""
        if not self.is_local and _VERSION_ID in path:
            raise StorageError(f"{path} of {self.root} cannot be addressed: s3fs ends a key at {_VERSION_ID!r}")
        return posixpath.join(self._base, path) if path else self._base

    def object_key(self, path: str) -> str:
        """The key of a path in an object store: without the bucket. Pure."""
        return self.full(path).partition("/")[2]

    def uri(self, path: str) -> str:
        """The whole address of a path, always in the plain spelling. Pure.

        Lance compares addresses as texts when it decides which files a branch protects, so no `file://` form and no
        relative path may ever reach it.
        """
        return posixpath.join(self.root, path) if path else self.root

    def translated(self, action: str, path: str) -> contextlib.AbstractContextManager[None]:
        """Turn whatever the store raises about a path into `StorageError`, as `translated` does. Pure."""
        return translated(action, self.uri(path))

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there, or a link of that name. Reads.

        Raises:
            BucketMissing: it is the root, and its bucket does not exist.
        """
        with self.translated("look at", path):
            if not self.is_local:
                # To s3fs nothing is in a bucket that does not exist; a listing tells the difference.
                return bool(self.filesystem.exists(self.full(path)) or (not path and self.list(path)))
            # Not fsspec's own, which takes whatever fails, and what interrupts it, too, for a file that is not there.
            try:
                os.lstat(self.full(path))
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def read(self, path: str) -> bytes:
        """The whole object; `FileNotFoundError` when absent. Reads."""
        with self.translated("read", path):
            return self._content(path)

    def chunks(self, path: str, size: int) -> Iterator[bytes]:
        """The content piece by piece; `FileNotFoundError` when absent. Reads."""
        with self.translated("read", path), self.filesystem.open(self.full(path), "rb", block_size=size) as handle:
            while piece := handle.read(size):
                yield piece

    def list(self, folder: str) -> tuple[str, ...]:
        """Sorted names of the files directly below `folder`, empty when it is absent. Reads.

        A link to a file counts, as it does for the engine.
        """
        with self.translated("list", folder):
            try:
                if self.is_local:
                    names = [e.name for e in os.scandir(self.full(folder)) if _is_file(e)]
                else:
                    keys = (o["Key"] for page in self.pages(folder, delimiter=True) for o in page.get("Contents", ()))
                    names = [name for key in keys if (name := posixpath.basename(key))]
            except FileNotFoundError:
                return ()
            except NotADirectoryError:
                raise no_folder(self.full(folder)) from None
        return tuple(sorted(names))

    def is_broken_link(self, path: str) -> bool:
        """Whether a link stands there whose target is gone: nothing can be read there, and nothing made. Reads."""
        return self.is_local and os.path.islink(self.full(path)) and not os.path.exists(self.full(path))

    def pages(self, folder: str, *, delimiter: bool) -> Iterator[Mapping[str, Any]]:
        """The replies of an object store to one listing, with a delimiter of what is directly in the folder. Reads.

        Not s3fs' own `ls`, which lists the folder above, too, where there is nothing.
        """
        bucket, _, base = self.full(folder).partition("/")
        request: dict[str, Any] = {"Bucket": bucket, "Prefix": f"{base}/" if base else ""}
        request |= {"Delimiter": "/"} if delimiter else {}
        while True:
            with self.translated("list", folder):
                page: Mapping[str, Any] = self.filesystem.call_s3("list_objects_v2", **request)
            yield page
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def is_blocked(self, folder: str) -> bool:
        """Whether something that is no folder, also a link that leads nowhere, stands in its place. Reads."""
        # A store of objects has no folders that anything could stand in the place of.
        path = self.full(folder)
        return self.is_local and os.path.lexists(path) and not os.path.isdir(path)

    def stat(self, path: str) -> FileInfo:
        """Size and e_tag of one object; `FileNotFoundError` when absent. Reads."""
        with self.translated("stat", path):
            if self.is_local:
                found = os.stat(self.full(path))
                tag = f"{found.st_ino:x}-{found.st_mtime_ns // 1000:x}-{found.st_size:x}"
                return FileInfo(path=path, size=found.st_size, e_tag=tag, modified_at=found.st_mtime)
            # Not s3fs' own `info`, which lists what is below the key, too, where there is nothing.
            bucket, _, key = self.full(path).partition("/")
            info = self.filesystem.call_s3("head_object", Bucket=bucket, Key=key)
        modified = info.get("LastModified")
        stamp = modified.timestamp() if isinstance(modified, datetime) else None
        return FileInfo(path=path, size=int(info["ContentLength"]), e_tag=info.get("ETag"), modified_at=stamp)

    def reply_headers(self, folder: str) -> dict[str, str]:
        """What an object store says beside a listing, by names in lower case. Reads."""
        bucket, _, key = self.full(folder).partition("/")
        with self.translated("list", folder):
            reply = self.filesystem.call_s3("list_objects_v2", Bucket=bucket, Prefix=f"{key}/", MaxKeys=1)
        headers: dict[str, str] = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return headers

    def write(self, path: str, data: bytes) -> None:
        """Put the object, replacing it atomically. Writes."""
        with self.translated("write", path):
            if self.is_local:
                os.replace(self._temporary(path, data), self.full(path))
                _sync_folder(os.path.dirname(self.full(path)))
            else:
                self.filesystem.pipe_file(self.full(path), data)

    def create(self, path: str, data: bytes) -> bool:
        """Put the object only if nothing is there; False when something is. Writes.

        `data` must not be empty: an empty exclusive create is a plain touch on S3.
        """
        with self.translated("create", path):
            if self.is_local:
                temporary = self._temporary(path, data)
                try:
                    return _linked(temporary, self.full(path))
                finally:
                    remove_temporary(temporary)
            return self._create_remote(path, data)

    @contextlib.contextmanager
    def prepared(self, path: str, data: bytes) -> Iterator[Callable[[], bool]]:
        """Prepare an object for the block and yield the one short step that creates it, as `create` does. Writes.

        Locally the bytes are synced under a hidden name beside it before the block begins.
        """
        if not self.is_local:
            yield lambda: self.create(path, data)
            return
        target = self.full(path)
        hidden = os.path.join(os.path.dirname(target), f"{HIDDEN_PREFIX}{uuid.uuid4().hex}")
        try:
            with self.translated("write", path):
                _write_synced(hidden, data)
            yield lambda: self._link_hidden(hidden, path)
        finally:
            remove_temporary(hidden)

    def _link_hidden(self, hidden: str, path: str) -> bool:
        with self.translated("create", path):
            return _linked(hidden, self.full(path))

    def delete(self, path: str) -> None:
        """Remove the object; a missing one is success. Destroys."""
        with self.translated("delete", path), contextlib.suppress(FileNotFoundError):
            self.filesystem.rm_file(self.full(path))

    def delete_tagged(self, path: str, e_tag: str | None) -> bool:
        """Remove an object of an S3 store if it still has this e-tag; False if another one is there. Destroys."""
        bucket, _, key = self.full(path).partition("/")
        with self.translated("delete", path):
            try:
                self.filesystem.call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=e_tag)
            except OSError as error:
                if not _is_precondition_failure(error):
                    raise
                return not self.exists(path)  # the client may have met its own deletion after a lost reply
        return True

    def delete_tree(self, folder: str) -> None:
        """Remove a folder and everything below it; a missing one is success. Destroys."""
        with self.translated("delete", folder), contextlib.suppress(FileNotFoundError):
            if self.is_local:
                self.filesystem.rm(self.full(folder), recursive=True)
                return
            # Not s3fs' own `rm`, which takes `[` and `*` in a key for a pattern.
            keys = [path.partition("/")[2] for path in self.filesystem.find(self.full(folder))]
            for start in range(0, len(keys), BULK):
                for key, why in self.delete_keys(keys[start : start + BULK]).items():
                    raise OSError(f"{key}: {why}")

    def delete_keys(self, keys: Sequence[str]) -> dict[str, str]:
        """Delete up to `BULK` objects of the bucket by their whole keys; missing ones are success. Destroys.

        Returns:
            Those that stay, each with why.
        """
        request = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        answer = self.filesystem.call_s3("delete_objects", Bucket=self._base.partition("/")[0], Delete=request)
        refused = (e for e in answer.get("Errors", ()) if e.get("Code") != "NoSuchKey")
        return {e["Key"]: f"{e.get('Code')}: {e.get('Message')}" for e in refused}

    def sync_names(self, paths: Iterable[str]) -> None:
        """Make the names of these files last through a power cut, with every folder above them. Writes."""
        if not self.is_local:
            return  # an object that is there lasts
        folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
        with self.translated("sync the folders of", ""):
            for folder in sorted(folders):
                _sync_folder(self.full("" if folder == "." else folder))

    def _temporary(self, path: str, data: bytes) -> str:
        # The suffix keeps half-written files out of every `*.json` listing, the engine's included.
        target = self.full(path)
        _make_folder(os.path.dirname(target))
        temporary = temporary_beside(target, ".tmp")
        try:
            _write_synced(temporary, data)
        except OSError:
            # A full disk. In the folder of branches `orphans` would not know the file.
            remove_temporary(temporary)
            raise
        return temporary

    def _content(self, path: str) -> bytes:
        if self.is_local:
            with open(self.full(path), "rb") as handle:
                return handle.read()
        # In one request: with several, s3fs asks for the size before it.
        data: bytes = self.filesystem.cat_file(self.full(path), max_concurrency=1)
        return data

    @retry(
        retry=retry_if_exception(_is_create_conflict),
        stop=stop_after_attempt(5),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        reraise=True,
    )
    def _pipe_new(self, path: str, data: bytes) -> None:
        self.filesystem.pipe_file(self.full(path), data, mode="create")

    def _create_remote(self, path: str, data: bytes) -> bool:
        # A lost reply is retried by the client and then meets our own object, and some servers
        # answer 412 in a form that is not FileExistsError: what is stored decides.
        try:
            self._pipe_new(path, data)
        except OSError as error:
            try:
                return self._content(path) == data
            except FileNotFoundError:
                if _is_precondition_failure(error):
                    return False  # its holder gave it up in the meantime
                raise error from None
        return True


def _is_precondition_failure(error: OSError) -> bool:
    return isinstance(error, FileExistsError) or "precondition" in str(error).lower().replace("-", "")


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file or a link to one; a loop of links is no file, and holds up no listing. Reads."""
    return entry.is_file(follow_symlinks=False) or (entry.is_symlink() and os.path.isfile(entry.path))


def no_folder(path: str) -> NotADirectoryError:
    """The error for a file in the place of a folder; the system's own does not say which. Pure."""
    return NotADirectoryError(f"{path} is a file where a folder belongs")


def _make_folder(folder: str) -> None:
    """Make a folder and its parents; a file in its place is an error of the store. Writes."""
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        raise no_folder(folder) from None
    except FileNotFoundError as error:  # of a file system that takes no folders: nothing is missing
        raise OSError(f"{folder} cannot be made: {error.strerror}") from None


def _write_synced(path: str, data: bytes) -> None:
    """Make a new file and let its content last through a power cut. Writes."""
    with open(path, "xb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _linked(path: str, target: str) -> bool:
    """Give a file another name, which lasts; False where something else has that. Writes."""
    made = True
    try:
        os.link(path, target)
    except FileExistsError:
        made = False
        # On NFS a lost reply is asked for again, and that meets the link that was made (link(2)).
        with contextlib.suppress(FileNotFoundError):
            made = os.path.samefile(path, target)
    if made:
        _sync_folder(os.path.dirname(target))
    return made


def _sync_folder(folder: str) -> None:
    """Make a rename or link durable; only POSIX folders can be synced. Writes."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

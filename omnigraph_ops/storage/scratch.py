"""The folder for temporary files of this machine, which TMPDIR names. No file of a graph is in it."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from omnigraph_ops.errors import StorageError, first_line

_MESSAGE = re.compile(r'message: "([^"]*)"')
"""Of an error of the system, as a panic shows it."""
_OS_ERROR = re.compile(r"\(os error \d+\)|\bOs \{ code: \d+")


@contextlib.contextmanager
def scratch_folder(prefix: str = "omnigraph-ops-") -> Iterator[Path]:
    """A new temporary folder for the block. Writes.

    Raises:
        StorageError: it cannot be made.
    """
    with in_scratch():
        # What cannot be removed afterwards is a matter of the machine, and fails no work.
        made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    with made as folder:
        yield Path(folder)


@contextlib.contextmanager
def in_scratch() -> Iterator[None]:
    """Turn what the system refuses inside the block, which uses the temporary folder only, into `StorageError`."""
    try:
        yield
    except OSError as error:
        # Lance raises this class for other things, too, such as a commit that lost.
        if error.errno is None and _OS_ERROR.search(str(error)) is None:
            raise
        raise _unusable(tempfile.tempdir or _native(), error.strerror or first_line(error)) from error


@contextlib.contextmanager
def native_scratch() -> Iterator[None]:
    """Let native code use the temporary folder for the block: it panics without one. Reads.

    Python looks for another folder where TMPDIR names none, native code does not.

    Raises:
        StorageError: it cannot be used, or an error of the block names a file of it.
    """
    folder = _native()
    if not os.path.isdir(folder):
        raise _unusable(folder, "there is no such folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(folder, "this account may not write there")
    try:
        yield
    except StorageError as error:
        if os.path.join(folder, ".tmp") not in str(error):
            raise
        said = _MESSAGE.search(str(error))
        raise _unusable(folder, said[1] if said else first_line(error)) from error


def _native() -> str:
    return os.environ.get("TMPDIR") or "/tmp"


def _unusable(folder: str, why: str) -> StorageError:
    return StorageError(
        f"cannot write to the temporary folder {folder}: {why}; no row is lost; set TMPDIR to a folder with space "
        "that this account may write to, then run again"
    )

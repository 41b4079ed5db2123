"""stderr that may fail: on a full disk, a closed pipe or closed from the start it loses text, and nothing else."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast


class LossyStderr:
    """A stream that drops what the one below does not take: what is done, and its exit code, do not hang on it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = False
        """Whether anything was dropped."""

    def write(self, text: str) -> int:
        """Write, or drop. Writes."""
        with self._losing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop. Writes."""
        with self._losing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):  # a closed stream raises the latter
            self.lost = True


@contextlib.contextmanager
def lossy_stderr(*, own_process: bool) -> Iterator[None]:
    """Drop what stderr does not take for the block; a process that ends with it, at its end as well. Sets stderr."""
    before = sys.stderr
    if own_process and before is None:
        _open_nowhere()
    elif isinstance(before, LossyStderr):
        yield
        return
    sys.stderr = cast("TextIO", LossyStderr(sys.stderr))
    try:
        yield
    finally:
        # The interpreter flushes it once more, and ends with another exit code where that fails.
        if not own_process:
            sys.stderr = before


def _open_nowhere() -> None:
    """Keep files of the graph from getting the number of stderr, to which native code writes. Opens a file."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2, inheritable=True)
    sys.stderr = os.fdopen(2, "w", closefd=False)

"""The one table that turns Lance's untyped errors into typed ones; only message texts tell them apart.

LanceFailure(StorageError)
├── DatasetMissing        no dataset, branch or version there
├── CommitContention      a row-level compare-and-swap was lost (`Too many concurrent writers`)
├── CommitConflict        another commit preempted ours; plan again from a fresh read
└── IncompatibleCommit    Overwrite or Restore landed; stop
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.storage.faults import reason_of


class LanceFailure(StorageError):
    """Lance failed in a way that has no class of its own; the text is Lance's."""


class DatasetMissing(LanceFailure):
    """No dataset, branch or version at that place."""


class CommitContention(LanceFailure):
    """A row-level compare-and-swap was lost; nothing of ours landed."""


class CommitConflict(LanceFailure):
    """Another commit preempted ours; nothing of ours landed but perhaps a ReserveFragments version."""


class IncompatibleCommit(LanceFailure):
    """An Overwrite or Restore landed in between; planning again from this read is pointless."""


_TEXTS: tuple[tuple[str, type[LanceFailure]], ...] = (
    ("Too many concurrent writers", CommitContention),
    ("Retryable commit conflict", CommitConflict),
    ("Commit conflict for version", CommitConflict),
    ("Incompatible transaction", IncompatibleCommit),
    ("was not found", DatasetMissing),
    ("Not found:", DatasetMissing),
    ("not found error", DatasetMissing),
)


def classify(error: BaseException) -> type[LanceFailure]:
    """The class for an error that came out of pylance. Pure."""
    text = str(error)
    return next((kind for marker, kind in _TEXTS if marker in text), LanceFailure)


@contextlib.contextmanager
def lance_errors(action: str) -> Iterator[None]:
    """Raise the typed counterpart of whatever pylance raises inside the block.

    Panics of the native library arrive as a BaseException that `except Exception` does not see.
    """
    try:
        yield
    except (OpsError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise classify(error)(f"cannot {action}: {reason_of(error)}") from error

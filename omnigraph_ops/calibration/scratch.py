"""The folder of a calibration, and the environment of its submits."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.spark.java import spark_environment


@contextlib.contextmanager
def scratch_folder(parent: str | None) -> Iterator[Path]:
    """A folder for everything that a calibration writes, gone after the block. Writes."""
    # An empty text is a variable that nobody set, and no name of the working directory.
    if parent is not None and not (parent.strip() and Path(parent).is_dir()):
        raise InvalidInput(f"the scratch folder {parent!r} is not a folder; nothing was measured")
    with contextlib.ExitStack() as stack:
        with scratch_errors():
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="omnigraph-calibrate-", dir=parent))
        # Drivers and workers have working directories of their own.
        yield Path(made).resolve()


@contextlib.contextmanager
def scratch_errors() -> Iterator[None]:
    """A full or read-only scratch folder as one sentence. Pure."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"the scratch folder cannot be used: {error}; nothing was measured") from None


def environment(folder: Path) -> dict[str, str]:
    """The environment of a submit: this one, but for settings that would bend the measurement. Reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH_OPS_")}
    return {**kept, **spark_environment(), "SPARK_LOCAL_DIRS": str(folder)}

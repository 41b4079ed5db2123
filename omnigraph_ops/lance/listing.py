"""What Lance says where it cannot list the branches of a dataset. No pylance here: only its texts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_EMPTY_JSON = "EOF while parsing a value at line 1 column 0"


@contextlib.contextmanager
def naming_empty_references() -> Iterator[None]:
    """Raise an error that names the command to run for an empty branch reference; Lance names its own code. Pure."""
    try:
        yield
    except Exception as error:
        if _EMPTY_JSON not in str(error):
            raise
        raise OSError(
            "a branch reference there is an empty file, as a full disk leaves it; `omnigraph-ops check` says what "
            "settles it"
        ) from error

"""Local files that are not whole yet: their names, each beside the file that it becomes, and how they go."""

from __future__ import annotations

import logging
import os
import re
import uuid

_LOG = logging.getLogger(__name__)
HALF_WRITTEN_END = r"\.[0-9a-f]{32}\.(?:part|tmp)"
"""Pattern of the end of every such name."""
_HALF_WRITTEN = re.compile(rf"(.*){HALF_WRITTEN_END}")
_MOST_BYTES = 255
"""In the name of a file, on ext4, XFS and Btrfs."""


def temporary_beside(path: str, suffix: str) -> str:
    """A new name beside a file. It begins with the name of the file, cut if the whole would be too long. Pure.

    Args:
        suffix: `.part` of a copy, `.tmp` of a small write.
    """
    return f"{stem_of(path)}.{uuid.uuid4().hex}{suffix}"


def stem_of(path: str) -> str:
    """What all temporary names of a file begin with. Pure."""
    folder, name = os.path.split(path)
    room = _MOST_BYTES - len(".") - 32 - len(".part")
    return os.path.join(folder, os.fsencode(name)[:room].decode(errors="ignore"))


def is_half_written(path: str) -> bool:
    """Whether a local name is that of a copy, or of a small write, that did not end. Pure."""
    return half_written_of(path) is not None


def half_written_of(path: str) -> str | None:
    """`stem_of` the file that such a name was to become; None for the name of a whole file. Pure."""
    found = _HALF_WRITTEN.fullmatch(path)
    return None if found is None else found[1]


def remove_temporary(path: str) -> None:
    """Remove a temporary file; one that stays is told, and fails nothing: what it was for has happened. Destroys."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        _LOG.warning("the temporary file %s cannot be removed: %s; it harms nothing", path, error.strerror)

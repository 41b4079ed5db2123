"""Names of local files that are not whole yet: each lies beside the file that it becomes."""

from __future__ import annotations

import os
import re
import uuid

_NAME = re.compile(r"(.*)\.[0-9a-f]{32}\.(?:part|tmp)")
_MOST_BYTES = 255
"""Of a name on ext4, XFS, Btrfs, APFS and NTFS."""


def temporary_beside(path: str, suffix: str) -> str:
    """A new name beside a file, no longer than a name may be, and so cut where the file's own is long. Pure.

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
    return _NAME.fullmatch(path) is not None


def half_written_of(path: str) -> str | None:
    """What such a name begins with, as `stem_of` says of the file that it was to become; else None. Pure."""
    found = _NAME.fullmatch(path)
    return None if found is None else found[1]

"""Where tests write: in memory where there is enough of it, because many wait for a disk half of their time."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM = 8 << 30
"""Bytes; a whole run of two workers takes less than a tenth of it."""


def write_to_memory() -> None:
    """Let temporary files of this process and its children be in memory, unless TMPDIR says where. Sets TMPDIR."""
    if "TMPDIR" in os.environ or not _has_room():
        return
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None  # whoever asked before gets the new answer


def _has_room() -> bool:
    """Whether files there can be many, and be run: some tests write programs. Reads."""
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        return False
    may_run = not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
    return may_run and shutil.disk_usage(_MEMORY).free >= _ROOM and _available() >= _ROOM


def _available() -> int:
    """Bytes of memory that are free, or would be given up. Reads."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)

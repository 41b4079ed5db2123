"""Name processes of this machine in records, and tell whether the process that wrote a record still runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def process_name() -> str:
    """This process as `host:pid`, for whoever reads who holds what. Reads."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_running(machine: str, pid: int) -> bool:
    """False only when that process is known to be gone: it was on this very machine. Reads the process table."""
    return not (machine and machine == this_machine() and not _process_exists(pid))


def this_machine() -> str:
    """Host, boot and process namespace of this process; empty where the system does not tell. Reads."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """When a process of this machine was started, as the system counts; empty where that cannot be told. Reads."""
    return next(iter(_stat(pid)[19:20]), "")


def _process_exists(pid: int) -> bool:
    if pid < 1:
        return False  # no process: to `kill` it is a group of them
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and only its parent has not asked for that yet. Reads the process table."""
    if _stat(pid)[:1] != ["Z"]:
        return False
    try:
        # The first thread of a process is shown like that, too, when it ended before the others.
        return len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return False


def _stat(pid: int) -> list[str]:
    """What Linux tells of a process behind its name, the state first (proc(5)); none elsewhere. Reads."""
    try:
        # The name in brackets may hold anything, spaces and brackets too.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []

"""What coordination rests on outside of the graph: processes that can be told apart, and a store that can be trusted.

A record names the process that wrote it, and whoever reads it on the same machine is told whether that still runs.

A store must create if absent, and its clock must agree with ours: what is old here must be old there, or nothing is
removed for its age. Ages are differences between times of two clocks: the store stamps files, engines and holders of
leases and holds write times of their own, and this host says what time it is now. A host that is days ahead finds
running writes old, holds expired and leases dead.

And a publish needs space to its end: while a sidecar waits on a full disk, the engine cannot open the graph.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Protocol, TypedDict

from omnigraph_ops.coordination.state import PROBE_PREFIX
from omnigraph_ops.errors import ClockWrong, StorageError
from omnigraph_ops.graph.layout import MAINTENANCE_DIR
from omnigraph_ops.quantities import human_bytes, moment_at
from omnigraph_ops.storage.store import Storage

_LOG = logging.getLogger(__name__)
_BYTES_OF_A_PUBLISH = 4 << 20
"""Of a sidecar and of the commits to the graph manifest, with room to spare; a table's own manifest may be larger."""


def process_name() -> str:
    """This process as `host:pid`, for whoever reads who holds what. Reads."""
    return f"{socket.gethostname()}:{os.getpid()}"


class ProcessFields(TypedDict):
    """The fields by which a record names a process."""

    pid: int
    machine: str
    """Where `pid` means something; empty when nobody can tell, or need not."""
    process_started: str
    """What `start_of` told of it, since a later process may have its number; empty where that is not known."""


class NamesProcess(Protocol):
    """A record with these fields."""

    @property
    def pid(self) -> int: ...
    @property
    def machine(self) -> str: ...
    @property
    def process_started(self) -> str: ...


def this_process() -> ProcessFields:
    """This process, for a record of it. Reads."""
    pid = os.getpid()
    return {"pid": pid, "machine": this_machine(), "process_started": start_of(pid)}


def is_running(named: NamesProcess) -> bool:
    """False only when that process is known to be gone: it was on this very machine. Reads the process table."""
    if not was_here(named):
        return True
    started = named.process_started
    return _process_exists(named.pid) and (not started or start_of(named.pid) in {"", started})


def was_here(named: NamesProcess) -> bool:
    """Whether that process is known to be, or to have been, one of this machine. Reads."""
    return bool(named.machine) and named.machine == this_machine()


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


_ROUNDS, _RACERS = 3, 8
_PASSED = set[str]()


def refuse_unsafe_store(storage: Storage) -> None:
    """Race exclusive creates below `__maintenance/`; raise `StorageError` unless exactly one wins each time. Writes.

    Local file systems link atomically and are not raced; there a warning tells of files that their owner could not
    read. A store that passed is not asked again by this process; its keys are deleted.
    """
    if storage.root in _PASSED:
        return
    if storage.is_local:
        _PASSED.add(storage.root)
        _warn_of_another_owner(storage.root)
        return
    for _ in range(_ROUNDS):
        key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
        try:
            with ThreadPoolExecutor(max_workers=_RACERS) as pool:
                bodies = [f"racer {n}".encode() for n in range(_RACERS)]
                winners = sum(pool.map(functools.partial(storage.create, key), bodies))
        except StorageError as error:
            if "NotImplemented" not in str(error):  # the answer of a store that knows no such put
                raise
            winners = 0
        finally:
            with contextlib.suppress(StorageError):
                storage.delete(key)
        if winners != 1:
            raise StorageError(
                f"the object store of {storage.root} let {winners} of {_RACERS} writers create the same object: it "
                "does not honour conditional puts (If-None-Match), so commits would be lost without an error; nothing "
                "was written; use a store that does"
            )
    _PASSED.add(storage.root)


def _warn_of_another_owner(root: str) -> None:
    """Log that root is about to write into a graph of somebody else. Reads."""
    owner = Path(root).stat().st_uid if Path(root).is_dir() else os.geteuid()
    if os.geteuid() == 0 and owner != 0:
        _LOG.warning(
            "%s belongs to uid %d, and this run is root's: so are the files that it writes, and only root can read the "
            "text indexes among them, so searches of others fail; run as that user, or give it the files afterwards "
            "(chown -R)",
            *(root, owner),
        )


MOST_SECONDS_APART = 300.0
"""A host that keeps time by NTP is within a second, S3 itself refuses requests from 15 minutes on, and the least age at
which anything is removed while writers work is an hour."""
_ASKED_AGAIN_SECONDS = 300.0
_KNOWN = dict[str, tuple[float, float]]()
"""By the root of a store, when its clock and this host's last agreed: by a clock that only grows, and by the host's."""


def refuse_wrong_clock(storage: Storage, consequence: str) -> None:
    """Raise `ClockWrong` unless the store stamps a new object with about the time of this host. Writes and removes it.

    Args:
        consequence: what did not happen, for the message: `nothing was deleted`.
    """
    _refuse(clock_problem(storage), consequence)


def clock_problem(storage: Storage) -> str | None:
    """How far the two clocks are apart, None when that is little. Writes and removes an object now and then."""
    if _is_known(storage.root):
        return None
    began = time.time()
    stamped = _stamp_of_new_object(storage)
    problem = _apart(storage, began, stamped)
    if problem is None:
        _KNOWN[storage.root] = (time.monotonic(), time.time())
    return problem


def refuse_wrong_clock_unwritten(storage: Storage) -> None:
    """The same for a plan, which only reads: by the date of the store's reply; a local disk gives none. Reads."""
    if storage.is_local or _is_known(storage.root):
        return
    began = time.time()
    date = storage.reply_headers(MAINTENANCE_DIR).get("date")
    problem = _apart(storage, began, parsedate_to_datetime(date).timestamp()) if date else None
    _refuse(problem, "nothing was planned")


def _refuse(problem: str | None, consequence: str) -> None:
    if problem is not None:
        raise ClockWrong(f"{problem}; {consequence}; set the clock that is wrong, then run again")


def refuse_full_disk(storage: Storage, manifest_bytes: int) -> None:
    """Raise `StorageError` where a local disk has too little space for a publish of such manifests. Reads."""
    needed = free = _BYTES_OF_A_PUBLISH + manifest_bytes
    with contextlib.suppress(OSError):  # whatever writes there tells what is wrong
        free = shutil.disk_usage(storage.root).free if storage.is_local else needed
    if free < needed:
        raise StorageError(
            f"No space left on device for a publish: {human_bytes(free)} are free at {storage.root}, and it may need "
            f"{human_bytes(needed)}; nothing was published; free space there, then run again"
        )


def _stamp_of_new_object(storage: Storage) -> float | None:
    key = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    try:
        storage.write(key, b"what time is it")
        return storage.stat(key).modified_at
    finally:
        with contextlib.suppress(StorageError):
            storage.delete(key)


def _apart(storage: Storage, began: float, stamped: float | None) -> str | None:
    """The sentence about two clocks that differ; what the request took counts for neither. Reads the clock."""
    if stamped is None:
        return f"the store of {storage.root} does not say when an object was written"
    ended = time.time()
    apart = max(began - stamped, stamped - ended, 0.0)
    if apart <= MOST_SECONDS_APART:
        return None
    return (
        f"this host's clock says {moment_at(ended)}, and the store of {storage.root} stamped a new object with "
        f"{moment_at(stamped)}: they are {apart:,.0f} s apart, so no age can be told"
    )


def _is_known(root: str) -> bool:
    """Whether the clocks agreed a moment ago and this host's has not jumped since. Reads the clock."""
    known = _KNOWN.get(root)
    if known is None:
        return False
    passed, shown = time.monotonic() - known[0], time.time() - known[1]
    return passed < _ASKED_AGAIN_SECONDS and abs(shown - passed) < MOST_SECONDS_APART

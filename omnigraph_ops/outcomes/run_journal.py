"""The journal of a run at work: its intent, a file for every unit, and what the graph tells of one that was cut off.

It is the folder `__maintenance/runs/<ulid>/`. The file of a unit is put before its first effect and replaced by one
with its result after its last. A run that comes to its end removes the folder, last. One whose process is gone is
recorded by whoever comes next (`runs.settle`). Deleting the folder loses the record of runs that were cut off and harms
nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from omnigraph_ops.coordination.environment import is_running, was_here
from omnigraph_ops.coordination.state import RUNS_DIR, TASKS_DIR, Records, refuse
from omnigraph_ops.errors import OpsError, first_line
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import is_ulid, new_ulid, now_us
from omnigraph_ops.models.history import RunHeader, RunRecord
from omnigraph_ops.models.outcomes import StageReport
from omnigraph_ops.models.runs import RunIntent, TaskAttempt, Unit
from omnigraph_ops.outcomes.results import STAGES, UnitRecord, refuse_unknown
from omnigraph_ops.storage.inventory import files_in, folders_in, look_again, remove_files, remove_folder
from omnigraph_ops.storage.store import Storage

_INTENT, _RECORD = "intent.json", "record.json"
UNIT_FILE = re.compile(r".*/\d{6,}\.json")
_UNREADABLE = "no work is stopped; put the folder right, or remove it"
_INTENTS = Records(RunIntent, unreadable=refuse)
_UNITS, _RECORDS = Records(UnitRecord), Records(RunRecord)
"""What is damaged of them is left out."""
Warn = Callable[[str], None]
_DEAD_AFTER_SECONDS = 86_400.0
"""A journal of another machine, whose processes nobody can ask, that did not change for so long is of a dead one."""
_EMPTY_SECONDS = 60.0
"""A folder without a file that did not change for so long is of no run that is about to put its intent there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """One journal as it is now."""

    folder: str
    intent: RunIntent
    units: tuple[UnitRecord, ...]
    """In the order in which they began."""
    record: RunRecord | None
    """Of a run that came to its end and could not write its history."""
    changed_at: float | None
    """When it was written to last, in seconds since the epoch; None where the store does not say."""

    @property
    def is_running(self) -> bool:
        """Whether its process is at work on this machine. Reads the process table."""
        return was_here(self.intent) and is_running(self.intent)

    @property
    def may_be_alive(self) -> bool:
        """Whether its process is not known to be gone. Reads the clock and the process table."""
        if was_here(self.intent):
            return self.is_running
        return self.changed_at is None or time.time() - self.changed_at < _DEAD_AFTER_SECONDS


def folder_of(header: RunHeader, task: TaskAttempt | None) -> str:
    """Where a run, or a task of a DAG run, keeps its journal, below the graph. Draws a random number."""
    if task is None:
        return f"{RUNS_DIR}/{new_ulid(header.started_at_us)}"
    return f"{tasks_of(header.run_id)}/{new_ulid(now_us())}"


def tasks_of(run_id: str) -> str:
    """The folder of the journals of a DAG run's tasks, below the graph. Pure."""
    return f"{TASKS_DIR}/{hashlib.sha256(run_id.encode()).hexdigest()[:32]}"


def begin(storage: Storage, folder: str, intent: RunIntent) -> None:
    """Put the intent, before anything else of the run. Writes."""
    _INTENTS.write(storage, f"{folder}/{_INTENT}", intent)


def note(storage: Storage, folder: str, number: int, record: UnitRecord, *, clean: Callable[[str], str]) -> None:
    """Put a unit, in place of what was there of it; `clean` takes secrets out of its texts. Writes."""
    _UNITS.write(storage, f"{folder}/{number:06d}.json", record, clean=clean)


def keep_record(storage: Storage, folder: str, record: RunRecord) -> None:
    """Put the record of a run that could not be added to the history, for whoever settles. Writes."""
    _RECORDS.write(storage, f"{folder}/{_RECORD}", record)


def remove(storage: Storage, folder: str) -> None:
    """Drop the journal of a run that has its record. Destroys only the journal."""
    # The intent goes last: without it nobody would know whose units these are.
    remove_files(storage, [f"{folder}/{name}" for name in storage.list(folder) if name != _INTENT])
    storage.delete_tree(folder)


def remove_empty(storage: Storage) -> None:
    """Remove the folders that a kill left after the last file of a journal, or before its first. Destroys only these.

    No object store has folders without a file.
    """
    for folder in folders_in(storage, RUNS_DIR) if storage.is_local else ():
        if not is_ulid(folder.rpartition("/")[2]):
            continue
        with contextlib.suppress(FileNotFoundError, OpsError):
            changed_at = storage.stat(folder).modified_at
            if changed_at is not None and time.time() - changed_at > _EMPTY_SECONDS:
                remove_folder(storage, folder)  # one with a file stays


def silent(_text: str) -> None:
    """Drop a warning. Pure."""


def open_journals(storage: Storage, *, warn: Warn = silent) -> tuple[Journal, ...]:
    """Every journal that can be read, oldest first; `warn` gets one sentence for each of the others. Reads.

    Nothing that stands in their place stops the work on the graph, either: `warn` gets a sentence about it.
    """
    found: list[Journal | None] = []
    try:
        folders = sorted(folders_in(storage, RUNS_DIR))
    except OpsError as error:
        warn(f"interrupted runs cannot be recorded: {error}; {_UNREADABLE}")
        return ()
    if storage.is_blocked(RUNS_DIR):  # by a link that leads nowhere: it lists as empty
        warn(f"interrupted runs cannot be recorded: {RUNS_DIR} is a link that leads nowhere; {_UNREADABLE}")
    for folder in folders:
        if is_ulid(folder.rpartition("/")[2]):
            with isolated(folder, warn):
                found.append(read(storage, folder))
    return tuple(one for one in found if one is not None)


@contextlib.contextmanager
def isolated(folder: str, warn: Warn) -> Iterator[None]:
    """Turn whatever one journal makes fail in the block into one warning. Pure."""
    try:
        yield
    except Exception as error:
        # Not only errors of ours: the files may hold anything, and no journal may stop the work on the graph.
        reason = str(error) if isinstance(error, OpsError) else f"{type(error).__name__}: {first_line(error)}"
        warn(
            f"the run of the journal {folder} could not be recorded: {reason}; the journal stays and "
            "stops no work, and the next command tries again; delete that folder to give up the record of the run"
        )


def read(storage: Storage, folder: str) -> Journal | None:
    """The journal in a folder; None: it is being written, or removed. Reads."""
    stored = files_in(storage, folder)
    intent = _INTENTS.read(storage, f"{folder}/{_INTENT}")
    if intent is None:
        return None
    units = (_UNITS.read(storage, path) for path in sorted(f.path for f in stored if UNIT_FILE.fullmatch(f.path)))
    return Journal(
        folder=folder,
        intent=intent,
        units=tuple(unit for unit in units if unit is not None),
        record=_RECORDS.read(storage, f"{folder}/{_RECORD}"),
        changed_at=max((f.modified_at for f in stored), default=None),
    )


def what_came_of(graph: Graph, unit: Unit) -> StageReport | None:
    """What a unit did, as far as the graph shows; None: nothing. Reads.

    Raises:
        InvalidInput: this release does not know its stage.
        OpsError: the graph cannot be read.
    """
    refuse_unknown([unit.stage])
    return cast("StageReport | None", STAGES[unit.stage].told(graph, unit))


def moved(graph: Graph, unit: Unit) -> tuple[int, int]:
    """How many of the files are not where they were, and how many bytes. Reads."""
    found = look_again(graph.storage, [f.path for f in unit.files])
    gone = [file for file, now in zip(unit.files, found, strict=True) if now is None]
    return len(gone), sum(f.size for f in gone)

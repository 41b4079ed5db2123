"""The journal of a run at work: its intent, a file for every unit, and what the graph tells of one that was cut off.

The journal of a run at work: `__maintenance/runs/<ulid>/` with its intent, and a small file for every unit. The file of
a unit is put before its first effect and replaced by one with its result after its last. A run that comes to its end
removes the folder, last. One whose process is gone is recorded by whoever comes next (`runs.settle`). Deleting the
folder loses the record of runs that were cut off and harms nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from omnigraph_ops.coordination.environment import is_running, this_machine
from omnigraph_ops.coordination.state import RUNS_DIR, TASKS_DIR, Records, refuse
from omnigraph_ops.errors import CorruptGraph, InvalidInput, OpsError, first_line
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import (
    CONTENT_PRESERVING,
    UnreadableTransaction,
    VersionRecord,
    history,
    stored_versions,
    version_record,
)
from omnigraph_ops.graph.layout import is_ulid, new_ulid, now_us
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing
from omnigraph_ops.lance.rows import clock_of, count_below
from omnigraph_ops.lance.tables import fragment_facts, index_facts
from omnigraph_ops.models.backup import BackupLeft
from omnigraph_ops.models.cleanup import CleanupStats, OrphanedFork, TableRowStats
from omnigraph_ops.models.health import RecoveryOutcome
from omnigraph_ops.models.history import RunHeader, RunRecord, Work
from omnigraph_ops.models.optimize import TableStats
from omnigraph_ops.models.repair import RepairAction, RepairReport
from omnigraph_ops.models.runs import FilesDone, RunIntent, TableOutcome, TaskAttempt, Unit, UnitRecord, UnitValue
from omnigraph_ops.outcomes.backups import backup_of, left_of
from omnigraph_ops.storage.inventory import files_in, folders_in, look_again, remove_files
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
        intent = self.intent
        here = bool(intent.machine) and intent.machine == this_machine()
        return here and is_running(intent.machine, intent.pid, intent.process_started)

    @property
    def may_be_alive(self) -> bool:
        """Whether its process is not known to be gone. Reads the clock and the process table."""
        if self.intent.machine and self.intent.machine == this_machine():
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


def what_came_of(graph: Graph, unit: Unit) -> UnitValue | None:
    """What a unit did, as far as the graph shows; None: nothing. Reads.

    Raises:
        InvalidInput: this release does not know how.
        OpsError: the graph cannot be read.
    """
    if not can_tell(unit):
        raise InvalidInput(f"this release does not know the stage {unit.stage!r}")
    return _BY[unit.told_by or unit.stage](graph, unit)


def can_tell(unit: Unit) -> bool:
    """Whether this release knows how the effects of a unit are told. Pure."""
    return (unit.told_by or unit.stage) in _BY


def cleaned(graph: Graph, unit: Unit) -> CleanupStats:
    """Which of the versions are gone, and how much of their files. Raises `CorruptGraph`. Reads."""
    there = stored_versions(graph.storage, unit.table_path)
    if not there:
        raise CorruptGraph(f"{unit.table_path} has no version any more")
    if unit.version is not None and max(there) < unit.version:
        return CleanupStats(table_key=unit.table_key)  # another table: it was made anew, or put back from a copy
    gone = tuple(v for v in unit.versions if v not in there)
    return CleanupStats(
        table_key=unit.table_key,
        bytes_removed=moved(graph, unit).bytes,
        old_versions_removed=len(gone),
        versions=gone,
    )


def moved(graph: Graph, unit: Unit) -> FilesDone:
    """How many of the files are not where they were. Reads."""
    found = look_again(graph.storage, [f.path for f in unit.files])
    gone = [file for file, now in zip(unit.files, found, strict=True) if now is None]
    return FilesDone(files=len(gone), bytes=sum(f.size for f in gone))


def optimized(graph: Graph, unit: Unit) -> TableStats:
    """Whether a commit of ours moved the table, and what it replaced. Reads."""
    stats = TableStats(table_key=unit.table_key)
    path, newest = _newest(graph, unit)
    if path is None or newest is None or unit.version is None or int(newest.version) <= unit.version:
        return stats
    commits = history(graph.storage, path, after=unit.version, upto=int(newest.version)).records
    mine = [_is_ours(graph, unit, commit) for commit in commits]
    if not any(mine):
        return stats
    return replace(
        _difference(graph, path, unit.version, newest, stats) if all(mine) else stats,
        committed=True,
        published_version=int(newest.version),
    )


def _newest(graph: Graph, unit: Unit) -> tuple[str | None, Dataset | None]:
    """The path of the table of a unit and its HEAD: `recover` publishes what we committed to it. Reads."""
    if unit.table_path:
        return unit.table_path, graph.open_at(unit.table_path)
    entry = graph.published(unit.table_key)
    return (None, None) if entry is None else (entry.path, graph.open_head(entry))


def _is_ours(graph: Graph, unit: Unit, commit: VersionRecord) -> bool:
    """Whether this tool made a commit: by its mark where it leaves one, else by its kind. Pure."""
    if unit.table_path or not graph.format.publishes:
        return commit.operation in CONTENT_PRESERVING
    return commit.mark is not None


def _difference(graph: Graph, path: str, before: int, newest: Dataset, stats: TableStats) -> TableStats:
    """The figures of what was replaced, while the version before is still there. Reads."""
    try:
        old = graph.open_at(path, version=before)
    except DatasetMissing:
        return stats
    had, has = ({f.fragment_id: f for f in fragment_facts(d)} for d in (old, newest))
    known = set(index_facts(old))
    indexes = [i for i in index_facts(newest) if i not in known]
    index_bytes = sum(i.size_bytes for i in indexes)
    return replace(
        stats,
        fragments_removed=len(had.keys() - has.keys()),
        fragments_added=len(has.keys() - had.keys()),
        bytes_rewritten=index_bytes + sum(has[n].data_bytes for n in has.keys() - had.keys()),
        index_bytes_rewritten=index_bytes,
        indexes_folded=tuple(i.name for i in indexes if any(i.name == k.name for k in known)),
        indexes_built=tuple(i.name for i in indexes if all(i.name != k.name for k in known)),
    )


def _fork(graph: Graph, unit: Unit) -> OrphanedFork | None:
    listed = {ref.name for ref in graph.lance.branches(graph.open_at(unit.table_path))}
    if unit.branch in listed:
        return None
    return OrphanedFork(table_key=unit.table_key, table_path=unit.table_path, branch=unit.branch, files=unit.files)


def _repaired(graph: Graph, unit: Unit) -> RepairReport | None:
    """The report with what was published; a table that was not stays as it was previewed. Reads."""
    report = unit.report
    if report is None:
        return None
    state = graph.state()
    pins = {entry.table_key: entry.version for entry in state.entries}
    # One graph commit for all of them, so one tells of all.
    published = any(
        pins.get(row.table_key, 0) >= row.lance_head_version
        for row in report.tables
        if row.action in {RepairAction.HEALED, RepairAction.FORCED}
    )
    return replace(report, manifest_version=state.manifest_version) if published else None


def _recovered(graph: Graph, unit: Unit) -> RecoveryOutcome | None:
    entry = graph.published(unit.table_key) if unit.table_key else None
    now = entry.version if entry is not None else None
    if now is not None and unit.version is not None and now > unit.version:
        action = "rolled_forward"
    elif unit.sidecar and unit.sidecar not in sidecar_names(graph.storage):
        action = "rolled_back"
    else:
        return None
    return RecoveryOutcome(
        operation_id=unit.sidecar.removesuffix(".json"),
        table_key=unit.table_key,
        action=action,
        from_version=unit.version,
        to_version=now,
    )


def _expired(graph: Graph, unit: Unit) -> TableRowStats | None:
    """How many rows below the cut are not there any more, and their edges, which go in the same merge. Reads."""
    plan, branch = unit.rows, unit.branch or None
    entry = graph.state(branch).get(unit.table_key)
    if plan is None or entry is None:
        return None
    now = graph.open_pinned(entry)
    clock = clock_of(now, plan.policy.property, plan.policy.unit)
    left = count_below(now, clock, plan.cut)
    may = graph.format.publishes or _has_commit_of(graph, entry, plan.manifest_version, clock.below(plan.cut))
    removed = max(plan.expired - left, 0) if may else 0
    return TableRowStats(
        table_key=unit.table_key,
        rows_removed=removed,
        edges=plan.edges if removed else (),
        rows_left=left,
        manifest_version=entry.version,
    )


def _has_commit_of(graph: Graph, entry: TableEntry, after: int, predicate: str) -> bool:
    """Whether a delete with that predicate was committed: others delete too, or make the whole table anew. Reads."""
    for version in range(after + 1, entry.version + 1):
        with contextlib.suppress(UnreadableTransaction):
            if version_record(graph.storage, entry.path, version).predicate == predicate:
                return True
    return False


def _backed_up(graph: Graph, unit: Unit) -> BackupLeft | None:
    return left_of(*backup_of(unit.backup, graph.context.access))


def _by_version(graph: Graph, unit: Unit) -> TableOutcome:
    """Whether the table is published at a later version than before. Reads."""
    entry = graph.published(unit.table_key)
    changed = entry is not None and unit.version is not None and entry.version > unit.version
    return TableOutcome(table_key=unit.table_key, changed=changed)


def _by_files(graph: Graph, unit: Unit) -> TableOutcome:
    """How many of the files are gone. Reads."""
    done = moved(graph, unit)
    work = Work(files_removed=done.files, bytes_reclaimed=done.bytes)
    return TableOutcome(table_key=unit.table_key, changed=bool(done.files), work=work)


_BY: dict[str, Callable[[Graph, Unit], UnitValue | None]] = {
    "optimize": optimized,
    "cleanup": cleaned,
    "forks": _fork,
    "orphans": moved,
    "quarantine": moved,
    "repair": _repaired,
    "recover": _recovered,
    "expire-rows": _expired,
    "backup": _backed_up,
    "version": _by_version,
    "files": _by_files,
}
"""By the stage, or by what the unit itself says."""

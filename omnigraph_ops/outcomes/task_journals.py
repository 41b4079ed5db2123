"""The journals of a DAG run's tasks: `__maintenance/tasks/<run>/<ulid>/`, one for every attempt of a task.

Units are journalled as those of a run of the shell are. An attempt that comes to its end puts `left.json`, with all
that the report of the run needs to know of it. One that was cut off is told by the graph, by whoever comes next of the
same run. The folder of a run stays for thirty days: a run that is cleared goes on with it. Deleting it loses what a
report that is still to come would say, and harms nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BeforeValidator

from omnigraph_ops import serde
from omnigraph_ops.coordination.state import TASKS_DIR, Records, refuse
from omnigraph_ops.errors import InvalidInput, LeaseHeld
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.models.history import GIVEN_UP_SECONDS, RunHeader, RunRecord, UnsettledRun
from omnigraph_ops.models.runs import TaskAttempt
from omnigraph_ops.outcomes import history, run_journal
from omnigraph_ops.outcomes.audit_log import AuditEvent, audit_end
from omnigraph_ops.outcomes.history import record_of
from omnigraph_ops.outcomes.results import Interruption, RunResults, merged, redactor_of, refuse_unknown, with_units
from omnigraph_ops.outcomes.run_journal import Journal, Warn
from omnigraph_ops.outcomes.runs import CUT_OFF, RecordedRun, end_audit, results_of, turn
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.storage.inventory import WORKERS, Stored, below_folder
from omnigraph_ops.storage.store import Storage

_LEFT, _RECORDED = "left.json", "recorded.json"
_KEPT_SECONDS = 30 * 86_400
_NO_REPORT = "the run ended without its report"


_OF_0_2 = {"recovery": "recover", "row_retention": "expire-rows", "verified": "verify", "backup_left": "backup"} | {
    name: name for name in ("optimize", "repair", "orphans", "quarantine", "backup")
}
"""The fields in which 0.2.0 kept the reports of stages."""


def _results(raw: Any) -> RunResults:
    """What an attempt left, as a file has it. Raises `InvalidInput`."""
    if isinstance(raw, RunResults):
        return raw
    results = serde.from_json(RunResults, raw if "reports" in raw else {**raw, **_of_0_2(raw)})
    refuse_unknown(results.reports)
    return results


def _of_0_2(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The plans and reports that 0.2.0 left: a DAG run may begin before an update and end after it. Pure."""
    reports = {stage: raw[name] for name, stage in _OF_0_2.items() if raw.get(name)}
    if raw.get("cleanup") or raw.get("forks"):
        gone, stuck = ([f for f in raw["forks"] if (f["error"] is None) is is_gone] for is_gone in (True, False))
        policy = {"uri": "", "keep_versions": None, "older_than_secs": None}
        forks = {"orphaned_forks_removed": gone, "orphaned_forks_failed": stuck}
        reports["cleanup"] = {**policy, "tables": raw["cleanup"], **forks}
    return {"reports": reports, "plans": {"optimize": raw["optimize_plan"]} if raw.get("optimize_plan") else {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLeft:
    """What one attempt of a task did, and why it did not do more."""

    header: RunHeader
    """Of the DAG run."""
    task: TaskAttempt
    results: Annotated[RunResults, BeforeValidator(_results)]
    """With an interruption: its process ended before it could write this, and the graph told."""
    skipped: str = ""
    """Why its stage was not even planned, as a sentence."""


_LEFTS = Records(TaskLeft, unreadable=refuse)
_MARKS = Records(RunHeader)
"""Only that it is there counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskJournals:
    """The attempts of a DAG run's tasks, oldest first."""

    left: tuple[TaskLeft, ...]
    open: tuple[Journal, ...]
    """Of attempts that are at work, or were cut off."""

    def since(self, task_id: str) -> TaskJournals:
        """The attempts since the last clearing of the run in which a task came to its end. Pure."""
        started = self._started(task_id)
        return replace(self, left=tuple(one for one in self.left if one.header.started_at_us >= started))

    def without_repeated(self, planners: Mapping[str, str]) -> TaskJournals:
        """The same without what failed and was tried again, by the same task or by a later plan of the run. Pure.

        Args:
            planners: the task that plans, by the name of its stage.
        """
        started, last = {stage: self._started(task_id) for stage, task_id in planners.items()}, self.last()

        def now(one: TaskLeft) -> TaskLeft:
            is_last = last.get(one.task.instance) is one
            reports = {
                stage: report
                if is_last and one.header.started_at_us >= started.get(stage, 0)
                else report.without_failures()
                for stage, report in one.results.reports.items()
            }
            return replace(one, results=replace(one.results, reports=reports))

        return replace(self, left=tuple(map(now, self.left)))

    def _started(self, task_id: str) -> int:
        """When the run started in which a task last came to its end: one that is cleared has a new start. Pure."""
        done = (one for one in self.left if one.task.task_id == task_id and not (one.skipped or one.results.failures))
        return max((one.header.started_at_us for one in done), default=0)

    def last(self) -> dict[str, TaskLeft]:
        """The last attempt of each task, by its instance; none where that one did not come to its end. Pure."""
        at_work = {journal.intent.task for journal in self.open}
        later = {task.instance: task.try_number for task in at_work if task is not None}
        return {one.task.instance: one for one in self.left if one.task.try_number >= later.get(one.task.instance, 0)}

    def results(self, *task_ids: str) -> RunResults:
        """What all attempts did, or those of some tasks. Pure."""
        return merged([one.results for one in self.left if not task_ids or one.task.task_id in task_ids])


def leave(graph: Graph, run: RecordedRun, *, skipped: str = "") -> None:
    """Put what an attempt did; without units that did not end, nothing of it is left to tell. Writes.

    Raises:
        OpsError: it could not be written, or what a unit did could not be told; the journal stays open.
    """
    assert run.task is not None
    run.tell_the_rest()
    results = with_units(run.results, run.records)
    failed = {failure.table_key: failure.message for failure in results.failures}
    reports = {stage: report.with_failures(failed) for stage, report in results.reports.items()}
    results = replace(results, reports=reports, decisions=run.decisions)
    _put(graph, run.folder, TaskLeft(header=run.header, task=run.task, results=results, skipped=skipped))


def read_tasks(storage: Storage, run_id: str, *, warn: Warn = run_journal.silent) -> TaskJournals:
    """Every attempt of a run's tasks; `warn` gets a sentence about each that cannot be read. Reads."""
    names = _attempts(storage, run_id, warn)
    found: dict[str, TaskLeft | Journal | None] = {}

    def one(folder: str) -> None:
        with run_journal.isolated(folder, warn):
            is_over = _LEFT in names[folder]
            found[folder] = _LEFTS.read(storage, f"{folder}/{_LEFT}") if is_over else run_journal.read(storage, folder)

    # A wide graph has hundreds, and a store of objects takes its time for each.
    in_parallel(one, list(names), workers=WORKERS)
    attempts = [found[folder] for folder in sorted(found)]
    return TaskJournals(
        left=tuple(left for left in attempts if isinstance(left, TaskLeft)),
        open=tuple(at_work for at_work in attempts if isinstance(at_work, Journal)),
    )


def close(
    graph: Graph, run_id: str, *, is_over: Callable[[TaskAttempt], bool], warn: Warn = run_journal.silent
) -> None:
    """Tell what the attempts did that were cut off, and end what the audit log says of them. Writes.

    Before anything else of the run changes the graph. An attempt whose process is known to live is left alone.

    Args:
        is_over: whether an attempt can be at work no more, by whatever started it.
    """
    names = _attempts(graph.storage, run_id, run_journal.silent)
    for folder in sorted(folder for folder, files in names.items() if _LEFT not in files):
        with run_journal.isolated(folder, warn):
            found = run_journal.read(graph.storage, folder)
            task = found.intent.task if found is not None else None
            if found is not None and task is not None and is_over(task) and not found.is_running:
                results = results_of(graph, found)
                _, detail = audit_end(results, error=CUT_OFF, interrupted=True)
                end_audit(graph, found, AuditEvent.INTERRUPTED, detail)
                _put(graph, folder, TaskLeft(header=found.intent.header, task=task, results=results))


def mark_recorded(storage: Storage, header: RunHeader) -> None:
    """Note that the history has the record of a run. Writes."""
    _MARKS.write(storage, f"{run_journal.tasks_of(header.run_id)}/{_RECORDED}", header)


def settle_runs(
    graph: Graph, *, is_over: Callable[[UnsettledRun], bool], but: str = "", warn: Warn = run_journal.silent
) -> tuple[RunRecord, ...]:
    """Record the runs that ended without their report, and drop journals that are old; the records. Writes.

    Args:
        is_over: whether a run can be at work no more.
        but: a run that is left alone.
    """
    due: list[RunHeader] = []
    for folder, files in _by_run(graph.storage):
        with run_journal.isolated(folder, warn):
            if _is_recorded(files):
                if _idle_seconds(files) > _KEPT_SECONDS:
                    graph.storage.delete_tree(folder)
                continue
            run = _unsettled(graph.storage, files)
            if run is not None and run.header.run_id != but and is_over(run):
                due.append(run.header)
    return _record_all(graph, due, warn) if due else ()


def _record_all(graph: Graph, due: Sequence[RunHeader], warn: Warn) -> tuple[RunRecord, ...]:
    """Record these runs; none while another process does, which would end them in the audit log twice. Writes."""
    records: list[RunRecord] = []
    with contextlib.suppress(LeaseHeld), turn(graph):
        for header in due:
            folder = run_journal.tasks_of(header.run_id)
            with run_journal.isolated(folder, warn):
                files = tuple(_files(graph.storage, folder, run_journal.silent))
                if not _is_recorded(files):
                    records.append(_record(graph, header, warn, files))
    return tuple(records)


def unsettled_runs(storage: Storage) -> tuple[UnsettledRun, ...]:
    """The DAG runs that have no record yet. Reads."""
    found: list[UnsettledRun | None] = []
    for folder, files in _by_run(storage):
        if not _is_recorded(files):
            with run_journal.isolated(folder, run_journal.silent):
                found.append(_unsettled(storage, files))
    return tuple(run for run in found if run is not None)


def _is_recorded(files: Sequence[Stored]) -> bool:
    """Whether a run has its record, and no task of it did anything since: one that is cleared goes on. Pure."""
    marks = _marks(files)
    return bool(marks) and all(file.modified_at <= marks[0] for file in files if not file.is_folder)


def _marks(files: Sequence[Stored]) -> list[float]:
    """When a run was recorded, if it was. Pure."""
    return [file.modified_at for file in files if file.path.endswith(f"/{_RECORDED}")]


def _record(graph: Graph, header: RunHeader, warn: Warn, files: Sequence[Stored]) -> RunRecord:
    """Record a run from what its tasks left, by when its files say that it was last heard of. Writes.

    A record that it had before it went on is replaced.
    """
    close(graph, header.run_id, is_over=lambda _task: True, warn=warn)
    found = read_tasks(graph.storage, header.run_id, warn=warn)
    decisions = tuple(dict.fromkeys(d for left in found.left for d in left.results.decisions))
    cut_off = frozenset(key for left in found.left if (cut := left.results.interruption) for key in cut.tables)
    ended = Interruption(reason=_NO_REPORT, tables=cut_off)
    results = replace(found.results(), decisions=decisions, interruption=ended)
    record = None if _marks(files) else history.read_run(graph, header.run_id)
    if record is None:
        heard = max((int(file.modified_at * 1_000_000) for file in files if not file.is_folder), default=0)
        record = replace(record_of(header, results), ended_at_us=max(header.started_at_us, heard))
        history.append(graph, record)
    mark_recorded(graph.storage, header)
    return record


def _attempts(storage: Storage, run_id: str, warn: Warn) -> dict[str, set[str]]:
    """The folder of every attempt of a run's tasks, with the names of its files. Reads."""
    names: dict[str, set[str]] = {}
    for found in _files(storage, run_journal.tasks_of(run_id), warn):
        folder, _, name = found.path.rpartition("/")
        if folder.count("/") > TASKS_DIR.count("/") + 1:
            names.setdefault(folder, set()).add(name)
    return names


def _by_run(storage: Storage) -> tuple[tuple[str, tuple[Stored, ...]], ...]:
    """Every run's folder with its files. Reads."""
    found: dict[str, list[Stored]] = {}
    for file in _files(storage, TASKS_DIR, run_journal.silent):
        if not file.is_folder:
            found.setdefault("/".join(file.path.split("/")[:3]), []).append(file)
    return tuple((folder, tuple(files)) for folder, files in found.items())


def _files(storage: Storage, folder: str, warn: Warn) -> Iterable[Stored]:
    """Everything below a folder of journals; nothing that stands in its place stops any work. Reads."""
    if storage.is_blocked(TASKS_DIR):
        warn(f"{TASKS_DIR} is no folder: what tasks do cannot be noted; remove it")
        return ()
    return below_folder(storage, folder)


def _idle_seconds(files: Sequence[Stored]) -> float:
    return time.time() - max(file.modified_at for file in files)


def _unsettled(storage: Storage, files: Sequence[Stored]) -> UnsettledRun | None:
    """Which run the files are of, None where none of them tells. Reads."""
    at_work = _idle_seconds(files) < GIVEN_UP_SECONDS
    units = sum(bool(run_journal.UNIT_FILE.fullmatch(f.path)) for f in files)
    damaged: InvalidInput | None = None
    for file in files:
        try:
            header = _header_in(storage, file)
        except InvalidInput as error:
            damaged = error
            continue
        if header is not None:
            return UnsettledRun(header=header, at_work=at_work, units=units)
    if damaged is not None:
        raise damaged
    return None


def _header_in(storage: Storage, file: Stored) -> RunHeader | None:
    """Which run one file is of, None where it does not tell. Reads."""
    folder, _, name = file.path.rpartition("/")
    if name == _LEFT:
        left = _LEFTS.read(storage, file.path)
        return left.header if left is not None else None
    found = run_journal.read(storage, folder)
    return found.intent.header if found is not None else None


def _put(graph: Graph, folder: str, left: TaskLeft) -> None:
    _LEFTS.write(graph.storage, f"{folder}/{_LEFT}", left, clean=redactor_of(graph.storage))

"""The audit log of a graph: who decided what about which plan, and what came of it.

One small file per entry under `__maintenance/audit/`, named by a ULID, so that entries are written by one
atomic put on any store and sort by time. Deleting the folder loses history and harms nothing.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict, Unpack

from omnigraph_ops.coordination.state import AUDIT_DIR, Records
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.models.history import RunDecision, RunHeader
from omnigraph_ops.models.runs import TaskAttempt
from omnigraph_ops.outcomes.results import RunResults, outcomes_of, redactor_of
from omnigraph_ops.quantities import count, moment
from omnigraph_ops.storage.store import Storage
from omnigraph_ops.views.view import Section, View

_TIME_OF_ULID = 10
"""Characters of a ULID that tell its millisecond."""
_CLOCK_STEP_US = 86_400 * 1_000_000
"""A clock may be set back while a run is at work: an entry of it is at most so much older than its start."""


class AuditEvent(StrEnum):
    """What an entry records."""

    APPROVED = "approved"
    REJECTED = "rejected"
    UNANSWERED = "unanswered"
    STARTED = "started"
    """Written before the first effect; one of the next three follows."""
    APPLIED = "applied"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    UNAPPROVED = "unapproved"
    """Nothing was done, because the approval lacked the switch that all of it needs."""


ENDS = frozenset({AuditEvent.APPLIED, AuditEvent.FAILED, AuditEvent.INTERRUPTED, AuditEvent.UNAPPROVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One line of the log."""

    at_us: int
    """Microseconds since the epoch."""
    verb: str
    event: AuditEvent
    actor: str
    digest: str
    detail: str = ""
    """One sentence: the answer, what was done, or why it failed."""
    run: str | None = None
    """The run, as the history names it; the Airflow run for what a DAG did."""
    task: str | None = None
    """Of what a DAG did, the attempt of the task, so that each start has its end."""


_ENTRIES = Records(AuditEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLog:
    """Entries of a graph, oldest first."""

    uri: str
    entries: tuple[AuditEntry, ...]
    unreadable: tuple[str, ...] = ()
    """Files below the graph that are damaged, or that a later release wrote: what they say is not in `entries`."""


class Subject(TypedDict):
    """Whose work an entry is about: the arguments of `append` beside the event and its detail."""

    verb: str
    actor: str
    digest: str
    run: str
    task: str | None


def subject_of(
    header: RunHeader, decisions: Sequence[RunDecision], digest: str, task: TaskAttempt | None = None
) -> Subject:
    """What the entries about one plan in a run have in common: who decided about it is their actor. Pure."""
    decided = next((decision for decision in decisions if decision.digest == digest), None)
    return Subject(
        verb=decided.stage if decided else header.verb,
        actor=decided.by if decided else header.triggered_by,
        digest=digest,
        run=header.dag_run_id or header.run_id,
        task=None if task is None else f"{header.dag_id}/{task.instance} try {task.try_number}",
    )


def append(storage: Storage, event: AuditEvent, *, detail: str = "", **subject: Unpack[Subject]) -> AuditEntry:
    """Add one entry, without any secret that is known. Writes."""
    at_us = now_us()
    said = redactor_of(storage)(detail)
    entry = AuditEntry(at_us=at_us, event=event, detail=said, **subject)
    _ENTRIES.write(storage, f"{AUDIT_DIR}/{new_ulid(at_us)}.json", entry)
    return entry


def started(storage: Storage, **subject: Unpack[Subject]) -> AuditEntry:
    """Add the entry that an apply begins with, before its first effect. Writes.

    Raises:
        StorageError: it could not be written, so the effect must not happen.
    """
    try:
        return append(storage, AuditEvent.STARTED, **subject)
    except StorageError as error:
        raise StorageError(
            f"the audit log could not be written, so nothing was removed or published; {AUDIT_DIR}/ must be writable "
            f"before a run goes on: {error}"
        ) from error


def is_open(storage: Storage, *, run: str, task: str | None, since_us: int) -> bool:
    """Whether the log says that a run, or a task of it, started, and not how it ended. Reads.

    Only entries that are at most a day older than the run.
    """
    first = new_ulid(max(0, since_us - _CLOCK_STEP_US))[:_TIME_OF_ULID]
    paths = [p for p in _ENTRIES.paths(storage, AUDIT_DIR) if p.rpartition("/")[2][:_TIME_OF_ULID] >= first]
    entries = [entry for path in paths if (entry := _ENTRIES.read(storage, path)) is not None]
    events = [entry.event for entry in entries if (entry.run, entry.task) == (run, task)]
    # Counted: a DAG run that is deleted and made anew under its id begins with the same attempts again.
    return events.count(AuditEvent.STARTED) > sum(event in ENDS for event in events)


def log_of(storage: Storage, uri: str, *, newest: int | None = None) -> AuditLog:
    """The log, only the newest so many entries if asked: at least one. Reads."""
    paths = _ENTRIES.paths(storage, AUDIT_DIR)
    read = {path: _ENTRIES.read(storage, path) for path in (paths if newest is None else paths[-newest:])}
    return AuditLog(
        uri=uri,
        entries=tuple(entry for entry in read.values() if entry is not None),
        unreadable=tuple(path for path, entry in read.items() if entry is None),
    )


def wants_audit(results: RunResults) -> bool:
    """Whether the audit log says something of a run although nothing of it began: what failed or was refused. Pure."""
    return any(report.audited_as for report in results.reports.values()) or any(
        not outcome.applied or outcome.failures or any(t.error for t in outcome.tables)
        for outcome in outcomes_of(results)
    )


def audit_end(results: RunResults, *, error: str | None, interrupted: bool) -> tuple[AuditEvent, str]:
    """How the audit log ends a run, and its detail. Pure."""
    told = [outcome for outcome in outcomes_of(results) if outcome.detail]
    details = [outcome.detail for outcome in told]
    if not details and error is not None:
        details = ["nothing was removed or published"]
    if interrupted:
        event = AuditEvent.INTERRUPTED
    elif error is not None or not all(outcome.applied or outcome.only_unapproved for outcome in told):
        event = AuditEvent.FAILED
    elif not all(outcome.applied for outcome in told):
        event = AuditEvent.UNAPPROVED
    else:
        event = AuditEvent.APPLIED
    return event, "; ".join(filter(None, (error, *details)))


def audit_view(log: AuditLog) -> View:
    """The log, oldest entry first. Pure."""
    rows = tuple(
        (moment(e.at_us), e.verb, e.event.value, e.actor, e.run or "", e.task or "", e.detail, e.digest)
        for e in log.entries
    )
    header = ("When", "Verb", "Event", "By", "Run", "Task", "Detail", "Digest")
    return View.of(
        f"audit {log.uri} — {count(len(log.entries), 'entry', 'entries')}",
        Section.table("Entries", header, rows),
        Section(title="Damaged or of a later release, so not shown", lines=log.unreadable),
    )


def shell_actor() -> str:
    """Who runs this process, as `user@host`, `uid 1000@host` where the uid has no name. Reads the environment."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"

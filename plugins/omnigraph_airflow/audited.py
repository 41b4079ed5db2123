"""Carrying out what somebody decided: the audit log has its start before the first effect, then its end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph_airflow.run_facts import decision_of
from omnigraph_airflow.task_run import run_of
from omnigraph_ops.errors import OpsError, OutcomeUnknown, StorageError
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.views.markdown import some

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_airflow.decisions import Decision
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.models.runs import UnitRecord
    from omnigraph_ops.outcomes.runs import RecordedRun
    from omnigraph_ops.storage.store import Storage


_MOST_NAMED = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One task that carries out a decision: its first unit began with an entry that had to be written."""

    run: RecordedRun
    storage: Storage
    digest: str

    @property
    def told(self) -> str:
        """What is removed by now; empty when nothing is. Pure."""
        return told(self.run.records)

    @property
    def is_open(self) -> bool:
        """Whether the audit log has the start of this attempt, and not its end. Reads."""
        said = self.run.subject(self.digest)
        since_us = self.run.header.started_at_us
        return audit_log.is_open(self.storage, run=said["run"], task=said["task"], since_us=since_us)

    def ends(self, event: AuditEvent, detail: str) -> None:
        """Add the entry of what came of it, where anything began or went wrong. Writes."""
        if self.run.audited or event is not AuditEvent.APPLIED:
            _append(self.storage, event, self.run.subject(self.digest), detail)


def told(units: Sequence[UnitRecord]) -> str:
    """What units removed; empty when they removed nothing. Pure."""
    done = [record.result for record in units if record.result is not None]
    cleaned = [result.cleaned for result in done if result.cleaned and result.cleaned.old_versions_removed]
    forks = sum(result.fork is not None and result.fork.error is None for result in done)
    files = sum(result.files.files for result in done if result.files is not None)
    rows = sum(result.expired.rows_removed for result in done if result.expired is not None)
    versions = sum(stats.old_versions_removed for stats in cleaned)
    parts = [f"{versions} versions of {some([s.table_key for s in cleaned], _MOST_NAMED)}"] if cleaned else []
    parts += [f"{forks} orphaned forks"] if forks else []
    parts += [f"{files} files"] if files else []
    parts += [f"{rows} rows"] if rows else []
    return f"{' and '.join(parts)} removed" if parts else ""


@contextmanager
def audited(graph: Graph, stage: str, decision: Decision) -> Iterator[Audited]:
    """Carry out a decision in the block, which ends it where it goes well; whatever else ends it is told. Writes.

    An error before the first effect is told only where it may have had one all the same.
    """
    run = run_of(graph)
    run.decisions = (decision_of(stage, decision),)
    work = Audited(run=run, storage=graph.storage, digest=decision.digest)
    try:
        yield work
    except Exception as error:
        if run.audited or isinstance(error, (StorageError, OutcomeUnknown)):
            _end_early(work, AuditEvent.FAILED, error)
        raise
    except BaseException as stop:
        # It may have come between the entry of the start and the note that there is one.
        if work.is_open:
            _end_early(work, AuditEvent.INTERRUPTED, stop)
        raise


def _end_early(work: Audited, event: AuditEvent, why: BaseException) -> None:
    """Tell what was done until then; where the graph cannot tell now, whoever comes next asks it again. Writes."""
    try:
        work.run.tell_the_rest()
    except OpsError as error:
        _log.warning("What this task did is told later: %s", error)
        return
    sentences = (str(why) or type(why).__name__, work.told)
    work.ends(event, "; ".join(part for part in sentences if part))


def note(context: Context, storage: Storage, decision: Decision, event: AuditEvent, *, verb: str, detail: str) -> None:
    """Add an entry about a decision to the graph's audit log; a log that cannot be written stops nothing. Writes."""
    subject = audit_log.Subject(
        verb=verb, actor=decision.decided_by, digest=decision.digest, run=context["run_id"], task=None
    )
    _append(storage, event, subject, detail)


def _append(storage: Storage, event: AuditEvent, subject: audit_log.Subject, detail: str) -> None:
    try:
        audit_log.append(storage, event, **subject, detail=detail)
    except OpsError as error:
        # Asking or applying again because of a log would be worse; the graph keeps the decision.
        _log.warning("This is not in the audit log: %s", error)

"""Carrying out what somebody decided: the audit log has its start before the first effect, then its end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph_ops.errors import OpsError, OutcomeUnknown, StorageError
from omnigraph_ops.models import CleanupStats, OrphanedFork
from omnigraph_ops.models.retention import TableRowStats
from omnigraph_ops.models.runs import FilesDone
from omnigraph_ops.outcomes import audit_log
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.views.markdown import some
from omnigraph_ops.watch import Run

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_airflow.decisions import Decision
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.models.runs import Unit, UnitValue
    from omnigraph_ops.storage.store import Storage


_MOST_NAMED = 5


class Audited(Run):
    """One task that carries out a decision: its first unit begins with an entry that must be written."""

    def __init__(self, context: Context, storage: Storage, decision: Decision, verb: str) -> None:
        self._context, self._storage, self._decision, self._verb = context, storage, decision, verb
        self.began = False
        self._done: list[UnitValue] = []

    def begins(self, unit: Unit) -> None:
        if not self.began:
            decision, run = self._decision, self._context["run_id"]
            audit_log.started(
                self._storage, verb=self._verb, actor=decision.decided_by, digest=decision.digest, run=run
            )
            self.began = True

    def ended(self, unit: Unit, value: UnitValue | None) -> None:
        if value is not None:
            self._done.append(value)

    @property
    def told(self) -> str:
        """What is removed by now; empty when nothing is. Pure."""
        cleaned = [value for value in self._done if isinstance(value, CleanupStats)]
        forks = sum(isinstance(value, OrphanedFork) for value in self._done)
        files = [value for value in self._done if isinstance(value, FilesDone)]
        rows = sum(value.rows_removed for value in self._done if isinstance(value, TableRowStats))
        versions = sum(value.old_versions_removed for value in cleaned)
        parts = [f"{versions} versions of {some([c.table_key for c in cleaned], _MOST_NAMED)}"] if cleaned else []
        parts += [f"{forks} orphaned forks"] if forks else []
        parts += [f"{sum(value.files for value in files)} files"] if files else []
        parts += [f"{rows} rows"] if rows else []
        return f"{' and '.join(parts)} removed" if parts else ""

    def ends(self, event: AuditEvent, detail: str) -> None:
        """Add the entry of what came of it, where anything began or went wrong. Writes."""
        if self.began or event is not AuditEvent.APPLIED:
            note(self._context, self._storage, self._decision, event, verb=self._verb, detail=detail)


@contextmanager
def audited(context: Context, graph: Graph, decision: Decision, *, verb: str) -> Iterator[Audited]:
    """Carry out a decision in the block, which ends it where it goes well; whatever else ends it is told. Writes.

    An error before the first effect is told only where it may have had one all the same.
    """
    run = graph.run = Audited(context, graph.storage, decision, verb)
    try:
        yield run
    except Exception as error:
        if run.began or isinstance(error, (StorageError, OutcomeUnknown)):
            run.ends(AuditEvent.FAILED, _sentence(str(error), run.told))
        raise
    except BaseException as stop:
        if run.began:
            run.ends(AuditEvent.INTERRUPTED, _sentence(str(stop) or type(stop).__name__, run.told))
        raise
    finally:
        graph.run = Run()


def _sentence(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def note(context: Context, storage: Storage, decision: Decision, event: AuditEvent, *, verb: str, detail: str) -> None:
    """Add an entry about a decision to the graph's audit log; a log that cannot be written stops nothing. Writes."""
    try:
        audit_log.append(
            storage,
            event,
            verb=verb,
            actor=decision.decided_by,
            digest=decision.digest,
            detail=detail,
            run=context["run_id"],
        )
    except OpsError as error:
        # Asking or applying again because of a log would be worse; the graph keeps the decision.
        logging.getLogger(__name__).warning("This is not in the audit log: %s", error)

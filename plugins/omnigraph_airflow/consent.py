"""The consent to a plan, kept in the graph: the question of one task in one run, and its answer.

XComs, task states and the params of a run can be changed by whoever may edit the run. A consent is written by the task
that asks, from what Airflow's own route recorded about the answer, to where only the account of the store writes; the
task that repairs or deletes reads it there, right before its effect.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph_airflow.decisions import Decision
from omnigraph_ops.coordination.records import Records
from omnigraph_ops.coordination.state import CONSENTS_DIR
from omnigraph_ops.errors import ApprovalMissing, InvalidInput
from omnigraph_ops.graph.ids import now_us

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.storage.store import Storage

_VALID_US = 23 * 86_400 * 1_000_000
"""Longer than any plan may be applied; with the week after which `sealed.sweep` drops it, thirty days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionId:
    """Which question: one task of one run, as it was started and as often as it was cleared."""

    dag_id: str
    run_id: str
    task_id: str
    started: str = ""
    """Tells the run from a later one of the same id."""
    cleared: int = 0

    @property
    def path(self) -> str:
        """Where its consent is kept, relative to the graph. Pure."""
        name = hashlib.sha256("\0".join((self.dag_id, self.run_id, self.task_id)).encode()).hexdigest()
        return f"{CONSENTS_DIR}/{name}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """A question about a plan and, once there is one, its answer; of a task that plans, which plan it made."""

    question: QuestionId
    attempt: str
    """Id of the task instance that asked; a cleared or repeated task has another one."""
    digest: str
    """Of the plan that the question shows."""
    expires_at_us: int
    decision: Decision | None = None


def _damaged(path: str, error: InvalidInput) -> None:
    raise ApprovalMissing(f"{path} is damaged ({error}); nothing was done; trigger a new run") from None


_CONSENTS = Records(Consent, unreadable=_damaged)


def question_of(context: Context, task_id: str) -> QuestionId:
    """The question of a task in the run of this context. Pure."""
    run = context["dag_run"]
    return QuestionId(
        dag_id=context["ti"].dag_id,
        run_id=context["run_id"],
        task_id=task_id,
        started=run.start_date.isoformat() if run.start_date else "",
        cleared=run.clear_number or 0,
    )


def about(context: Context, question: QuestionId, digest: str) -> Consent:
    """What the task of this context asks, or makes, now. Reads the clock."""
    return Consent(question=question, attempt=str(context["ti"].id), digest=digest, expires_at_us=now_us() + _VALID_US)


def keep(storage: Storage, consent: Consent) -> None:
    """Keep a consent instead of an earlier one to the same question. Writes."""
    _CONSENTS.write(storage, consent.question.path, consent)


def read(storage: Storage, question: QuestionId) -> Consent | None:
    """The consent to a question, of whichever attempt; None when nobody was asked. Reads.

    Raises:
        ApprovalMissing: what is kept there is damaged or about another question.
    """
    found = _CONSENTS.read(storage, question.path)
    if found is None:
        return None
    asked = found.question
    if (asked.dag_id, asked.run_id, asked.task_id) != (question.dag_id, question.run_id, question.task_id):
        raise ApprovalMissing(f"{question.path} is about another question; nothing was done; trigger a new run")
    return found

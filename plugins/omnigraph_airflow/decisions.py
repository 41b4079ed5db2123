"""What an approval says, when none needs to be asked for, and the consent that the graph keeps of it.

The repairing and deleting operators call `refusal` themselves. Being reached is no permission: a
person can mark the approval task as a success, and a Reject inside a mapped task group was seen not
to stop the task behind it.

The consent to a plan, kept in the graph: the question of one task in one run, and its answer. XComs, task states and
the params of a run can be changed by whoever may edit the run. A consent is written by the task that asks, from what
Airflow's own route recorded about the answer, to where only the account of the store writes; the task that repairs or
deletes reads it there, right before its effect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from omnigraph_ops import serde
from omnigraph_ops.coordination.state import CONSENTS_DIR, Records
from omnigraph_ops.errors import ApprovalMissing, InvalidInput
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.quantities import human_bytes, parse_bytes

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.stages.stage import AnyPlanned
    from omnigraph_ops.storage.store import Storage


APPROVE, REJECT = "Approve", "Reject"
_ENDED_BEFORE = "the task that asks was ended before anybody answered, which counts as Reject"
ANSWER_WITHIN = timedelta(hours=20)
"""An approval that nobody answers so long after the start of its run counts as Reject: before the next night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An answer, bound to the digest of what the person was shown."""

    chosen_options: tuple[str, ...]
    digest: str
    decided_by: str
    timed_out: bool = False
    void: str = ""
    """Why this answer does not count, as a sentence; empty: it counts."""
    force: bool = False
    """The switch of the stage is on: also publish drift that is not verified maintenance."""
    decided_at_us: int = 0
    """Microseconds since the epoch."""

    @property
    def approved(self) -> bool:
        """Whether this is exactly one Approve that a person or a standing approval gave."""
        return self.chosen_options == (APPROVE,) and not self.timed_out and not self.void

    @property
    def event(self) -> AuditEvent:
        """What the audit log calls it."""
        if self.timed_out:
            return AuditEvent.UNANSWERED
        return AuditEvent.APPROVED if self.approved else AuditEvent.REJECTED


def unanswered(digest: str) -> Decision:
    """What became of a question whose task ended without an answer, whoever ended it. Pure."""
    return Decision(chosen_options=(), digest=digest, decided_by="nobody", timed_out=True, void=_ENDED_BEFORE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much an approval given in advance covers."""

    max_versions: int
    """Or whatever else the stage counts."""
    max_bytes: int

    def __post_init__(self) -> None:
        if self.max_versions < 0 or self.max_bytes < 0:
            raise InvalidInput("the bounds of a standing approval must not be negative")


def refusal(decision: Decision | None, digest: str) -> str | None:
    """Why this plan may not be carried out, or None when it was approved as it is. Pure."""
    if decision is None:
        return (
            "nobody approved this plan: the graph keeps no answer to its question; nothing was done; trigger a new run "
            "to be asked"
        )
    if decision.void:
        return decision.void
    if decision.timed_out:
        return "nobody answered in time, which counts as Reject"
    if not decision.approved:
        return f"{decision.decided_by} answered {', '.join(decision.chosen_options) or 'nothing'}"
    if decision.digest != digest:
        return (
            f"{decision.decided_by} approved another plan ({decision.digest}, this one is {digest}); nothing was done; "
            "trigger a new run to be asked about the plan of now"
        )
    return None


def bounds_of(value: Mapping[str, Any] | None) -> Bounds | None:
    """The bounds of the param `standing_approval`; None when it is empty. Pure.

    The trigger form turns an empty value into `{}`, so that must never count as an approval.
    """
    if not value:
        return None
    if unknown := sorted(set(value) - {"max_versions", "max_bytes"}):
        raise InvalidInput(
            f"standing_approval: unknown bound {', '.join(unknown)}; nothing was done; it takes max_versions and "
            "max_bytes"
        )
    # JSON has one kind of number, and so have the checks of the form: 1e12 is a whole one.
    whole = {name: int(n) if isinstance(n, float) and n.is_integer() else n for name, n in value.items()}
    return serde.from_json(Bounds, whole)


def form_bounds(value: Mapping[str, Any] | None, *, confirmed: bool) -> Bounds | None:
    """The bounds that a form shows beside its confirmation, `count` and `size`; None: nothing is confirmed. Pure."""
    if value is None or not confirmed:
        return None
    return Bounds(max_versions=int(value["count"]), max_bytes=parse_bytes(str(value["size"])))


def outside(stage: AnyPlanned, plan: Any, bounds: Bounds) -> str | None:
    """Which bound the plan of a measured stage exceeds, as a phrase; None when it is inside. Pure."""
    many, of_bytes = stage.size(plan)
    if many > bounds.max_versions:
        noun = stage.measure.noun if stage.measure else "things"
        return f"{many:,} {noun} are more than the {bounds.max_versions:,} approved in advance"
    if of_bytes > bounds.max_bytes:
        size, most = human_bytes(of_bytes), human_bytes(bounds.max_bytes)
        return f"{size} ({of_bytes:,} bytes) are more than the {most} approved in advance"
    return None


def in_advance(
    stage: AnyPlanned,
    plan: Any,
    *,
    confirmed: bool,
    within: Mapping[str, Any] | None = None,
    standing: Any = None,
    by: str | None = None,
) -> str | None:
    """Who approved this plan before it was made, or None when a person has to. Pure.

    A measured stage is covered within bounds. Of any other only the routine is, and a standing approval of that counts
    only in runs that nobody starts.

    Args:
        within: what the form bounds its confirmation by.
        by: who started the run.
    """
    if stage.measure is None:
        if not stage.is_routine(plan):
            return None
        return _confirmed(by) if confirmed else _standing(by) if standing is True and by is None else None
    asked, given = form_bounds(within, confirmed=confirmed), bounds_of(standing)
    if asked is not None and not outside(stage, plan, asked):
        return _confirmed(by)
    return _standing(by) if given is not None and not outside(stage, plan, given) else None


def _confirmed(by: str | None) -> str:
    return f"{by or 'the person who triggered the run'}, by the confirm param of the run"


def _standing(by: str | None) -> str:
    """Bounds in a form are those of the person who sent it; a run that nobody started has those of the file. Pure."""
    return f"the standing approval, in a run that {by} started" if by else "the standing approval"


_MINUTE = timedelta(minutes=1)
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
    answer_by: datetime | None = None
    """How long the question waits; None: nothing was asked, or by a release that did not keep it."""
    decision: Decision | None = None

    def late(self, answered_at: datetime) -> str:
        """Why an answer of that moment came too late, as a phrase; empty: it came in time. Pure.

        Airflow takes answers until its scheduler ends the question, which may be down. The minute that is shown counts.
        """
        if self.answer_by is None or answered_at < self.answer_by.replace(second=0, microsecond=0) + _MINUTE:
            return ""
        return f"answered at {to_minute(answered_at)}, after {to_minute(self.answer_by)}, which counts as Reject"


def to_minute(moment: datetime) -> str:
    """A moment in UTC as a question shows it. Pure."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


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


def consent_about(context: Context, question: QuestionId, digest: str) -> Consent:
    """What the task of this context asks, or makes, now. Reads the clock."""
    return Consent(question=question, attempt=str(context["ti"].id), digest=digest, expires_at_us=now_us() + _VALID_US)


def keep_consent(storage: Storage, consent: Consent) -> None:
    """Keep a consent instead of an earlier one to the same question. Writes."""
    _CONSENTS.write(storage, consent.question.path, consent)


def read_consent(storage: Storage, question: QuestionId) -> Consent | None:
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

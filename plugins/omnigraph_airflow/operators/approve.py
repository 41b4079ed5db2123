"""Asks a person; leaves their decision, bound to the digest of what they were shown.

Both approvals of a run share one deadline, counted from the start of the run, so that together they
cannot reach into the next night. Nothing is leased or held while a person thinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowSkipException

from omnigraph_airflow import decisions
from omnigraph_airflow.decisions import Decision
from omnigraph_airflow.errors import airflow_errors
from omnigraph_ops import approval, serde
from omnigraph_ops.models import CleanupPlan, RepairPreview

if TYPE_CHECKING:
    from airflow.sdk import Context

DECISION = "decision"
"""XCom key of the decision; `return_value` is absent after a Reject."""
ASKED = "asked_digest"
FORCE = "force"
REPAIR_FORM = {FORCE: Param(False, type="boolean", title="Also publish drift that is not verified maintenance")}
"""The fields of a repair approval; the DAG gives them to the operator, where Airflow expects them."""
LEAST_WAIT = timedelta(minutes=5)


class ApprovePlanOperator(ApprovalOperator):
    """Common part: advance approval, deadline, and the decision with the digest that was shown.

    :param plan: JSON of what is to be approved (templated).
    :param answer_within: an answer later than this after the start of the run counts as Reject.
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "plan")
    ui_color = "#fef7e0"

    def __init__(self, *, plan: Any, answer_within: timedelta, **kwargs: Any) -> None:
        super().__init__(subject="", defaults="Reject", **kwargs)
        self.plan = plan
        self.answer_within = answer_within

    def request(self, context: Context, digest: str) -> Any:
        """Record what is asked, then wait for the person. Writes."""
        context["ti"].xcom_push(key=ASKED, value=digest)
        return super().execute(context)

    def approve_in_advance(self, context: Context, digest: str, who: str) -> dict[str, Any]:
        """Record an approval that somebody gave before the run came here. Writes."""
        self.log.info("Approved in advance by %s", who)
        decision = Decision(chosen_options=(decisions.APPROVE,), digest=digest, decided_by=who)
        context["ti"].xcom_push(key=DECISION, value=serde.to_json(decision))
        return {"chosen_options": [decisions.APPROVE]}

    def forced(self, answers: Mapping[str, Any]) -> bool:
        """Whether the person asked for more than the plan does by itself; a cleanup has no such thing. Pure."""
        return False

    def set_deadline(self, context: Context) -> str:
        """Fix how long the request waits; returns the moment as text. Pure."""
        now = datetime.now(UTC)
        started = context["dag_run"].start_date or now
        self.response_timeout = max(started + self.answer_within - now, LEAST_WAIT)
        return f"{now + self.response_timeout:%Y-%m-%d %H:%M} UTC"

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Record the answer before the base class skips what was rejected. Writes."""
        user = event.get("responded_by_user") or {}
        decision = Decision(
            chosen_options=tuple(event.get("chosen_options") or ()),
            digest=context["ti"].xcom_pull(task_ids=self.task_id, key=ASKED) or "",
            decided_by=_name(user),
            timed_out=bool(event.get("timedout")),
            force=self.forced(event.get("params_input") or {}),
        )
        context["ti"].xcom_push(key=DECISION, value=serde.to_json(decision))
        return super().execute_complete(context, event)


class ApproveRepairOperator(ApprovePlanOperator):
    """Asks whether drift may be published; skips when there is none.

    The form carries a switch, off by default, that also publishes drift which is not verified maintenance.

    :param force: what the switch starts from (templated).
    :param confirmed: the person who triggered the run approved verified maintenance (templated).
    """

    template_fields: Sequence[str] = (*ApprovePlanOperator.template_fields, "force", "confirmed")

    def __init__(self, *, force: bool | str = False, confirmed: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.force = force
        self.confirmed = confirmed

    def execute(self, context: Context) -> Any:
        """Skip, approve in advance, or ask."""
        with airflow_errors():
            preview = serde.from_json(RepairPreview, self.plan)
        keys = ", ".join(row.table_key for row in preview.drifted)
        if not preview.drifted:
            raise AirflowSkipException("no table has drifted: nothing to repair")
        confirmed = bool(self.confirmed) and _by_hand(context)
        if who := decisions.repair_in_advance(preview, confirmed=confirmed):
            return self.approve_in_advance(context, preview.digest, who)
        self.params[FORCE] = bool(self.force)
        self.subject = f"Repair {keys}?"
        answer_by = self.set_deadline(context)
        self.body = approval.repair_body(preview, force=bool(self.force), answer_by=answer_by)
        return self.request(context, preview.digest)

    def forced(self, answers: Mapping[str, Any]) -> bool:
        """The switch as the person left it; an answer without the form keeps where it started. Pure."""
        return bool(answers.get(FORCE, self.force))


class ApproveCleanupOperator(ApprovePlanOperator):
    """Asks whether old versions may be removed; skips when there is nothing to remove.

    :param standing: bounds of the standing approval, or None (templated).
    :param confirmed: the person who triggered the run approved the cleanup, within bounds (templated).
    """

    template_fields: Sequence[str] = (*ApprovePlanOperator.template_fields, "standing", "confirmed")

    def __init__(self, *, standing: Any = None, confirmed: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.standing = standing
        self.confirmed = confirmed

    def execute(self, context: Context) -> Any:
        """Skip, approve in advance, or ask."""
        with airflow_errors():
            plan = serde.from_json(CleanupPlan, self.plan)
            standing = decisions.bounds_of(self.standing)
        if not plan.total_versions and not plan.orphaned_forks:
            raise AirflowSkipException("nothing to remove")
        confirmed = bool(self.confirmed) and _by_hand(context)
        if who := decisions.cleanup_in_advance(plan, confirmed=confirmed, standing=standing):
            return self.approve_in_advance(context, plan.digest, who)
        size = approval.human_bytes(plan.total_bytes)
        self.subject = f"Remove {plan.total_versions} old versions (about {size})?"
        note = decisions.outside(plan, standing or decisions.CONFIRM_BOUNDS) if standing or confirmed else None
        self.body = approval.cleanup_body(plan, note=note, answer_by=self.set_deadline(context))
        return self.request(context, plan.digest)


def _by_hand(context: Context) -> bool:
    """Whether a person triggered this run: only they can have confirmed it."""
    return str(getattr(context["dag_run"].run_type, "value", context["dag_run"].run_type)) == "manual"


def _name(user: Any) -> str:
    if not user:
        return "nobody"
    return str(user.get("name") or user.get("id") if isinstance(user, dict) else getattr(user, "name", user))

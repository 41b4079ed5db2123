"""The approvals of each stage: what is asked, and when nobody needs to be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Param

from omnigraph_airflow import decisions
from omnigraph_airflow.operators.ask import ApprovePlanOperator
from omnigraph_ops.models import CleanupPlan, OrphansPlan, RepairPreview
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.stages.registry import BY_NAME
from omnigraph_ops.views.question import body

FORCE = "force"
REPAIR_FORM = {FORCE: Param(False, type="boolean", title="Also publish drift that is not verified maintenance")}
"""The fields of a repair approval; the DAG gives them to the operator, where Airflow expects them."""


class ApproveRepairOperator(ApprovePlanOperator[RepairPreview]):
    """Asks whether drift may be published; skips when there is none.

    The form carries a switch, off by default, that also publishes drift which is not verified maintenance.

    :param force: what the switch starts from (templated).
    :param standing: verified maintenance is approved in advance, in runs that nobody starts.
    """

    verb = "repair"
    plan_type = RepairPreview
    template_fields: Sequence[str] = (*ApprovePlanOperator.template_fields, "force")

    def __init__(self, *, force: bool | str = False, standing: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.force = force
        self.standing = standing

    def nothing_to_do(self, plan: RepairPreview) -> str | None:
        return None if plan.drifted else "no table has drifted: nothing to repair"

    def in_advance(self, plan: RepairPreview, *, confirmed: bool, by: str | None) -> str | None:
        return decisions.repair_in_advance(plan, confirmed=confirmed, standing=self.standing and by is None, by=by)

    def describe(self, plan: RepairPreview, *, answer_by: str, full_plan: str, confirmed: bool) -> None:
        self.params[FORCE] = bool(self.force)
        keys = [row.table_key for row in plan.drifted]
        more = f" and {len(keys) - 3} more tables" if len(keys) > 3 else ""
        self.subject = f"Repair {', '.join(keys[:3])}{more}?"
        stage = BY_NAME[self.verb]
        self.body = body(
            stage.view(plan),
            stage.question(plan, force=bool(self.force)),
            digest=plan.digest,
            answer_by=answer_by,
            full_plan=full_plan,
        )

    def forced(self, answers: Mapping[str, Any]) -> bool:
        """The switch as the person left it; an answer without the form keeps where it started. Pure."""
        return answers.get(FORCE, self.force) is True


class ApproveCleanupOperator(ApprovePlanOperator[CleanupPlan]):
    """Asks whether old versions may be removed; skips when there is nothing to remove.

    :param within: how much a confirmation alone covers, as `count` and `size`; None: nothing (templated).
    :param standing: bounds of the standing approval, or None (templated).
    """

    verb = "cleanup"
    plan_type = CleanupPlan
    template_fields: Sequence[str] = (*ApprovePlanOperator.template_fields, "within", "standing")

    def __init__(self, *, within: Mapping[str, Any] | None = None, standing: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.within = within
        self.standing = standing

    def nothing_to_do(self, plan: CleanupPlan) -> str | None:
        return "nothing to remove" if plan.is_empty else None

    def in_advance(self, plan: CleanupPlan, *, confirmed: bool, by: str | None) -> str | None:
        bounds = decisions.form_bounds(self.within, confirmed=confirmed)
        return decisions.removal_in_advance(plan, confirmed=bounds, standing=decisions.bounds_of(self.standing), by=by)

    def describe(self, plan: CleanupPlan, *, answer_by: str, full_plan: str, confirmed: bool) -> None:
        bounds = decisions.form_bounds(self.within, confirmed=confirmed) or decisions.bounds_of(self.standing)
        size = human_bytes(plan.total_bytes)
        self.subject = f"Remove {plan.total_versions:,} old versions (about {size})?"
        note = decisions.outside(plan, bounds) if bounds else None
        stage = BY_NAME[self.verb]
        self.body = body(
            stage.view(plan),
            stage.question(plan),
            digest=plan.digest,
            answer_by=answer_by,
            full_plan=full_plan,
            note=note,
        )


class ApproveOrphansOperator(ApprovePlanOperator[OrphansPlan]):
    """Asks whether unreferenced files may be removed; skips when there are none.

    :param within: how much a confirmation alone covers, as `count` and `size`; None: nothing (templated).
    """

    verb = "orphans"
    plan_type = OrphansPlan
    template_fields: Sequence[str] = (*ApprovePlanOperator.template_fields, "within")

    def __init__(self, *, within: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.within = within

    def nothing_to_do(self, plan: OrphansPlan) -> str | None:
        return None if plan.files or plan.folders else "no unreferenced files that are old enough"

    def in_advance(self, plan: OrphansPlan, *, confirmed: bool, by: str | None) -> str | None:
        bounds = decisions.form_bounds(self.within, confirmed=confirmed)
        return decisions.removal_in_advance(plan, confirmed=bounds, by=by)

    def describe(self, plan: OrphansPlan, *, answer_by: str, full_plan: str, confirmed: bool) -> None:
        what = f"{len(plan.files):,} unreferenced files (about {human_bytes(plan.total_bytes)})"
        self.subject = f"Move {what} to quarantine?" if plan.quarantine else f"Delete {what} for good?"
        stage = BY_NAME[self.verb]
        self.body = body(
            stage.view(plan), stage.question(plan), digest=plan.digest, answer_by=answer_by, full_plan=full_plan
        )

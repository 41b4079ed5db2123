"""The approval of a stage: what is asked about its plan, and when nobody needs to be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph_airflow import decisions
from omnigraph_airflow.forms import FORCE
from omnigraph_airflow.operators.ask import ApprovePlanOperator
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.views.question import body

if TYPE_CHECKING:
    from omnigraph_ops.coordination.sealed import Sealable


class ApproveStageOperator(ApprovePlanOperator):
    """Asks whether the plan of a stage may be carried out.

    The DAG gives it `form_of(stage)` as `params`: some stages have a switch, off by default, for what their plan does
    not do by itself.

    :param within: how much a confirmation alone covers of a stage with a measure, as `count` and `size`; None: nothing
        (templated).
    :param standing: bounds of the standing approval, or None; of a stage without a measure, whether its routine is
        approved in runs that nobody starts (templated).
    :param force: what the switch starts from (templated).
    """

    template_fields: Sequence[str] = (*ApprovePlanOperator.template_fields, "within", "standing", "force")

    def __init__(
        self,
        *,
        within: Mapping[str, Any] | None = None,
        standing: Any = None,
        force: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.within = within
        self.standing = standing
        self.force = force

    def in_advance(self, plan: Sealable, *, confirmed: bool, by: str | None) -> str | None:
        stage = planned(self.stage)
        return decisions.in_advance(stage, plan, confirmed=confirmed, within=self.within, standing=self.standing, by=by)

    def describe(self, plan: Sealable, *, answer_by: str, full_plan: str, confirmed: bool) -> None:
        stage, force, note = planned(self.stage), bool(self.force), None
        if stage.switch is not None:
            self.params[FORCE] = force
        if stage.measure is not None:
            bounds = decisions.form_bounds(self.within, confirmed=confirmed) or decisions.bounds_of(self.standing)
            note = decisions.outside(stage, plan, bounds) if bounds else None
        question = stage.question(plan, force=force)
        self.subject = question.subject
        self.body = body(
            stage.view(plan), question, digest=plan.digest, answer_by=answer_by, full_plan=full_plan, note=note
        )

    def forced(self, answers: Mapping[str, Any]) -> bool:
        """The switch as the person left it; an answer without the form keeps where it started. Pure."""
        return planned(self.stage).switch is not None and answers.get(FORCE, self.force) is True

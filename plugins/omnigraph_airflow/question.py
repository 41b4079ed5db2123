"""The question of a task: its text, and the one that Airflow keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk.api.datamodels._generated import HITLDetailRequest, HITLUser
from airflow.sdk.execution_time.comms import CreateHITLDetailPayload

from omnigraph_ops.views import approval
from omnigraph_ops.views.markdown import code, digest_line, no_answer, prose

if TYPE_CHECKING:
    from airflow.providers.standard.operators.hitl import HITLOperator

    from omnigraph_ops.stages.stage import AnyPlanned


def shown_text(ti_id: Any, asking: HITLOperator) -> str:
    """The body that a person sees at this task; asks where nothing is shown yet. Writes the question.

    Airflow keeps the text of a question whose task is cleared or repeated, and takes no other.
    """
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    shown = SUPERVISOR_COMMS.send(
        CreateHITLDetailPayload(
            ti_id=ti_id,
            options=asking.options,
            subject=asking.subject,
            body=asking.body,
            defaults=asking.defaults,
            params=asking.serialized_params,
            multiple=asking.multiple,
            assigned_users=[HITLUser(**user) for user in asking.assigned_users or []],
        )
    )
    return (shown.body or "") if isinstance(shown, HITLDetailRequest) else ""


def question_body(
    stage: AnyPlanned, plan: Any, *, note: str | None, force: bool, answer_by: str, full_plan: str
) -> str:
    """The Markdown that a person reads before they answer. Pure.

    Args:
        note: which bound of an approval in advance the plan exceeds.
        full_plan: Markdown that leads to the whole plan, for what is left out of a long one.
    """
    written = _WRITTEN.get(stage.name)
    if written is not None:
        return written(plan, note, force, answer_by=answer_by, full_plan=full_plan)
    question = stage.question(plan, force=force)
    lines = [
        prose(question.intro),
        "",
        *(f"- {prose(name)}: {code(value)}" for name, value in stage.view(plan).facts),
        "",
        "Your answer:",
        "",
        f"- **Approve**: {prose(question.on_approve)}",
        f"- **Reject**: {prose(question.on_reject)}",
        no_answer(answer_by),
        "",
        f"The plan is in {full_plan}.",
        "",
        digest_line(plan.digest),
    ]
    return "\n".join(lines)


def _of_repair(plan: Any, _note: str | None, force: bool, **said: str) -> str:
    return approval.repair_body(plan, force=force, **said)


def _of_cleanup(plan: Any, note: str | None, _force: bool, **said: str) -> str:
    return approval.cleanup_body(plan, note=note, **said)


def _of_orphans(plan: Any, _note: str | None, _force: bool, **said: str) -> str:
    from omnigraph_ops.stages.orphans.texts import orphans_body

    return orphans_body(plan, **said)


def _of_rows(plan: Any, _note: str | None, _force: bool, **said: str) -> str:
    from omnigraph_ops.stages.expire_rows.texts import retention_body

    return retention_body(plan, **said)


_WRITTEN: dict[str, Callable[..., str]] = {
    "repair": _of_repair,
    "cleanup": _of_cleanup,
    "orphans": _of_orphans,
    "expire-rows": _of_rows,
}
"""Bodies that say more than the view and the question of their stage."""

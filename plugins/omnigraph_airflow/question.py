"""The question of a task as Airflow keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.api.datamodels._generated import HITLDetailRequest, HITLUser
from airflow.sdk.execution_time.comms import CreateHITLDetailPayload

if TYPE_CHECKING:
    from airflow.providers.standard.operators.hitl import HITLOperator


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

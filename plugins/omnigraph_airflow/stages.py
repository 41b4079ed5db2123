"""The stages of a run: what each is called, which tasks it has in every DAG, which plan somebody is asked about.

The one list of them, for the report, the history, the buttons and the pages. Knows no Airflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph_ops.models import CleanupPlan, OrphansPlan, RepairPreview
from omnigraph_ops.models.retention import RowRetentionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTasks:
    """One stage, with the ids of its tasks."""

    name: str
    """As the CLI's verb, the history and the addresses of the pages have it."""
    plan_task: str
    """A DAG that has this task has the stage."""
    approval_task: str | None = None
    """None, here and below: nobody is asked."""
    apply_task: str | None = None
    plan_type: type[Any] | None = None
    """What is kept in the graph, shown to the person and carried out unchanged."""


STAGES = (
    StageTasks(name="optimize", plan_task="plan_optimize"),
    StageTasks(
        name="repair",
        plan_task="preview_repair",
        approval_task="approve_repair",
        apply_task="apply_repair",
        plan_type=RepairPreview,
    ),
    StageTasks(
        name="cleanup",
        plan_task="plan_cleanup",
        approval_task="approve_cleanup",
        apply_task="cleanup_table",
        plan_type=CleanupPlan,
    ),
    StageTasks(
        name="orphans",
        plan_task="plan_orphans",
        approval_task="approve_orphans",
        apply_task="remove_orphans",
        plan_type=OrphansPlan,
    ),
    StageTasks(
        name="expire-rows",
        plan_task="plan_row_retention",
        approval_task="approve_row_retention",
        apply_task="expire_rows",
        plan_type=RowRetentionPlan,
    ),
    StageTasks(name="backup", plan_task="freeze", apply_task="copy"),
)
"""In the order in which they run."""
BY_NAME: Mapping[str, StageTasks] = {stage.name: stage for stage in STAGES}
BY_APPROVAL: Mapping[str, StageTasks] = {stage.approval_task: stage for stage in STAGES if stage.approval_task}
"""By the task that asks."""

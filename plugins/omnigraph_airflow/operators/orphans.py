"""Orphans: plan which unreferenced files go, remove what was approved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.ask import approved
from omnigraph_airflow.operators.base import (
    OmnigraphOperator,
    approved_plan,
    keep_plan,
    kept_plan,
    log_files,
    note,
    to_xcom,
)
from omnigraph_ops.audit_log import AuditEvent
from omnigraph_ops.models import OrphansPlan

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph


class PlanOrphansOperator(OmnigraphOperator):
    """Lists the store and decides which files nothing refers to; deletes nothing. Returns the kept plan's name.

    :param older_than: only files older than this, as in `7d`; at least an hour (templated).
    :param digest: use the kept plan of this digest instead of making one (templated).
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "older_than", "digest")

    def __init__(self, *, older_than: str = "7d", digest: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.digest = digest

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.durations import parse_duration
        from omnigraph_ops.orphans import plan_orphans, texts

        plan = approved_plan(graph, OrphansPlan, self.digest) or plan_orphans(
            graph, older_than_seconds=parse_duration(str(self.older_than)), on_progress=self.log.info
        )
        for line in texts.plan_text(plan).splitlines():
            self.log.info(line)
        log_files(self.log, plan.files)
        return keep_plan(graph, plan)


class RemoveOrphansOperator(OmnigraphOperator):
    """Removes the approved files that still nothing refers to, after checking the approval itself.

    :param plan: name of the kept plan that was shown (templated).
    :param approval: id of the approval task.
    :param quarantine: move them below `__maintenance/quarantine/` instead of deleting them (templated).
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "plan", "quarantine")

    def __init__(self, *, plan: Any, approval: str, quarantine: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval
        self.quarantine = quarantine

    def run_stage(self, graph: Graph, context: Context) -> Any:
        plan = kept_plan(graph, OrphansPlan, self.plan)
        decision = approved(context, self.approval, plan.digest, what="removal of orphans")
        from omnigraph_ops.orphans import apply_orphans

        report = apply_orphans(graph, plan, quarantine=bool(self.quarantine), on_progress=self.log.info)
        event = AuditEvent.FAILED if report.failed else AuditEvent.APPLIED
        detail = f"{report.files_removed} files removed, {len(report.spared)} spared, {len(report.failed)} failed"
        note(context, graph.storage, decision, event, verb="orphans", detail=detail)
        return to_xcom(report)

"""Orphans: plan which unreferenced files go, remove what was approved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.apply import ApplyApprovedOperator
from omnigraph_airflow.operators.base import OmnigraphOperator, approved_plan, keep_plan, log_files
from omnigraph_ops.models import OrphansPlan, OrphansReport
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.progress import Lines

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_airflow.decisions import Decision
    from omnigraph_ops.graph import Graph


class PlanOrphansOperator(OmnigraphOperator):
    """Lists the store and decides which files nothing refers to; deletes nothing. Returns the kept plan's name.

    :param older_than: only files older than this, as in `7d`; at least an hour (templated).
    :param quarantine: plan to move the files below `__maintenance/quarantine/` instead of deleting them (templated).
    :param digest: use the kept plan of this digest instead of making one (templated).
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "older_than", "quarantine", "digest")

    def __init__(
        self, *, older_than: str = "7d", quarantine: bool | str = False, digest: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.quarantine = quarantine
        self.digest = digest

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.durations import parse_duration
        from omnigraph_ops.stages.orphans.plan import plan_orphans
        from omnigraph_ops.stages.orphans.view import plan_view
        from omnigraph_ops.views import terminal

        plan = approved_plan(graph, OrphansPlan, self.digest) or plan_orphans(
            graph,
            older_than_seconds=parse_duration(str(self.older_than)),
            quarantine=bool(self.quarantine),
            progress=Lines(self.log.info),
        )
        for line in terminal.text(plan_view(plan)).splitlines():
            self.log.info(line)
        log_files(self.log, plan.files)
        return keep_plan(context, graph, plan)


class RemoveOrphansOperator(ApplyApprovedOperator[OrphansPlan, OrphansReport]):
    """Deletes the approved files that still nothing refers to, or moves them to quarantine, as was approved."""

    verb = "orphans"
    plan_type = OrphansPlan
    what = "removal of orphans"

    def apply(self, graph: Graph, plan: OrphansPlan, decision: Decision) -> OrphansReport:
        from omnigraph_ops.stages.orphans.apply import apply_orphans

        return apply_orphans(graph, plan, progress=Lines(self.log.info))

    def outcome(self, report: OrphansReport) -> tuple[AuditEvent, str]:
        from omnigraph_ops.views.details import orphans_detail

        return AuditEvent.FAILED if report.failed else AuditEvent.APPLIED, orphans_detail(report)

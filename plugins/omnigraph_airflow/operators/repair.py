"""Repair: preview the drift, publish what was approved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.apply import ApplyApprovedOperator
from omnigraph_airflow.operators.base import OmnigraphOperator, approved_plan, keep_plan, skip_if_frozen
from omnigraph_airflow.task_run import run_of
from omnigraph_ops.models import EvidenceTier, RepairPreview, RepairReport
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.stages.repair.view import plan_view
from omnigraph_ops.views import terminal
from omnigraph_ops.views.details import repair_detail

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_airflow.decisions import Decision
    from omnigraph_ops.graph import Graph


class PreviewRepairOperator(OmnigraphOperator):
    """Classifies the drift of every table and gathers the evidence; returns the name of the kept preview.

    :param tables: only these table keys (templated).
    :param evidence: `counts`, `sample` or `full`: how much to read (templated).
    :param digest: use the kept preview of this digest instead of making one (templated).
    :param skip_frozen: skip a graph that is wholly frozen, where nothing could be published.
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "tables", "evidence", "digest")

    def __init__(
        self,
        *,
        tables: Sequence[str] | str | None = None,
        evidence: str = EvidenceTier.COUNTS,
        digest: str | None = None,
        skip_frozen: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.evidence = evidence
        self.digest = digest
        self.skip_frozen = skip_frozen

    def run_stage(self, graph: Graph, context: Context) -> Any:
        if self.skip_frozen:
            skip_if_frozen(graph)
        from omnigraph_ops.stages.repair.run import preview_repair

        preview = approved_plan(graph, RepairPreview, self.digest) or preview_repair(
            graph, tables=tuple(self.tables or ()), evidence=EvidenceTier(self.evidence)
        )
        for line in terminal.text(plan_view(preview)).splitlines():
            self.log.info(line)
        return keep_plan(context, graph, preview)


class ApplyRepairOperator(ApplyApprovedOperator[RepairPreview, RepairReport]):
    """Publishes the heads that were approved; the decision also says whether to force.

    :param preview: name of the kept preview that was shown (templated).
    """

    verb = "repair"
    plan_type = RepairPreview
    what = "repair"

    def __init__(self, *, preview: Any, **kwargs: Any) -> None:
        super().__init__(plan=preview, **kwargs)

    def apply(self, graph: Graph, plan: RepairPreview, decision: Decision) -> RepairReport:
        from omnigraph_ops.stages.repair.run import apply_repair

        done = self._published(graph, plan)
        if done is None:
            return apply_repair(graph, plan, force=decision.force)
        self.log.info("A killed attempt of this task had published it: graph version %s", done.manifest_version)
        return done

    def _published(self, graph: Graph, plan: RepairPreview) -> RepairReport | None:
        """What an earlier attempt of this task published of the plan, which is all of it or nothing. Reads."""
        from omnigraph_ops.outcomes.runs.tasks import read_tasks

        run = run_of(graph)
        if run.task is None or run.task.try_number == 1:
            return None
        done = read_tasks(graph.storage, run.header.run_id).results(graph.uri, self.task_id).repair
        return done if done and done.digest == plan.digest and done.manifest_version is not None else None

    def outcome(self, report: RepairReport) -> tuple[AuditEvent, str]:
        event = AuditEvent.FAILED if report.manifest_version is None else AuditEvent.APPLIED
        return event, repair_detail(report)

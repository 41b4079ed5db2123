"""Row retention: plan which rows expire, ask, delete what was approved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.apply import ApplyApprovedOperator
from omnigraph_airflow.operators.ask import ApprovePlanOperator
from omnigraph_airflow.operators.base import OmnigraphOperator, approved_plan, keep_plan
from omnigraph_ops.models.retention import RowBounds, RowRetentionPlan, RowRetentionReport
from omnigraph_ops.outcomes.audit_log import AuditEvent
from omnigraph_ops.progress import Lines

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_airflow.decisions import Decision
    from omnigraph_ops.graph import Graph


class PlanRowRetentionOperator(OmnigraphOperator):
    """Counts the rows that expire; deletes nothing. Returns the kept plan's name.

    :param policies: entries with `table`, `property`, `older_than` and perhaps `unit` (templated).
    :param max_share: the share of the rows of a table that may go (templated).
    :param branch: a branch instead of main (templated).
    :param digest: use the kept plan of this digest instead of making one (templated).
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "policies", "max_share", "branch", "digest")

    def __init__(
        self,
        *,
        policies: Sequence[Mapping[str, Any]] | str,
        max_share: float | str = 0.5,
        branch: str | None = None,
        digest: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policies = policies
        self.max_share = max_share
        self.branch = branch
        self.digest = digest

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.stages.expire_rows.apply import engine_of
        from omnigraph_ops.stages.expire_rows.plan import plan_row_retention
        from omnigraph_ops.stages.expire_rows.policy import parse_policies
        from omnigraph_ops.stages.expire_rows.view import plan_view
        from omnigraph_ops.views import terminal

        plan = approved_plan(graph, RowRetentionPlan, self.digest) or plan_row_retention(
            graph,
            parse_policies(self.policies, "the param policies"),
            bounds=RowBounds(max_share=float(self.max_share)),
            # A rendered param may be a number; the main branch has no name.
            branch=None if self.branch in {None, "", "main"} else str(self.branch),
            engine=engine_of(graph, None),
        )
        for line in terminal.text(plan_view(plan)).splitlines():
            self.log.info(line)
        return keep_plan(context, graph, plan)


class ApproveRowRetentionOperator(ApprovePlanOperator[RowRetentionPlan]):
    """Asks whether expired rows may be deleted; skips when there are none. Only a digest approves in advance."""

    verb = "expire-rows"
    plan_type = RowRetentionPlan

    def nothing_to_do(self, plan: RowRetentionPlan) -> str | None:
        return None if plan.total_rows else "no rows that are older than the policies and inside the bounds"

    def in_advance(self, plan: RowRetentionPlan, *, confirmed: bool, by: str | None) -> str | None:
        return None

    def describe(self, plan: RowRetentionPlan, *, answer_by: str, full_plan: str, confirmed: bool) -> None:
        from omnigraph_ops.stages.expire_rows.view import plan_view, question
        from omnigraph_ops.views.question import body

        self.subject = f"Delete {plan.total_rows:,} expired rows and {plan.total_edges:,} of their edges?"
        self.body = body(plan_view(plan), question(plan), digest=plan.digest, answer_by=answer_by, full_plan=full_plan)


class ExpireRowsOperator(ApplyApprovedOperator[RowRetentionPlan, RowRetentionReport]):
    """Deletes what was approved and is still below the cuts."""

    verb = "expire-rows"
    plan_type = RowRetentionPlan
    what = "deleting expired rows"

    def apply(self, graph: Graph, plan: RowRetentionPlan, decision: Decision) -> RowRetentionReport:
        from omnigraph_ops.stages.expire_rows.apply import engine_of, expire_rows

        return expire_rows(graph, plan, engine=engine_of(graph, None), progress=Lines(self.log.info))

    def outcome(self, report: RowRetentionReport) -> tuple[AuditEvent, str]:
        from omnigraph_ops.views.details import rows_detail

        return AuditEvent.FAILED if report.failed else AuditEvent.APPLIED, rows_detail(report)

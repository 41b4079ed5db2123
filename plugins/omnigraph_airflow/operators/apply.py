"""Carries out a kept plan that somebody approved, and leaves in the graph's audit log what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from omnigraph_airflow.audited import audited
from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.ask import approved
from omnigraph_airflow.operators.base import OmnigraphOperator, kept_plan, to_xcom
from omnigraph_ops.coordination.sealed import P

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_airflow.decisions import Decision
    from omnigraph_ops.graph import Graph
    from omnigraph_ops.outcomes.audit_log import AuditEvent


R = TypeVar("R")
"""The report of a stage."""


class ApplyApprovedOperator(OmnigraphOperator, Generic[P, R]):
    """Checks the approval itself, applies the plan, returns the stage's report.

    :param plan: name of the kept plan that was shown (templated).
    :param approval: id of the approval task.
    """

    verb: ClassVar[str]
    plan_type: type[P]
    """Of the class; a class variable cannot name a type parameter."""
    what: ClassVar[str]
    """What is refused without an approval, as a phrase."""
    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "plan")

    def __init__(self, *, plan: Any, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval

    def apply(self, graph: Graph, plan: P, decision: Decision) -> R:
        """Carry out the plan; returns the report."""
        raise NotImplementedError

    def outcome(self, report: R) -> tuple[AuditEvent, str]:
        """What the audit log says of the report. Pure."""
        raise NotImplementedError

    def run_stage(self, graph: Graph, context: Context) -> Any:
        plan = kept_plan(context, graph, self.plan_type, self.plan)
        decision = approved(context, graph.storage, self.approval, plan.digest, what=self.what)
        with audited(graph, self.verb, decision) as work:
            report = self.apply(graph, plan, decision)
            graph.run.notes(report)
            work.ends(*self.outcome(report))
        return to_xcom(report)

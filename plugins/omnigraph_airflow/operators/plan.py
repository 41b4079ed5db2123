"""Plans a stage: what it would do is kept in the graph, for a person to approve and a later task to carry out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import XComArg
from airflow.sdk.definitions.xcom_arg import PlainXComArg
from airflow.sdk.exceptions import AirflowSkipException

from omnigraph_airflow.forms import said
from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.base import OmnigraphOperator, approved_plan, keep_plan, log_files, skip_if_frozen
from omnigraph_ops.errors import ApprovalMissing
from omnigraph_ops.parallel import deal
from omnigraph_ops.progress import Lines
from omnigraph_ops.requests import build
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.stages.stage import PartedStage
from omnigraph_ops.views import terminal

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph

PLAN = "plan"
"""XCom key of the kept plan's name, where `return_value` is the list that the next task is mapped over."""


class PlanStageOperator(OmnigraphOperator):
    """Decides what a stage would do; changes nothing. Returns the kept plan's name.

    Of a stage that is carried out in parts it returns lots of them, and leaves the plan's name as XCom `plan`.

    :param stage: name of a stage that plans first: `cleanup`.
    :param request: what is asked of it, by the names of its request's fields (templated).
    :param digest: use the kept plan of this digest instead of making one (templated).
    :param after: what the task before this one left (templated); None: that one did not finish, then this skips.
    :param skip_frozen: skip a graph that is wholly frozen, where nothing could be carried out.
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "request", "digest", "after")

    def __init__(
        self,
        *,
        stage: str,
        request: Mapping[str, Any] | None = None,
        digest: str | None = None,
        after: Any = "",
        skip_frozen: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stage = planned(stage).name
        self.request = dict(request or {})
        self.digest = digest
        self.after = after
        self.skip_frozen = skip_frozen

    @property
    def kept(self) -> XComArg:
        """The name of the kept plan, for the tasks that show it and carry it out. Pure."""
        return PlainXComArg(self, PLAN) if isinstance(planned(self.stage), PartedStage) else self.output

    def run_stage(self, graph: Graph, context: Context) -> Any:
        stage = planned(self.stage)
        if self.skip_frozen:
            skip_if_frozen(graph)
        if self.after is None:
            raise AirflowSkipException("the stages before this one did not finish")
        plan = approved_plan(graph, stage.plan_type, self.digest) or self._planned(graph)
        kept = keep_plan(context, graph, plan)
        for line in terminal.text(stage.view(plan)).splitlines():
            self.log.info(line)
        if files := stage.files(plan):
            log_files(self.log, files)
        if not isinstance(stage, PartedStage):
            return kept
        context["ti"].xcom_push(key=PLAN, value=kept)
        return [list(lot) for lot in deal(stage.parts(plan))]

    def _planned(self, graph: Graph) -> Any:
        stage = planned(self.stage)
        stage.check_ready(graph)
        request = build(stage.request, said(stage.request, self.request))
        if why := stage.too_young(request, asked=True):
            raise ApprovalMissing(f"{why}; only the shell takes it, with --allow-young")
        return stage.plan(graph, request, Lines(self.log.info))

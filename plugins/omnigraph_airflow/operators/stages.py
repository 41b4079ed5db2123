"""The three tasks of a stage that plans first: plan it, ask about the plan, carry out exactly that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context, XComArg
from airflow.sdk.definitions.xcom_arg import PlainXComArg
from airflow.sdk.exceptions import AirflowSkipException

from omnigraph_airflow.forms import ALLOW_YOUNG, bounds_in_params, form_of, request_in, templated_request
from omnigraph_airflow.hooks.omnigraph import OmnigraphHook
from omnigraph_airflow.links import ASKED
from omnigraph_airflow.operators.ask import ApproveStageOperator, approved
from omnigraph_airflow.operators.base import (
    LOT_LABEL,
    LotOperator,
    OmnigraphOperator,
    RequestOperator,
    came_to_its_end,
    frozen_since,
    keep_plan,
    kept_plan,
    plan_of,
    task_of,
)
from omnigraph_airflow.operators.spark_jobs import TaskSubmits
from omnigraph_airflow.task_run import StageSkipped, audited, is_told, run_of
from omnigraph_ops import serde
from omnigraph_ops.coordination.sealed import plan_path
from omnigraph_ops.errors import ApprovalMissing, GraphFrozen, StorageError
from omnigraph_ops.outcomes.audit_log import AuditEvent, audit_end
from omnigraph_ops.outcomes.results import RunResults, with_value
from omnigraph_ops.parallel import deal
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.stages.stage import PartedStage, PlannedStage, Submit

if TYPE_CHECKING:
    from omnigraph_ops.graph import Graph

__all__ = ["ApplyPartsOperator", "ApplyStageOperator", "ApproveStageOperator", "PlanStageOperator", "stage_tasks"]

PLAN = "plan"
"""XCom key of the kept plan's name, where `return_value` is the list that the next task is mapped over."""
_MOST_LOGGED = 10_000


class _MaySubmit(OmnigraphOperator):
    """Runs a stage whose heavy part the setting `spark_stages` may send to Spark."""

    _submits: TaskSubmits | None = None

    def submits(self, graph: Graph, stage: PlannedStage[Any, Any, Any]) -> Submit | None:
        """What the stage may submit its heavy part with; None where this task does it. Reads the connection."""
        if graph.settings.spark_from(stage.name) is None:
            return None
        self._submits = TaskSubmits(graph, OmnigraphHook(self.graph).address())
        return self._submits

    def on_kill(self) -> None:
        if self._submits is not None:
            self._submits.kill()


class PlanStageOperator(_MaySubmit, RequestOperator):
    """Decides what a stage would do; changes nothing. Returns the kept plan's name. Skips what a freeze keeps it from.

    Of a stage that is carried out in parts it returns lots of them, and leaves the plan's name as XCom `plan`.

    :param stage: name of a stage that plans first: `cleanup`.
    :param digest: use the kept plan of this digest instead of making one (templated).
    :param allow_young: an age that the stage calls too young is meant (templated).
    :param after: what the task before this one left (templated); this skips where that one did not finish.
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "request", "digest", "allow_young", "after")

    def __init__(
        self,
        *,
        stage: str,
        digest: str | None = None,
        allow_young: bool | str = False,
        after: Any = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stage = planned(stage).name
        self.digest = digest
        self.allow_young = allow_young
        self.after, self.after_task = after, task_of(after)

    @property
    def kept(self) -> XComArg:
        """The name of the kept plan, for the tasks that show it and carry it out. Pure."""
        return PlainXComArg(self, PLAN) if isinstance(planned(self.stage), PartedStage) else self.output

    def run_stage(self, graph: Graph, context: Context) -> Any:
        stage = planned(self.stage)
        if why := frozen_since(graph):
            raise StageSkipped(why)  # what is planned now could not be done, which the report says
        if self.after is None or not came_to_its_end(context, self.after_task):
            raise AirflowSkipException("the stages before this one did not finish")
        named = self.digest.strip() if self.digest else None
        plan = self._planned(graph) if named is None else plan_of(graph, stage.plan_type, named)
        kept = keep_plan(context, graph, plan)
        self.log_view(stage.view(plan), elsewhere=f"see {plan_path(plan.digest)} of the graph")
        if files := stage.files(plan):
            self._log(files)
        if not isinstance(stage, PartedStage):
            return kept
        context["ti"].xcom_push(key=PLAN, value=kept)
        return [list(lot) for lot in deal(stage.parts(plan))]

    def _log(self, files: Sequence[Any]) -> None:
        """Log the files of a plan, folded; of a very long list the first ones. Writes the log."""
        self.log.info("::group::every file of the plan (%d)", len(files))
        for file in files[:_MOST_LOGGED]:
            self.log.info("%s %d bytes", file.path, file.size)
        if len(files) > _MOST_LOGGED:
            self.log.info("and %d more, listed in the kept plan", len(files) - _MOST_LOGGED)
        self.log.info("::endgroup::")

    def _planned(self, graph: Graph) -> Any:
        stage = planned(self.stage)
        request = request_in(stage, self.request)
        if self.allow_young is not True and (why := stage.too_young(request)):
            other = (
                f"or set the param {ALLOW_YOUNG}"
                if stage.younger_in_forms
                else "only the shell takes it, with --allow-young"
            )
            raise ApprovalMissing(f"{why}; {other}")
        try:
            return stage.plan(graph, request, Lines(self.log.info), self.submits(graph, stage))
        except GraphFrozen as frozen:  # since a moment ago, or in a part that this stage cannot leave out
            raise StageSkipped(str(frozen)) from frozen


def stage_tasks(
    name: str, *, but: Collection[str] = (), planning: Mapping[str, Any] | None = None, asking: Mapping[str, Any]
) -> tuple[PlanStageOperator, Any]:
    """The three tasks of a stage in the DAG of the block: the one that plans, and the one that carries it out. Pure.

    Args:
        but: fields of the request that the params of the DAG do not have.
        planning: further arguments of the task that plans.
        asking: further arguments of the task that asks.
    """
    stage = planned(name)
    request = templated_request(stage, but=but)
    plan = PlanStageOperator(task_id=stage.tasks.plan, stage=name, request=request, **(planning or {}))
    approve = ApproveStageOperator(
        task_id=stage.tasks.approve,
        stage=name,
        params=form_of(stage),
        plan=plan.kept,
        within=bounds_in_params(stage),
        **asking,
    )
    carried_out = _apply_task(plan)
    approve >> carried_out
    return plan, carried_out


def _apply_task(plan: PlanStageOperator) -> Any:
    """The task that carries out what that task planned, of a stage in parts the mapped one. Pure."""
    stage = planned(plan.stage)
    said: dict[str, Any] = {"stage": stage.name, "plan": plan.kept, "approval": stage.tasks.approve}
    if not isinstance(stage, PartedStage):
        return ApplyStageOperator(task_id=stage.tasks.apply, **said)
    mapped = ApplyPartsOperator.partial(task_id=stage.tasks.apply, map_index_template=LOT_LABEL, **said)
    return mapped.expand(lot=plan.output)


class _Applies(OmnigraphOperator):
    """Carries out a kept plan, after checking the approval itself.

    :param stage: name of the stage.
    :param plan: name of the kept plan that was shown (templated).
    :param approval: id of the approval task.
    """

    operator_extra_links = ASKED
    template_fields: Sequence[str] = ("graph", "plan")

    def __init__(self, *, stage: str, plan: Any, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage = planned(stage).name
        self.plan = plan
        self.approval = approval


class ApplyStageOperator(_Applies, _MaySubmit):
    """Carries out an approved plan; returns the stage's report."""

    def run_stage(self, graph: Graph, context: Context) -> Any:
        stage = planned(self.stage)
        plan = kept_plan(context, graph, stage.plan_type, self.plan)
        decision = approved(context, graph.storage, self.approval, plan.digest, what=stage.name)
        with audited(graph, stage.name, decision) as work:
            report = self._carried_out(graph, plan)
            if report is None:
                report = self._apply(graph, plan, force=decision.force)
            graph.run.notes(report)
            event, detail = audit_end(with_value(RunResults(), report), error=None, interrupted=False)
            self.log.info("%s: %s", stage.name, detail)
            work.ends(event, detail)
        return serde.to_json(report)

    def _apply(self, graph: Graph, plan: Any, *, force: bool) -> Any:
        stage = planned(self.stage)
        submit = self.submits(graph, stage) if stage.applies_on_spark else None
        return stage.apply(graph, plan, Lines(self.log.info), submit, force=force)

    def _carried_out(self, graph: Graph, plan: Any) -> Any:
        """The report of a killed attempt of this task, if that one did the whole plan; else None. Reads."""
        from omnigraph_ops.outcomes.task_journals import read_tasks

        run = run_of(graph)
        if run.task is None or run.task.try_number == 1:
            return None
        stage = planned(self.stage)
        done = read_tasks(graph.storage, run.header.run_id).results(self.task_id).reports.get(stage.name)
        if done is None or not stage.is_carried_out(plan, done):
            return None
        self.log.info("A killed attempt of this task had carried it out: %s", done.outcome().detail)
        return done


class ApplyPartsOperator(_Applies, LotOperator):
    """Carries out the approved parts of a lot; returns a report per part.

    :param stage: name of a stage that is carried out in parts: `cleanup`.
    :param lot: the parts (templated).
    """

    template_fields: Sequence[str] = (*LotOperator.template_fields, "plan")

    def run_stage(self, graph: Graph, context: Context) -> list[Any]:
        stage = planned(self.stage)
        self._approved = kept_plan(context, graph, stage.plan_type, self.plan)
        what = f"{stage.name} of {self.label}"
        decision = approved(context, graph.storage, self.approval, self._approved.digest, what=what)
        with audited(graph, stage.name, decision) as work:
            rows = super().run_stage(graph, context)
            work.ends(AuditEvent.APPLIED, work.told)
        return rows

    def side_by_side(self, graph: Graph) -> int:
        stage = planned(self.stage)
        return stage.side_by_side(graph.settings) if isinstance(stage, PartedStage) else 1

    def run_table(self, graph: Graph, table_key: str, context: Context) -> Any:
        stage = planned(self.stage)
        assert isinstance(stage, PartedStage), "no other stage is given to this operator"
        report = stage.apply_part(graph, self._approved, table_key)
        if not is_told(graph, table_key):
            graph.run.notes(report)
        self.log.info("%s: %s", table_key, report.outcome().detail)
        if failures := stage.failures(report):
            raise StorageError("; ".join(failures))
        return serde.to_json(report)

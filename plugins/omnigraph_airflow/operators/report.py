"""The last task: one report for the whole run, and the run's colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from omnigraph_airflow.decisions import decision_of
from omnigraph_airflow.errors import airflow_errors
from omnigraph_airflow.hooks.omnigraph import GRAPH, OmnigraphHook
from omnigraph_airflow.operators.approve import DECISION
from omnigraph_airflow.operators.base import FAILURE, pull_list
from omnigraph_airflow.operators.cleanup import PLAN
from omnigraph_airflow.run_report import Failure, RunFacts, build
from omnigraph_ops import serde
from omnigraph_ops.models import (
    CleanupPlan,
    CleanupStats,
    OptimizeReport,
    OrphanedFork,
    RepairPreview,
    RepairReport,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

T = TypeVar("T")
REPORT = "report"


class ReportOperator(BaseOperator):
    """Collects what every stage left, logs it as Markdown, keeps it as XCom `report`.

    Runs always (`all_done`) and is the only leaf of the DAG, so it decides the run's state: it fails
    when any task or table failed.

    :param graph: path or URI of the graph (templated).
    """

    template_fields: Sequence[str] = ("graph",)
    ui_color = "#f3e8fd"

    def __init__(self, *, graph: str = GRAPH, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.graph = graph

    def execute(self, context: Context) -> None:
        """Build, log and keep the report; fail if anything failed."""
        with airflow_errors():
            report = build(self._facts(context))
        for line in report.markdown.splitlines():
            self.log.info(line)
        context["ti"].xcom_push(key=REPORT, value=serde.to_json(report))
        if report.failed:
            raise AirflowFailException("; ".join(report.failed))

    def _facts(self, context: Context) -> RunFacts:
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
        states.pop(ti.task_id, None)
        removed = pull_list(context, "cleanup_table")
        failed = [f for task in context["dag"].task_ids for f in pull_list(context, task, FAILURE)]
        return RunFacts(
            graph=OmnigraphHook(self.graph).target(),
            states=states,
            failures=tuple(serde.from_json(Failure, f) for f in failed),
            optimize=_one(context, OptimizeReport, "summarize"),
            preview=_one(context, RepairPreview, "preview_repair"),
            repair_decision=decision_of(ti.xcom_pull(task_ids="approve_repair", key=DECISION)),
            repair=_one(context, RepairReport, "apply_repair"),
            cleanup_plan=_one(context, CleanupPlan, "plan_cleanup", PLAN),
            cleanup_decision=decision_of(ti.xcom_pull(task_ids="approve_cleanup", key=DECISION)),
            cleanup=tuple(serde.from_json(CleanupStats, s) for s in removed if isinstance(s, dict)),
            forks=tuple(serde.from_json(OrphanedFork, f) for s in removed if isinstance(s, list) for f in s),
        )


def _one(context: Context, cls: type[T], task_id: str, key: str = "return_value") -> T | None:
    value = context["ti"].xcom_pull(task_ids=task_id, key=key)
    return None if value is None else serde.from_json(cls, value)

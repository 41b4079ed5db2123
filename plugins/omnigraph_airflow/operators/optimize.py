"""Optimize: plan it, split the tables by executor, do one table, sum up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from omnigraph_airflow.forms import request_in, under
from omnigraph_airflow.hooks.omnigraph import OmnigraphHook
from omnigraph_airflow.operators.base import (
    LotOperator,
    OmnigraphOperator,
    OptimizeLotOperator,
    RequestOperator,
    came_to_its_end,
    failures_told,
    task_of,
)
from omnigraph_airflow.task_run import airflow_errors, is_told, planners, run_id_of
from omnigraph_ops import serde
from omnigraph_ops.errors import RecoveryPending, StalePlan
from omnigraph_ops.models.optimize import Executor, OptimizePlan, OptimizeReport, SkipReason, TableStats
from omnigraph_ops.parallel import SHARED_LOTS, lots_of
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.optimize.stage import done_text, plan_view
from omnigraph_ops.stages.registry import UNASKED_BY_NAME

if TYPE_CHECKING:
    from airflow.sdk import Context

    from omnigraph_ops.graph import Graph
    from omnigraph_ops.outcomes.task_journals import TaskLeft

NOT_AFTER = "not_after"
"""XCom key of the run's deadline."""


class PlanOptimizeOperator(RequestOperator):
    """Decides per table what to do and where it runs; writes nothing.

    :param spark_threshold: rewrites of at least this many bytes go to Spark (templated); None means
        the deployment's setting.
    """

    template_fields: Sequence[str] = ("graph", "request", "spark_threshold")

    def __init__(self, *, spark_threshold: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spark_threshold = spark_threshold

    def run_stage(self, graph: Graph, context: Context) -> Any:
        from omnigraph_ops.stages.optimize.run import plan_optimize

        threshold = None if self.spark_threshold is None else int(self.spark_threshold)
        request = request_in(UNASKED_BY_NAME["plan"], self.request)
        graph = under(graph, request)
        plan = plan_optimize(graph, spark_threshold_bytes=threshold, budget=request)
        self.log_view(plan_view(plan), elsewhere="see omnigraph-ops plan --json")
        graph.run.notes(plan)
        context["ti"].xcom_push(key=NOT_AFTER, value=plan.not_after_us)
        return serde.to_json(plan)


class SelectTablesOperator(OmnigraphOperator):
    """The tables of an optimize plan that one executor takes, as lots: what the next task is mapped over.

    In process, small tables of a large graph share lots; on Spark they share one submit, which deals them out to its
    workers.

    :param plan: the plan's JSON (templated).
    :param runs_on: `in_process` or `spark`.
    """

    template_fields: Sequence[str] = ("graph", "plan")

    def __init__(self, *, plan: Any, runs_on: Executor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.runs_on = runs_on

    def execute(self, context: Context) -> list[list[str]]:
        """The lots of this executor, those with the most benefit per byte first. Reads."""
        with failures_told(context), airflow_errors():
            tables = serde.from_json(OptimizePlan, self.plan).in_turn(self.runs_on)
            small = OmnigraphHook(self.graph).settings().small_table_bytes
            shared = SHARED_LOTS if self.runs_on is Executor.IN_PROCESS else 1
            return [list(lot) for lot in lots_of(tables, small_bytes=small, shared_lots=shared)]


class OptimizeTablesOperator(OptimizeLotOperator, LotOperator):
    """Folds indexes and compacts the tables of a lot in this process."""

    def run_table(self, graph: Graph, table_key: str, context: Context) -> Any:
        left = self.left_alone(graph, table_key)
        if left is not None:
            if not is_told(graph, table_key):
                graph.run.notes(OptimizeReport.of(graph.uri, (left,)))
            return serde.to_json(left)
        # Its units say what it does to the table, all of them together.
        stats = self._optimize(under(graph, request_in(UNASKED_BY_NAME["optimize"], self.request)), table_key)
        self.log.info("%s: %s", table_key, done_text(stats))
        return serde.to_json(stats)

    def _optimize(self, graph: Graph, table_key: str) -> TableStats:
        """Optimize the table, once more after a recovery if a sidecar stops it. Writes."""
        from omnigraph_ops.graph.sidecars import sidecar_names
        from omnigraph_ops.stages.optimize.run import optimize_table
        from omnigraph_ops.stages.recovery.recover import recover

        try:
            stats = optimize_table(graph, table_key, progress=Lines(self.log.info))
            if stats.skipped is not SkipReason.DRIFT or not sidecar_names(graph.storage):
                return stats
            self.log.info("%s: its HEAD is past its pin beside a recovery sidecar", table_key)
        except RecoveryPending as error:
            self.log.info("%s: %s", table_key, error)
        # A worker that was killed, perhaps in an earlier try of this very task, may have left it.
        for outcome in recover(graph).outcomes:
            self.log.info("%s %s: %s %s", outcome.table_key, outcome.operation_id, outcome.action, outcome.detail)
        return optimize_table(graph, table_key, progress=Lines(self.log.info))


class SummarizeOptimizeOperator(OmnigraphOperator):
    """Compacts the internal tables (only when the graph is exclusive) and sums all tables up.

    Runs whatever the tables did, so that one failing table blocks nothing; the report ends the run red.

    :param plan: the optimize plan's JSON (templated); this skips where nothing was planned.
    :param table_tasks: ids of the tasks that did the tables.
    """

    template_fields: Sequence[str] = ("graph", "plan")

    def __init__(self, *, plan: Any, table_tasks: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan, self.plan_task = plan, task_of(plan)
        self.table_tasks = tuple(table_tasks)

    def run_stage(self, graph: Graph, context: Context) -> Any:
        if self.plan is None or not came_to_its_end(context, self.plan_task):
            raise AirflowSkipException("no plan was made, see the tasks before this one")
        planned = serde.from_json(OptimizePlan, self.plan)
        if planned.uri != graph.uri:
            raise StalePlan(
                f"this run planned {planned.uri}, and its graph is {graph.uri} now: somebody changed the address; the "
                "run stops here, and what it did before stays; start a new run"
            )
        from omnigraph_ops.outcomes.task_journals import read_tasks
        from omnigraph_ops.stages.optimize.budget import note_deferrals
        from omnigraph_ops.stages.optimize.run import optimize_internal_last

        tasks = self.table_tasks
        found = read_tasks(graph.storage, run_id_of(context), warn=self.log.warning)
        # Whoever may edit the run writes the XCom, and its rows reach the report.
        plan = found.results().plans.get("optimize") or planned
        planner = planners()["optimize"]
        standing = found.without_repeated({"optimize": planner}).results(*tasks)
        done: OptimizeReport | None = standing.reports.get("optimize")
        last = found.since(planner).last().values()
        failed = (f for left in last if left.task.task_id in tasks for f in left.results.failures)
        stats = _ended(done.tables if done else (), found.left)
        failures = {f.table_key: f.message for f in failed if f.table_key}
        tables = summarize(plan, stats, failures)
        note_deferrals(graph, tables)
        internal = optimize_internal_last(graph, plan)
        # What the tasks of the tables did they noted themselves.
        noted = {row.table_key for row in stats}
        rows = (*(row for row in tables if row.table_key not in noted), *internal)
        if rows:
            graph.run.notes(OptimizeReport.of(plan.uri, rows))
        return serde.to_json(OptimizeReport.of(plan.uri, (*tables, *internal)))


def _ended(rows: Sequence[TableStats], attempts: Sequence[TaskLeft]) -> tuple[TableStats, ...]:
    """The rows without those of attempts that were ended before they did anything, and not repeated. Pure."""
    cut_off = set[str]()
    for one in attempts:
        report: OptimizeReport | None = one.results.reports.get("optimize")
        keys = {row.table_key for row in report.tables} if report is not None else set[str]()
        if one.results.interruption:
            cut_off |= one.results.interruption.tables
        elif any(failure.table_key is None for failure in one.results.failures):
            cut_off |= keys  # a submit of several tables, for one
        else:
            cut_off -= keys
    return tuple(row for row in rows if row.committed or row.skipped or row.error or row.table_key not in cut_off)


def summarize(plan: OptimizePlan, stats: Sequence[TableStats], errors: Mapping[str, str]) -> tuple[TableStats, ...]:
    """One row per planned table: its outcome, its error, or why it was left alone. Pure."""
    done = {s.table_key: s for s in stats}
    work = {table.table_key for table in plan.productive()}
    rows = []
    for table in plan.tables:
        key = table.table_key
        missing = "the task left no result, see its log" if key in work else None
        noted = done.get(key)
        rows.append(
            replace(noted, error=noted.error or errors.get(key))
            if noted is not None
            else TableStats(
                table_key=key,
                skipped=table.skipped,
                manifest_version=table.read_version,
                lance_head_version=table.lance_head_version,
                pending_indexes=table.pending_indexes,
                executor=table.executor,
                rows=table.rows,
                error=errors.get(key, table.error or missing),
            )
        )
    return tuple(rows)

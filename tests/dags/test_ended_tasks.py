"""A task that is ended by its time limit or by its process is a failure; one that ends by itself is none."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import lance
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout
from lance import LanceDataset

from omnigraph_ops.coordination.state import TASKS_DIR
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.history import RunOutcome, RunRecord
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.cleanup.stage import ORPHANED_FORKS
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.stages.stage import PartedStage
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.killed_runs import Kill
from tests.support.killed_tasks import DAG, RUN, DagRun
from tests.support.leases import bury_runs
from tests.support.tables import PERSON

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
KILLED = Kill(moment=10, signals=(signal.SIGKILL,))
"""Before the first commit."""
_LONG = 300
"""Seconds that no machine takes up to the call in which a task is to be ended."""


def time_is_up() -> None:
    """Let the time limit of the task be over in a moment, however long it took up to here. Sets a timer."""
    signal.setitimer(signal.ITIMER_REAL, 0.1)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=3, rows=3))
    return open_graph(str(tmp_path / "g"))


class Optimize:
    """A run that optimizes, up to the task of the tables."""

    def __init__(self, graph: Graph) -> None:
        from omnigraph_airflow.operators.optimize import OptimizeTablesOperator, PlanOptimizeOperator

        self.graph = graph
        self.run = DagRun(root=Path(graph.uri), states={"plan_optimize": "success", "optimize_table": "running"})
        plan = PlanOptimizeOperator(task_id="plan_optimize", graph=graph.uri)
        self.plan = plan.execute(self.run.context("plan_optimize"))
        self.operator = OptimizeTablesOperator

    def tables(self, *lot: str) -> None:
        task = self.operator(task_id="optimize_table", graph=self.graph.uri, lot=list(lot))
        task.execute(self.run.context("optimize_table"))

    def summary(self) -> dict[str, Any]:
        """The row of each table, as the task after those of the tables has them."""
        from omnigraph_airflow.operators.optimize import SummarizeOptimizeOperator

        self.run.states["optimize_table"] = "failed"
        summarize = SummarizeOptimizeOperator(
            task_id="summarize", graph=self.graph.uri, plan=self.plan, table_tasks=("optimize_table",)
        )
        return {row["table_key"]: row for row in summarize.execute(self.run.context("summarize"))["tables"]}

    def record(self) -> RunRecord:
        self.run.report()
        found = history.read_run(self.graph, f"{DAG}/{RUN}")
        assert found is not None
        return found


@pytest.mark.parametrize("others", [(), ("edge:Knows",)])
def test_a_table_whose_task_timed_out_failed(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    optimize = Optimize(graph)

    def hangs(*_: Any, **__: Any) -> None:
        time_is_up()
        for _ in range(600):
            time.sleep(0.1)

    with monkeypatch.context() as patch, pytest.raises(AirflowTaskTimeout), timeout(_LONG):
        patch.setattr(lance.LanceDataset, "shallow_clone", hangs)
        optimize.tables(PERSON, *others)
    rows = optimize.summary()
    assert "timed out" in rows[PERSON]["error"]
    assert "run again" in rows[PERSON]["error"]
    assert all(rows[key]["error"] == "the task left no result, see its log" for key in others)
    found = optimize.record()
    assert found.outcome is RunOutcome.FAILED
    outcomes = {table.table_key: table for table in found.tables}
    assert {outcomes[key].outcome for key in (PERSON, *others)} == {RunOutcome.FAILED}
    assert "timed out" in str(outcomes[PERSON].error)


def test_what_the_first_round_of_a_lot_did_counts_whatever_the_second_one_says(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.operators.optimize import OptimizeTablesOperator

    optimize, real = Optimize(graph), OptimizeTablesOperator._optimize

    def answers_late(operator: Any, graph: Graph, table_key: str) -> Any:
        stats = real(operator, graph, table_key)
        if table_key == PERSON:
            operator.not_after = 1  # the second round comes after the deadline of the run
            raise StorageError("the store did not answer")
        return stats

    monkeypatch.setattr(OptimizeTablesOperator, "_optimize", answers_late)
    optimize.tables(PERSON, "edge:Knows")
    optimize.run.states["optimize_table"] = "success"
    row = next(table for table in optimize.record().tables if table.table_key == PERSON)
    assert (row.outcome, row.stages) == (RunOutcome.SUCCEEDED, ("optimize",))
    assert row.work.fragments_removed > 0


@pytest.mark.parametrize("stop", [SystemExit, KeyboardInterrupt])
def test_a_table_whose_process_was_told_to_exit_failed(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    optimize = Optimize(graph)

    def exits(*_: Any, **__: Any) -> NoReturn:
        raise stop(3)

    monkeypatch.setattr(lance.LanceDataset, "shallow_clone", exits)
    with pytest.raises(stop):
        optimize.tables(PERSON)
    assert optimize.summary()[PERSON]["error"].startswith(f"ended by {stop.__name__} 3; ")


@pytest.mark.parametrize("end", [AirflowTaskTimeout("Timeout, PID: 1"), AirflowException("Error code is: 137")])
def test_every_table_of_a_submit_that_ended_early_failed(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from omnigraph_airflow.operators.spark_jobs import SubmitRewriteOperator

    def ends(*_: Any) -> NoReturn:
        raise end

    optimize = Optimize(graph)
    monkeypatch.setattr(SparkSubmitOperator, "execute", ends)
    submit = SubmitRewriteOperator(
        task_id="optimize_table", lot=[PERSON, "edge:Knows"], graph=graph.uri, result="__maintenance/results/r/s.json"
    )
    with pytest.raises((AirflowTaskTimeout, StorageError)):
        submit.execute(optimize.run.context("optimize_table"))
    rows = optimize.summary()
    assert {rows[key]["error"] for key in (PERSON, "edge:Knows")} == {"the task left no result, see its log"}
    assert optimize.record().counts.failed == 2


def test_a_table_whose_every_attempt_was_killed_failed(graph: Graph, tmp_path: Path) -> None:
    optimize = Optimize(graph)
    operator = (optimize.operator, {"task_id": "optimize_table", "lot": [PERSON]})
    for _ in range(2):
        assert optimize.run.run(operator, tmp_path / "n", KILLED) == -signal.SIGKILL
    assert optimize.summary()[PERSON]["error"] == "the task left no result, see its log"
    found = optimize.record()
    assert [(t.table_key, t.outcome) for t in found.tables if t.table_key == PERSON] == [(PERSON, RunOutcome.FAILED)]


def test_a_cleanup_that_timed_out_says_so_and_what_stays(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph_airflow.operators.stages import ApplyPartsOperator

    run = DagRun(root=Path(graph.uri), states={"cleanup_table": "failed"})
    kept = run.approve(graph, planned("cleanup").tasks, plan_cleanup(graph, RetentionPolicy(keep_versions=1)))
    task = ApplyPartsOperator(
        task_id="cleanup_table", graph=graph.uri, stage="cleanup", lot=[PERSON], plan=kept, approval="approve_cleanup"
    )
    times_out = raising(AirflowTaskTimeout("Timeout, PID: 1"))
    when_asked(monkeypatch, LanceDataset, "cleanup_old_versions", times_out)
    with pytest.raises(AirflowTaskTimeout):
        task.execute(run.context("cleanup_table"))
    run.report()
    found = history.read_run(graph, f"{DAG}/{RUN}")
    assert found is not None
    assert (found.outcome, [t.table_key for t in found.tables if t.error]) == (RunOutcome.FAILED, [PERSON])
    assert any("timed out" in str(table.error) for table in found.tables)


def test_what_a_thread_does_after_its_task_timed_out_is_told_when_its_process_is_gone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.operators.stages import ApplyPartsOperator

    run, real = DagRun(root=Path(graph.uri), states={"cleanup_table": "failed"}), LanceDataset.cleanup_old_versions
    ended, finished = Event(), Event()

    def late(*arguments: Any, **named: Any) -> Any:
        time_is_up()
        assert ended.wait(_LONG)
        try:
            return real(*arguments, **named)
        finally:
            finished.set()

    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    kept = run.approve(graph, planned("cleanup").tasks, plan)
    task = ApplyPartsOperator(
        task_id="cleanup_table", graph=graph.uri, stage="cleanup", lot=[PERSON], plan=kept, approval="approve_cleanup"
    )
    monkeypatch.setattr(LanceDataset, "cleanup_old_versions", late)
    with pytest.raises(AirflowTaskTimeout), timeout(_LONG):
        task.execute(run.context("cleanup_table"))
    ended.set()
    assert finished.wait(_LONG)
    bury_runs(graph.storage, TASKS_DIR)
    run.report()
    found = history.read_run(graph, f"{DAG}/{RUN}")
    assert found is not None
    approved = next(table for table in plan.tables if table.table_key == PERSON)
    assert found.work.versions_removed == len(approved.versions)
    last = audit_log.log_of(graph.storage, "").entries[-1]
    assert (last.event, f"{len(approved.versions)} versions" in last.detail) == ("interrupted", True)


@pytest.mark.parametrize("by_others", [False, True])
def test_a_part_is_done_also_where_nothing_of_it_was_left_to_do(demo_graph: DemoGraph, *, by_others: bool) -> None:
    """Orphaned forks that are gone leave no row."""
    from omnigraph_airflow.operators.stages import ApplyPartsOperator

    graph = demo_graph(stamp=6, loads=2, rows=6, node_types=1, written_branches=1)
    graph.manifest().branches.delete("review/hires-1")
    stage, run = planned("cleanup"), DagRun(root=Path(graph.uri))
    plan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
    assert isinstance(stage, PartedStage)
    lot = stage.parts(plan)
    assert ORPHANED_FORKS in lot
    assert len(lot) > 1
    kept = run.approve(graph, stage.tasks, plan)
    if by_others:
        cleanup_all(graph, plan_cleanup(graph, RetentionPolicy(keep_versions=1)))
    task = ApplyPartsOperator(
        task_id="cleanup_table", graph=graph.uri, stage="cleanup", lot=lot, plan=kept, approval="approve_cleanup"
    )
    task.execute(run.context("cleanup_table"))
    run.states["cleanup_table"] = "success"
    run.report()
    found = history.read_run(graph, f"{DAG}/{RUN}")
    assert found is not None
    assert (found.errors, found.outcome is RunOutcome.SUCCEEDED) == ((), not by_others)


def test_what_an_earlier_plan_of_a_cleared_run_did_is_not_done_of_the_next(graph: Graph) -> None:
    from omnigraph_airflow.operators.stages import ApplyPartsOperator

    stage, run = planned("cleanup"), DagRun(root=Path(graph.uri))
    kept = run.approve(graph, stage.tasks, plan_cleanup(graph, RetentionPolicy(keep_versions=2)))
    task = ApplyPartsOperator(
        task_id="cleanup_table", graph=graph.uri, stage="cleanup", lot=[PERSON], plan=kept, approval="approve_cleanup"
    )
    task.execute(run.context("cleanup_table"))
    run.clearings += 1
    run.approve(graph, stage.tasks, plan_cleanup(graph, RetentionPolicy(keep_versions=1)))
    run.states["cleanup_table"] = "success"  # marked by hand
    run.report()
    found = history.read_run(graph, f"{DAG}/{RUN}")
    assert found is not None
    assert [error for error in found.errors if "approved and not done" in error and PERSON in error]

"""What the report and the history say of a DAG run comes from what its tasks left in the graph, nothing else."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Barrier

import pytest
from lance import LanceDataset

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.state import RUNS_DIR, TASKS_DIR
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.models.cleanup import CleanupPlan, RetentionPolicy
from omnigraph_ops.models.history import Answer, RunOutcome, RunRecord
from omnigraph_ops.outcomes import audit_log, history
from omnigraph_ops.outcomes.task_journals import close, mark_recorded, read_tasks, settle_runs, unsettled_runs
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.registry import planned
from omnigraph_ops.storage.store import Storage
from tests.support.edges import raising, when_asked
from tests.support.killed_runs import Kill
from tests.support.killed_tasks import DAG, RUN, DagRun
from tests.support.leases import left_held
from tests.support.orphans import age
from tests.support.shell import runner
from tests.support.tables import PERSON, entry_of

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
WHOLE = f"{DAG}/{RUN}"
HALF_WAY = Kill(moment=22, signals=(signal.SIGKILL,))
"""The first of two tables is cleaned."""
LATER = Kill(moment=24, signals=(signal.SIGKILL,))
"""The same at a second try, which first notes that it has begun."""
FORGED = {
    "return_value": [[{"table_key": "node:Person", "old_versions_removed": 4711, "bytes_removed": 4711}]],
    "failure": [[{"task_id": "cleanup_table", "table_key": None, "message": "x"}]],
}


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "1")
    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=3, rows=3))
    return open_graph(str(tmp_path / "g"))


class Cleanup:
    """A run that somebody approved, up to the task that removes."""

    def __init__(self, graph: Graph) -> None:
        from omnigraph_airflow.operators.stages import ApplyPartsOperator

        self.graph, self.run = graph, DagRun(root=Path(graph.uri))
        self.plan: CleanupPlan = plan_cleanup(graph, RetentionPolicy(keep_versions=1))
        kept = self.run.approve(graph, planned("cleanup").tasks, self.plan)
        lot = [table.table_key for table in self.plan.tables if table.versions]
        self.operator = (
            ApplyPartsOperator,
            {"task_id": "cleanup_table", "stage": "cleanup", "lot": lot, "plan": kept, "approval": "approve_cleanup"},
        )

    def here(self) -> None:
        """Let the task run in this process, to its end."""
        cls, arguments = self.operator
        cls(graph=self.graph.uri, **arguments).execute(self.run.context("cleanup_table"))
        self.run.states["cleanup_table"] = "success"

    def record(self) -> RunRecord:
        self.run.report()
        found = history.read_run(self.graph, WHOLE)
        assert found is not None
        return found


def events(graph: Graph) -> list[str]:
    return [str(entry.event) for entry in audit_log.log_of(graph.storage, "").entries]


def test_what_xcoms_say_is_in_no_report(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.runs import Instance

    cleanup = Cleanup(graph)
    cleanup.here()
    monkeypatch.setattr(Instance, "xcom_pull", lambda _self, *, task_ids, key="return_value": FORGED.get(key))
    found = cleanup.record()
    assert found.work.versions_removed == cleanup.plan.total_versions
    assert (found.outcome, found.errors) == (RunOutcome.SUCCEEDED, ())


def test_a_report_that_is_made_again_says_the_same(graph: Graph) -> None:
    cleanup = Cleanup(graph)
    cleanup.here()
    first = cleanup.record()
    cleanup.run.clearings = 1
    again = cleanup.record()
    assert (again.outcome, again.work, again.decisions) == (first.outcome, first.work, first.decisions)
    assert [(decision.by, decision.answer) for decision in again.decisions] == [("ann", Answer.APPROVED)]


@pytest.mark.parametrize(
    "forged", ["text", [5], {"a": 1}, [{"bogus": 1}], ImportError("os.system is not in the allow list")]
)
def test_no_xcom_stops_a_report(graph: Graph, monkeypatch: pytest.MonkeyPatch, forged: object) -> None:
    from tests.support.runs import Instance

    def pull(_self: Instance, *, task_ids: str, key: str = "return_value") -> object:
        if isinstance(forged, Exception):
            raise forged
        return forged

    cleanup = Cleanup(graph)
    cleanup.here()
    monkeypatch.setattr(Instance, "xcom_pull", pull)
    assert cleanup.record().outcome is RunOutcome.SUCCEEDED


def test_a_forged_plan_adds_no_row_to_a_report(graph: Graph) -> None:
    from omnigraph_airflow.operators.optimize import PlanOptimizeOperator, SummarizeOptimizeOperator

    run = DagRun(root=Path(graph.uri), states={"plan_optimize": "success", "optimize_table": "failed"})
    plan = PlanOptimizeOperator(task_id="plan_optimize", graph=graph.uri).execute(run.context("plan_optimize"))
    plan["tables"].append({**plan["tables"][0], "table_key": "node:Forged", "error": "forged"})
    summary = SummarizeOptimizeOperator(task_id="summarize", graph=graph.uri, plan=plan, table_tasks=())
    summary.execute(run.context("summarize"))
    run.report()
    found = history.read_run(graph, WHOLE)
    assert found is not None
    assert "node:Forged" not in str(serde.to_json(found))


def test_a_run_whose_graph_is_at_another_address_by_now_stops(graph: Graph) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from omnigraph_airflow.operators.optimize import PlanOptimizeOperator, SummarizeOptimizeOperator

    run = DagRun(root=Path(graph.uri), states={"plan_optimize": "success"})
    plan = PlanOptimizeOperator(task_id="plan_optimize", graph=graph.uri).execute(run.context("plan_optimize"))
    plan["uri"] = "/elsewhere/g.omni"
    summary = SummarizeOptimizeOperator(task_id="summarize", graph=graph.uri, plan=plan, table_tasks=())
    with pytest.raises(AirflowFailException, match=f"planned /elsewhere/g.omni, and its graph is {graph.uri} now"):
        summary.execute(run.context("summarize"))


def test_a_task_that_is_marked_a_success_has_done_what_it_did(graph: Graph, tmp_path: Path) -> None:
    cleanup = Cleanup(graph)
    cleanup.run.states["cleanup_table"] = "success"
    found = cleanup.record()
    assert (found.work.versions_removed, found.outcome) == (0, RunOutcome.FAILED)
    (error,) = found.errors
    assert all(table in error for table in cleanup.operator[1]["lot"])
    assert "run cleanup again" in error
    cleanup.run.run(cleanup.operator, tmp_path / "n", HALF_WAY)
    cleanup.run.states["cleanup_table"], cleanup.run.clearings = "success", 1
    found = cleanup.record()
    assert (found.outcome, [table in str(found.errors) for table in cleanup.operator[1]["lot"]]) == (
        RunOutcome.FAILED,
        [False, True],
    )


def test_work_of_all_attempts_adds_up_and_each_start_has_its_end(graph: Graph, tmp_path: Path) -> None:
    cleanup = Cleanup(graph)
    assert cleanup.run.run(cleanup.operator, tmp_path / "n", HALF_WAY) == -signal.SIGKILL
    assert events(graph) == ["started"]
    assert cleanup.run.run(cleanup.operator, tmp_path / "n") == 0
    assert events(graph) == ["started", "interrupted", "started", "applied"]
    *_, cut_off, _, applied = audit_log.log_of(graph.storage, "").entries
    assert cut_off.task == f"{DAG}/cleanup_table try 1"
    assert applied.task == f"{DAG}/cleanup_table try 2"
    assert "versions" in cut_off.detail
    found = cleanup.record()
    assert found.work.versions_removed == cleanup.plan.total_versions
    assert found.outcome is RunOutcome.SUCCEEDED


def test_a_second_try_that_is_killed_tells_who_had_approved(graph: Graph, tmp_path: Path) -> None:
    cleanup = Cleanup(graph)
    cleanup.run.tries["cleanup_table"] = 1
    assert cleanup.run.run(cleanup.operator, tmp_path / "n", LATER) == -signal.SIGKILL
    cleanup.run.states["cleanup_table"] = "success"  # marked by hand
    (error,) = cleanup.record().errors
    assert [table in error for table in cleanup.operator[1]["lot"]] == [False, True], "the first one is done"
    (left,) = read_tasks(graph.storage, WHOLE).left
    assert [decision.digest for decision in left.results.decisions] == [cleanup.plan.digest]


def test_the_report_ends_what_nobody_repeated(graph: Graph, tmp_path: Path) -> None:
    cleanup = Cleanup(graph)
    cleanup.run.run(cleanup.operator, tmp_path / "n", HALF_WAY)
    found = cleanup.record()
    assert 0 < found.work.versions_removed < cleanup.plan.total_versions
    assert found.outcome is RunOutcome.FAILED
    assert events(graph) == ["started", "interrupted"]


def test_a_run_without_its_report_is_recorded_by_the_next_night(graph: Graph, tmp_path: Path) -> None:
    cleanup = Cleanup(graph)
    cleanup.run.run(cleanup.operator, tmp_path / "n", HALF_WAY)
    assert settle_runs(graph, is_over=lambda _run: False) == ()
    assert events(graph) == ["started"]
    heard = (cleanup.run.started.timestamp() + time.time()) / 2
    for file in Path(graph.uri, TASKS_DIR).rglob("*.json"):
        os.utime(file, (heard, heard))
    (found,) = settle_runs(graph, is_over=lambda run: run.header.run_id == WHOLE)
    assert (found.outcome, found.run_id) == (RunOutcome.INTERRUPTED, WHOLE)
    assert found.ended_at_us == pytest.approx(heard * 1_000_000, abs=1000), "not when it was recorded"
    assert 0 < found.work.versions_removed < cleanup.plan.total_versions
    assert [decision.by for decision in found.decisions] == ["ann"]
    assert events(graph) == ["started", "interrupted"]
    assert settle_runs(graph, is_over=lambda _run: True) == ()


def test_a_run_that_is_cleared_and_cut_off_before_its_second_report_is_recorded_again(
    graph: Graph, tmp_path: Path
) -> None:
    cleanup = Cleanup(graph)
    assert cleanup.record().work.versions_removed == 0
    cleanup.run.run(cleanup.operator, tmp_path / "n", HALF_WAY)
    assert [run.header.run_id for run in unsettled_runs(graph.storage)] == [WHOLE]
    (found,) = settle_runs(graph, is_over=lambda _run: True)
    assert found.outcome is RunOutcome.INTERRUPTED
    assert 0 < found.work.versions_removed < cleanup.plan.total_versions
    assert history.read_run(graph, WHOLE) == found
    assert events(graph) == ["started", "interrupted"]
    assert (settle_runs(graph, is_over=lambda _run: True), unsettled_runs(graph.storage)) == ((), ())


def test_a_report_that_was_killed_before_its_mark_keeps_its_record(graph: Graph) -> None:
    cleanup = Cleanup(graph)
    cleanup.here()
    found = cleanup.record()
    next(Path(graph.uri, TASKS_DIR).rglob("recorded.json")).unlink()
    assert settle_runs(graph, is_over=lambda _run: True) == (found,)


def test_runs_are_recorded_once_however_many_settle_at_the_same_time(graph: Graph, tmp_path: Path) -> None:
    cleanup = Cleanup(graph)
    cleanup.run.run(cleanup.operator, tmp_path / "n", HALF_WAY)
    both = Barrier(2)

    def settle_one(_: int) -> int:
        def is_over(_run: object) -> bool:
            both.wait(timeout=30)
            return True

        return len(settle_runs(open_graph(graph.uri), is_over=is_over))

    assert sum(in_parallel(settle_one, range(2), workers=2)) == 1
    assert events(graph) == ["started", "interrupted"]


def test_who_was_killed_on_another_machine_while_recording_keeps_no_run_from_being_recorded(graph: Graph) -> None:
    Cleanup(graph).here()
    lease = Path(graph.uri, left_held(graph.storage, f"{RUNS_DIR}/lease"))
    os.utime(lease, (0, 0))
    graph = open_graph(graph.uri, Settings(lease_ttl_seconds=0.3))
    (found,) = settle_runs(graph, is_over=lambda _run: True)
    assert found.run_id == WHOLE


def test_an_attempt_that_cannot_be_read_keeps_no_run_from_being_recorded(graph: Graph) -> None:
    cleanup = Cleanup(graph)
    cleanup.here()
    (left,) = Path(graph.uri, TASKS_DIR).rglob("left.json")
    damaged = [left.parent.with_name(name) for name in ("0" * 26, "Z" * 26)]
    for folder in damaged:
        folder.mkdir()
        (folder / "left.json").write_text("{")
    said: list[str] = []
    (found,) = settle_runs(graph, is_over=lambda _run: True, warn=said.append)
    assert found.work.versions_removed == cleanup.plan.total_versions
    assert len(said) == len(damaged)


@pytest.mark.parametrize(
    ("state", "recorded"),
    [("queued", False), ("running", False), ("success", True), ("failed", True), (None, False), ("gone", True)],
)
def test_the_next_night_asks_airflow_whether_a_run_is_over(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, state: str | None, *, recorded: bool
) -> None:
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import DagRunStateResult, ErrorResponse, GetDagRunState
    from omnigraph_airflow.operators.recovery import CheckRecoveryOperator

    class Supervisor:
        """Answers as Airflow's does."""

        def send(self, msg: GetDagRunState) -> DagRunStateResult:
            assert (msg.dag_id, msg.run_id) == (DAG, RUN)
            if state in {None, "gone"}:
                raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 404}))
            return DagRunStateResult.model_validate({"state": state})

    Cleanup(graph).here()
    if state == "gone":  # for so long that no other Airflow can be at work on it
        age(Path(graph.uri, TASKS_DIR), days=8)
    tonight = DagRun(root=Path(graph.uri))
    context = tonight.context("check_recovery")
    context["run_id"] = "the next run"
    context["ti"].get_dagrun_state = task_runner.RuntimeTaskInstance.get_dagrun_state
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(), raising=False)
    CheckRecoveryOperator(task_id="check_recovery", graph=graph.uri).execute(context)
    assert (history.read_run(graph, WHOLE) is not None) is recorded


def test_a_cleared_run_counts_a_table_once_whichever_task_is_dealt_it(graph: Graph, tmp_path: Path) -> None:
    from omnigraph_airflow.operators.optimize import OptimizeTablesOperator
    from omnigraph_airflow.operators.recovery import CheckRecoveryOperator

    run = DagRun(root=Path(graph.uri), states={"plan_optimize": "success"}, tries={"check_recovery": 2})
    first, second = ((OptimizeTablesOperator, {"task_id": name, "lot": ["node:Person"]}) for name in ("a", "b"))
    assert run.run(first, tmp_path / "n", Kill(moment=10, signals=(signal.SIGKILL,))) == -signal.SIGKILL
    check = CheckRecoveryOperator(task_id="check_recovery", graph=graph.uri)
    run.states["a"] = "running"
    check.execute(run.context("check_recovery"))
    assert read_tasks(graph.storage, WHOLE).open
    run.states["a"] = "failed"
    check.execute(run.context("check_recovery"))
    assert not read_tasks(graph.storage, WHOLE).open
    assert run.run(second, tmp_path / "n") == 0
    run.report()
    found, done = (
        history.read_run(graph, WHOLE),
        read_tasks(graph.storage, WHOLE).last()["b"].results.reports["optimize"],
    )
    assert found is not None
    assert done is not None
    assert found.work.fragments_removed == done.tables[0].fragments_removed > 0


def test_the_shell_lists_a_run_without_its_report_and_records_it_after_a_week(
    graph: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = runner(capsys)
    Cleanup(graph).here()
    assert [run["at_work"] for run in shell("history", graph.uri, "--json").json["unsettled"]] == [True]
    listed = shell("history", graph.uri).out
    assert ": no report yet; if it ended without one, " in listed
    assert "; if Airflow does not know the run any more, 7 days after its last sign of life (" in listed
    age(Path(graph.uri, TASKS_DIR), days=8)
    assert shell("history", graph.uri, "--json").json["unsettled"] == []
    found = history.read_run(graph, WHOLE)
    assert found is not None
    assert found.outcome is RunOutcome.INTERRUPTED


def test_journals_of_long_ago_are_dropped_once_they_are_recorded(graph: Graph) -> None:
    Cleanup(graph).here()
    (left,) = read_tasks(graph.storage, WHOLE).left
    age(Path(graph.uri, TASKS_DIR), days=31)
    settle_runs(graph, is_over=lambda _run: False)
    assert read_tasks(graph.storage, WHOLE).left
    mark_recorded(graph.storage, left.header)
    settle_runs(graph, is_over=lambda _run: False)
    assert read_tasks(graph.storage, WHOLE).left
    age(Path(graph.uri, TASKS_DIR), days=31)
    settle_runs(graph, is_over=lambda _run: False)
    assert not read_tasks(graph.storage, WHOLE).left


def test_a_journal_that_cannot_be_read_stops_no_report(graph: Graph) -> None:
    cleanup = Cleanup(graph)
    cleanup.here()
    (broken,) = Path(graph.uri, TASKS_DIR).rglob("left.json")
    broken.write_text("{")
    assert cleanup.record().work.versions_removed == 0


def test_what_attempts_left_is_read_once_by_a_report_and_never_by_a_retry(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleanup, read = Cleanup(graph), list[str]()
    cleanup.here()
    kept = Storage.read

    def noted(storage: Storage, path: str) -> bytes:
        read.append(path)
        return kept(storage, path)

    monkeypatch.setattr(Storage, "read", noted)
    close(graph, WHOLE, is_over=lambda _task: True)
    assert not read
    cleanup.record()
    assert sum(path.endswith("left.json") for path in read) == 1


def test_no_secret_is_left(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "hunter2-hunter2")
    fails = raising(CorruptGraph("no access with hunter2-hunter2"))
    when_asked(monkeypatch, LanceDataset, "cleanup_old_versions", fails, times=None)
    cleanup = Cleanup(graph)
    with pytest.raises(Exception, match=r"no access with \*{3}"):
        cleanup.here()
    texts = [path.read_text() for path in Path(graph.uri, TASKS_DIR).rglob("*.json")]
    assert any("no access with ***" in text for text in texts)
    assert not any("hunter2" in text for text in texts)


def test_a_table_that_fails_with_a_secret_in_quotes_hides_nothing_that_was_done(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleanup = Cleanup(graph)
    last = [table for table in cleanup.plan.tables if table.versions][-1]
    fails = raising(CorruptGraph('the store answered: token="t0ken" is none'))
    when_asked(monkeypatch, LanceDataset, "cleanup_old_versions", fails, about=f"{last.table_path}$", times=None)
    with pytest.raises(Exception, match=r'token="\*{3}" is none'):
        cleanup.here()
    cleanup.run.states["cleanup_table"] = "failed"
    found = cleanup.record()
    assert found.work.versions_removed == cleanup.plan.total_versions - len(last.versions)
    assert [table.table_key for table in found.tables if "the store answered" in str(table.error)] == [last.table_key]
    assert "t0ken" not in str(found)


def test_a_task_without_a_place_for_its_journal_begins_nothing(graph: Graph) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    Path(graph.uri, TASKS_DIR).parent.mkdir(exist_ok=True)
    cleanup = Cleanup(graph)
    Path(graph.uri, TASKS_DIR).write_text("no folder")
    cleanup.run.tries["cleanup_table"] = 2
    with pytest.raises(AirflowFailException, match="Not a directory"):
        cleanup.here()
    assert plan_cleanup(graph, RetentionPolicy(keep_versions=1)).total_versions == cleanup.plan.total_versions
    cleanup.run.states["cleanup_table"] = "failed"
    assert cleanup.record().outcome is RunOutcome.FAILED


def test_a_table_that_fails_in_the_middle_of_its_work_is_a_failed_row(graph: Graph) -> None:
    from omnigraph_airflow.operators.optimize import (
        OptimizeTablesOperator,
        PlanOptimizeOperator,
        SummarizeOptimizeOperator,
    )

    entry = entry_of(graph, PERSON)
    run = DagRun(root=Path(graph.uri), states={"plan_optimize": "success", "optimize_table": "failed"})
    plan = PlanOptimizeOperator(task_id="plan_optimize", graph=graph.uri).execute(run.context("plan_optimize"))
    next(Path(graph.uri, entry.path, "data").glob("*.lance")).unlink()
    lot = OptimizeTablesOperator(task_id="optimize_table", graph=graph.uri, lot=[PERSON])
    with pytest.raises(Exception, match=r"\S"):
        lot.execute(run.context("optimize_table"))
    summary = SummarizeOptimizeOperator(
        task_id="summarize", graph=graph.uri, plan=plan, table_tasks=("optimize_table",)
    ).execute(run.context("summarize"))
    (row,) = (row for row in summary["tables"] if row["table_key"] == PERSON)
    assert row["error"]
    run.report()
    found = history.read_run(graph, WHOLE)
    assert found is not None
    assert [(t.outcome, t.error) for t in found.tables if t.table_key == PERSON] == [(RunOutcome.FAILED, row["error"])]

"""The nightly DAG: its shape, what it imports, and whole runs on generated graphs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.layout import MAINTENANCE_DIR
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.outcomes import history
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.support.edges import raising, when_asked
from tests.support.rows import tree_of
from tests.support.runs import Finished
from tests.support.templates import Templates
from tests.support.writers import entry_of

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
ROOT = Path(__file__).resolve().parents[2]
DRIFTED = "node:Company"
SHAPE = {
    "wait_for_quiet_graph": {"check_recovery"},
    "check_recovery": {"plan_optimize"},
    "plan_optimize": {"light_tables", "heavy_tables", "summarize"},
    "light_tables": {"optimize_table"},
    "heavy_tables": {"submit_rewrite"},
    "optimize_table": {"summarize"},
    "submit_rewrite": {"summarize"},
    "summarize": {"preview_repair"},
    "preview_repair": {"approve_repair", "apply_repair", "plan_cleanup"},
    "approve_repair": {"apply_repair"},
    "apply_repair": {"plan_cleanup"},
    "plan_cleanup": {"approve_cleanup", "cleanup_table"},
    "approve_cleanup": {"cleanup_table"},
    "cleanup_table": {"report"},
    "report": set(),
}
Answer = Callable[..., list[dict[str, Any]]]


def run_night(dag: Any, graph: Path, *, mark_success: str | None = None, **params: Any) -> Finished:
    # What an earlier test said stays in the params of the DAG that all tests share.
    said = {"quiet_seconds": 0, "keep": 2, "older_than": None, "confirm_repair": False, "confirm_cleanup": False}
    conf = {"graph": str(graph), **said, **params}
    return Finished(dag.test(run_conf=conf, mark_success_pattern=mark_success))


@pytest.fixture
def graph(tmp_path: Path, templates: Templates) -> Path:
    templates.copy(DemoSpec(loads=4, rows=40, node_types=2, drift_tables=(DRIFTED,)), tmp_path / "graph")
    return tmp_path / "graph"


def plan_of(graph: Path) -> Any:
    from omnigraph_ops.stages.optimize.run import plan_optimize

    return plan_optimize(open_graph(str(graph)))


def drifted(graph: Path) -> list[str]:
    return [t.table_key for t in plan_of(graph).tables if t.read_version != t.lance_head_version]


def content(graph: Path) -> dict[str, str]:
    """Everything of the graph but our own notes."""
    return {k: v for k, v in tree_of(str(graph)).items() if not k.startswith(MAINTENANCE_DIR)}


def test_shape(dag: Any) -> None:
    assert {task.task_id: set(task.downstream_task_ids) for task in dag.tasks} == SHAPE


def test_no_approval_can_reach_into_the_next_night(dag: Any) -> None:
    from datetime import timedelta

    assert dag.max_active_runs == 1
    assert dag.dagrun_timeout < timedelta(days=1)
    for gate in ("approve_repair", "approve_cleanup"):
        assert dag.get_task(gate).answer_within < dag.dagrun_timeout
        assert dag.get_task(gate).defaults == ["Reject"]


def test_a_submit_that_died_is_repeated_because_it_resumes(dag: Any) -> None:
    assert dag.get_task("submit_rewrite").retries == 2


def test_no_module_of_the_plugin_folder_is_executed_by_its_bare_name() -> None:
    assert "omnigraph_airflow/" in (ROOT / "plugins" / ".airflowignore").read_text().splitlines()
    assert [p.name for p in (ROOT / "plugins").iterdir() if p.suffix == ".py"] == []


def test_a_night_with_everything_approved(dag: Any, answer_hitl: Answer, graph: Path) -> None:
    seen = answer_hitl("approve_repair", "Approve")
    answer_hitl("approve_cleanup", "Approve")
    night = run_night(dag, graph)
    assert night.state == "success", night.tasks
    assert night.of("optimize_table") == ["success"] * 3
    assert night.of("submit_rewrite") == ["skipped"]
    assert set(night.of("cleanup_table")) == {"success"}
    assert night.report["outcome"] == "succeeded"
    assert drifted(graph) == []
    bodies = {r["task_instance"]["task_id"]: r["body"] for r in seen}
    assert f"| `{DRIFTED}` |" in bodies["approve_repair"]
    assert "| Table | Versions removed |" in bodies["approve_cleanup"]


def test_a_night_that_asks_for_an_impossible_cleanup_ends_before_anything_is_done(dag: Any, graph: Path) -> None:
    before = content(graph)
    night = run_night(dag, graph, keep=None)
    assert night.of("wait_for_quiet_graph") == ["failed"]
    assert night.of("plan_optimize") == ["upstream_failed"]
    assert any("at least one of keep" in line for line in night.report["failed"]), night.report["failed"]
    assert content(graph) == before


def test_reject_skips_only_the_repair(dag: Any, answer_hitl: Answer, graph: Path) -> None:
    answer_hitl("approve_repair", "Reject")
    answer_hitl("approve_cleanup", "Approve")
    night = run_night(dag, graph)
    assert night.of("apply_repair") == ["skipped"]
    assert set(night.of("cleanup_table")) == {"success"}
    assert (night.state, night.report["outcome"]) == ("failed", "unapproved"), "Airflow knows no third colour"
    assert night.report["unapproved"] == ["repair was not done: Anonymous answered Reject"]
    (record,) = history.read_runs(open_graph(str(graph)))
    assert record.outcome is RunOutcome.UNAPPROVED
    assert drifted(graph) == [DRIFTED]
    assert any(DRIFTED in line for line in night.report["attention"])


@pytest.mark.night("all but one")
@pytest.mark.parametrize("force", [False, True])
def test_the_switch_decides_about_suspicious_drift(
    dag: Any, answer_hitl: Answer, tmp_path: Path, templates: Templates, *, force: bool
) -> None:
    spec = DemoSpec(loads=2, rows=10, node_types=2, drift_tables=(DRIFTED,), drift_kind="delete")
    templates.copy(spec, tmp_path / "graph")
    answer_hitl("approve_repair", "Approve", force=force)
    night = run_night(dag, tmp_path / "graph", keep=100)
    assert night.of("apply_repair") == ["success"]
    ended = ("success", "succeeded") if force else ("failed", "unapproved")
    assert (night.state, night.report["outcome"]) == ended, night.tasks
    assert drifted(tmp_path / "graph") == ([] if force else [DRIFTED])


def test_the_last_missed_night_starts_once_the_dag_is_unpaused(dag: Any) -> None:
    """And none before it: docs/how-to/many-graphs.md says so."""
    from airflow.serialization.serialized_objects import DagSerialization

    scheduled = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    due = scheduled.next_dagrun_info(last_automated_run_info=None).run_after
    assert timedelta(0) <= datetime.now(UTC) - due < timedelta(days=1)


def test_nothing_to_do(dag: Any, tmp_path: Path, templates: Templates) -> None:
    templates.copy(DemoSpec(loads=1, rows=5, node_types=1), tmp_path / "graph")
    first = run_night(dag, tmp_path / "graph", keep=100)
    night = run_night(dag, tmp_path / "graph", keep=100)
    assert first.state == night.state == "success", night.tasks
    for task_id in ("optimize_table", "submit_rewrite", "approve_repair", "approve_cleanup", "cleanup_table"):
        assert night.of(task_id) == ["skipped"], night.tasks
    assert night.report["outcome"] == "nothing_to_do"


def test_a_frozen_graph_has_a_green_night_in_which_nothing_was_done(dag: Any, graph: Path) -> None:
    from omnigraph_airflow.notify import counters

    freeze_graph(open_graph(str(graph)), ttl_seconds=3600, reason="the yearly backup", owner="ann")
    before = content(graph)
    night = run_night(dag, graph, keep=1, confirm_repair=True, confirm_cleanup=True)
    assert night.state == "success", night.tasks
    for task_id in ("optimize_table", "preview_repair", "apply_repair", "plan_cleanup", "cleanup_table"):
        assert night.of(task_id) == ["skipped"], night.tasks
    assert night.report["outcome"] == "frozen"
    assert "had nothing to do" not in night.report["markdown"]
    (record,) = history.read_runs(open_graph(str(graph)), last=1)
    assert (record.outcome, counters(record)) == (RunOutcome.FROZEN, {"runs_frozen": 1})
    frozen = "frozen by ann (the yearly backup)"
    told = [line for line in night.report["attention"] if frozen in line]
    assert [line.partition(f"{graph} is ")[0] for line in told] == [
        "4 tables not optimized; when the run planned: ",
        "repair skipped: ",
        "cleanup skipped: ",
    ]
    assert night.report["markdown"].count(f"Skipped: {graph} is {frozen}") == 2
    assert content(graph) == before


def test_one_failing_table_ends_red_after_the_others(dag: Any, graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = raising(CorruptGraph("node:Person cannot be read"))
    path = entry_of(open_graph(str(graph)), "node:Person").path
    when_asked(monkeypatch, LanceGateway, "clone", damaged, about=path, times=None)
    night = run_night(dag, graph, confirm_repair=True, confirm_cleanup=True)
    assert night.state == "failed"
    assert night.of("optimize_table") == ["failed", "success", "success"]
    assert night.of("summarize") == night.of("apply_repair") == night.of("plan_cleanup") == ["success"]
    assert night.of("report") == ["failed"]
    assert night.report["failed"] == ["optimize_table node:Person: node:Person cannot be read"]


def test_a_gate_marked_as_success_is_no_approval(dag: Any, graph: Path) -> None:
    night = run_night(dag, graph, mark_success="approve_.*")
    assert night.state == "failed"
    assert night.of("apply_repair") == ["failed"]
    assert set(night.of("cleanup_table")) == {"failed"}
    assert drifted(graph) == [DRIFTED]
    assert any("keeps no answer" in line for line in night.report["failed"])


def test_confirmed_by_the_person_who_triggers(dag: Any, graph: Path) -> None:
    night = run_night(dag, graph, confirm_repair=True, confirm_cleanup=True)
    assert night.state == "success", night.tasks
    assert night.of("apply_repair") == ["success"]
    assert drifted(graph) == []


@pytest.mark.spark
def test_the_heaviest_table_goes_through_spark(dag: Any, graph: Path) -> None:
    threshold = max(t.rewrite_bytes for t in plan_of(graph).tables)
    night = run_night(dag, graph, spark_threshold=threshold, confirm_repair=True, confirm_cleanup=True)
    assert night.state == "success", night.tasks
    assert night.of("submit_rewrite") == ["success"]
    assert "| spark |" in night.report["markdown"]

"""A run that was cleared: what its tasks left before the clear says nothing about what they did since."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph_ops.coordination import guards
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.cleanup import CleanupReport, CleanupStats, OrphanedFork, RetentionPolicy
from omnigraph_ops.models.history import RunOutcome
from omnigraph_ops.outcomes import history
from omnigraph_ops.stages.optimize import run as optimizing
from tests.conftest import DemoGraph
from tests.support.operators import disk_of
from tests.support.runs import Finished
from tests.support.tables import PERSON
from tests.support.writers import copies, write

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]


@pytest.fixture
def dag(dags: Any) -> Any:
    """A nightly DAG for one test: `dag.test(run_conf=...)` leaves its values in the DAG."""
    return dags["omnigraph_maintenance"]


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    return demo_graph(stamp=6, loads=3, rows=20, node_types=1)


def test_where_a_cleared_run_does_not_begin_nothing_is_planned_by_what_it_left_before(
    dag: Any, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow keeps the XComs of a task that is cleared until the task starts again."""
    conf = {"graph": graph.uri, "quiet_seconds": 0, "keep": 2, "older_than": None}
    conf |= {"standing_approval": {"max_versions": 1000, "max_bytes": 2**40}}
    run = dag.test(run_conf=conf)
    assert Finished(run).of("cleanup_table") == ["success"] * 2
    for prefix in "abc":
        write(graph, PERSON, copies(prefix))
    before = disk_of(graph.uri)
    monkeypatch.setattr(dag.get_task("wait_for_quiet_graph"), "timeout", 0)
    monkeypatch.setattr(guards, "quiet_state", lambda *_: (False, "somebody loads"))

    night = Finished(again(dag, run, monkeypatch))
    assert (night.state, night.of("wait_for_quiet_graph")) == ("failed", ["failed"])
    skipped = ("summarize", "preview_repair", "plan_cleanup", "approve_cleanup")
    assert {task: night.of(task) for task in skipped} == {task: ["skipped"] for task in skipped}
    assert set(night.of("cleanup_table")) == {"skipped"}
    assert before.changed(disk_of(graph.uri)) == set()


def test_a_failure_before_the_clear_is_none_of_a_table_that_was_mended_since(
    dag: Any, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = optimizing.optimize_table

    def damaged(graph: Graph, table_key: str, **said: Any) -> Any:
        if table_key == PERSON:
            raise CorruptGraph("a page of it cannot be read")
        return real(graph, table_key, **said)

    with monkeypatch.context() as patch:
        patch.setattr(optimizing, "optimize_table", damaged)
        run = dag.test(run_conf={"graph": graph.uri, "quiet_seconds": 0, "keep": 100, "older_than": None})
    assert Finished(run).report["failed"] == [f"optimize_table {PERSON}: a page of it cannot be read"]
    real(graph, PERSON)

    night = Finished(again(dag, run, monkeypatch))
    assert (night.state, night.report["failed"]) == ("success", [])
    (record,) = history.read_runs(graph)
    assert (record.outcome, record.errors) == (RunOutcome.SUCCEEDED, ())
    assert record.work.fragments_removed > 0  # of the other table, before the clear


def test_a_report_without_its_failures_has_all_that_was_done() -> None:
    forks = [OrphanedFork(table_key=PERSON, table_path="p", branch=name, error=why) for name, why in FORKS]
    rows = [
        CleanupStats(table_key="a", old_versions_removed=2, error="denied"),
        CleanupStats(table_key="b", error="denied"),
        CleanupStats(table_key="c"),
    ]
    report = CleanupReport.of("/g", RetentionPolicy(keep_versions=1), rows, forks).without_failures()
    assert [(row.table_key, row.old_versions_removed, row.error) for row in report.tables] == [
        ("a", 2, None),
        ("c", 0, None),
    ]
    assert [fork.branch for fork in report.forks] == ["gone"]


FORKS = (("gone", None), ("stays", "denied"))


def again(dag: Any, run: Any, patch: pytest.MonkeyPatch) -> Any:
    """Clear every task of a finished run, as its button does, and let the run go on as one that nobody triggered."""
    from airflow.models import dagrun
    from airflow.models.taskinstance import clear_task_instances
    from airflow.sdk import timezone
    from airflow.utils.session import create_session
    from sqlalchemy import select

    query = select(dagrun.DagRun).where(dagrun.DagRun.dag_id == run.dag_id, dagrun.DagRun.run_id == run.run_id)
    with create_session() as session:
        cleared = session.scalars(query).one()
        clear_task_instances(cleared.get_task_instances(session=session), session)

    def same(*, session: Any, dag: Any, **_: Any) -> Any:
        found = session.scalars(query).one()
        found.dag, found.state, found.run_type, found.start_date = dag, "running", "scheduled", timezone.utcnow()
        session.commit()
        return found

    patch.setattr(dagrun, "get_or_create_dagrun", same)
    return dag.test()

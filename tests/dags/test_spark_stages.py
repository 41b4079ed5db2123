"""Tasks of DAGs submit the heavy part of the stages that a setting names: for real, on Spark in one process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.coordination import sealed
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.models.repair import EvidenceTier, RepairPreview
from omnigraph_ops.stages.orphans.plan import known_files, plan_orphans
from omnigraph_ops.stages.repair.run import preview_repair
from tests.conftest import DemoGraph
from tests.support.events import ids, items
from tests.support.operators import Run
from tests.support.orphans import age, plant
from tests.support.runs import Finished
from tests.support.spark_cluster import environment
from tests.support.writers import delete_first, drift

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("airflow")),
    pytest.mark.usefixtures("unanswered"),
]
PERSON, COMPANY = "node:Person", "node:Company"


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that were submitted, and all stages with jobs are to be."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    real, jobs = SparkSubmitHook.submit, list[str]()

    def submit(hook: Any, application: str, **kwargs: Any) -> None:
        jobs.append(hook._application_args[0])
        real(hook, application, **kwargs)

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_STAGES", "repair, orphans, expire-rows")
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    return jobs


def planned_by(graph: Graph, stage: str, request: dict[str, Any], cls: type[Any]) -> Any:
    """The plan that the task of a DAG makes and keeps. Writes it."""
    from omnigraph_airflow.operators.stages import PlanStageOperator

    operator = PlanStageOperator(task_id="plan", stage=stage, request=request, graph=graph.uri)
    done = Run(graph).execute(operator)
    assert done.state == "success", done.sentence
    return sealed.load(graph.storage, cls, done.value["digest"])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that would be submitted; each fails at once."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk.exceptions import AirflowException

    jobs = list[str]()

    def submit(hook: Any, _application: str, **_: Any) -> None:
        jobs.append(hook._application_args[0])
        raise AirflowException("no cluster here")

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    return jobs


def assert_no_results(root: str | Path) -> None:
    assert not list(Path(root, "__maintenance").glob("results/*/*"))


@pytest.mark.night
def test_evidence_is_collected_by_tasks(submitted: list[str], demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=2, loads=3, rows=15)
    drift(graph, PERSON, delete_first(2))
    here = preview_repair(graph, evidence=EvidenceTier.FULL)
    preview = planned_by(graph, "repair", {"evidence": "full"}, RepairPreview)
    assert submitted == ["evidence"]
    found, wanted = ([row.evidence and replace(row.evidence, costs=()) for row in p.rows] for p in (preview, here))
    assert found == wanted
    assert any(found)
    assert_no_results(graph.uri)


@pytest.mark.night
def test_orphans_are_planned_by_tasks(submitted: list[str], demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=2, loads=3, rows=15)
    age(graph.uri, days=30)
    plant(graph)
    here = plan_orphans(graph)
    plan = planned_by(graph, "orphans", {}, OrphansPlan)
    assert submitted == ["orphans"]
    assert plan.parts is not None
    assert here.files
    assert plan.total_files == here.total_files
    assert_no_results(graph.uri)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a service: a PATH without that of the packages, and nothing said of Java or Spark."""
    monkeypatch.setenv("PATH", os.defpath)
    for name in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("bare")
def test_rows_expire_by_tasks(submitted: list[str], dags: Any, tmp_path: Path) -> None:
    root = items(tmp_path / "data", [1, 2, 60])
    asks = {"graph": str(root), "policies": [{"table": "table:items", "property": "at", "older_than": "30d"}]}
    looked = Finished(dags["omnigraph_row_retention"].test(run_conf=asks))
    assert submitted == []
    said = {**asks, "confirm": True, "digest": looked.xcom("plan_row_retention")["digest"]}
    done = Finished(dags["omnigraph_row_retention"].test(run_conf=said))
    assert (done.state, submitted, ids(root)) == ("success", ["expire"], [0, 1])
    assert_no_results(root)


def test_a_spark_submit_that_is_not_there_is_a_sentence(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph_airflow.operators.spark_jobs import SubmitRewriteOperator

    graph = demo_graph(node_types=1, loads=2, rows=5)
    connection = {"conn_type": "spark", "host": "local", "extra": {"spark-binary": "spark3-submit"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    done = Run(graph).execute(SubmitRewriteOperator(task_id="rewrite", lot=[PERSON], graph=graph.uri))
    assert done.state == "failed"
    assert "could not be submitted through spark_default" in done.sentence
    assert "'spark3-submit'; nothing was submitted" in done.sentence


def test_a_failed_job_is_the_sentence_of_the_task(
    submitted: list[str], demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.operators.stages import PlanStageOperator

    graph = demo_graph(node_types=1, loads=1, rows=5)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[none]"}')
    done = Run(graph).execute(PlanStageOperator(task_id="plan", stage="orphans", graph=graph.uri))
    assert (done.state, submitted) == ("retry", ["orphans"])
    assert "local[none]" in done.sentence
    assert not list(Path(graph.uri, "__maintenance").glob("plans/*/*"))
    assert_no_results(graph.uri)


@pytest.mark.parametrize(
    ("connection", "sentence"),
    [
        (None, "there is no connection spark_default, so the master is unknown; nothing was submitted"),
        ("k8s://https://k8s:6443", "apache-airflow-providers-cncf-kubernetes is missing; nothing was submitted"),
    ],
)
def test_a_submit_without_its_connection_goes_nowhere(
    submitted: list[str],
    demo_graph: DemoGraph,
    monkeypatch: pytest.MonkeyPatch,
    connection: str | None,
    sentence: str,
) -> None:
    from omnigraph_airflow.operators.spark_jobs import SubmitRewriteOperator
    from omnigraph_airflow.operators.stages import PlanStageOperator

    graph = demo_graph(node_types=1, loads=2, rows=5)
    if connection is None:
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    else:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": connection}))
    for operator in (
        PlanStageOperator(task_id="plan", stage="orphans", graph=graph.uri),
        SubmitRewriteOperator(task_id="rewrite", lot=[PERSON], graph=graph.uri),
    ):
        done = Run(graph).execute(operator)
        assert done.state == "failed"
        assert sentence in done.sentence
    assert submitted == []


def test_evidence_is_submitted_for_tables_from_the_size_on(
    asked: list[str], demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(node_types=2, loads=3, rows=15)
    for key, count in ((PERSON, 9), (COMPANY, 1)):
        drift(graph, key, delete_first(count))
    here = preview_repair(graph, evidence=EvidenceTier.FULL)
    read = {row.table_key: next(c for c in row.evidence.costs if c.tier == "full") for row in here.rows if row.evidence}
    large = max(read, key=lambda key: read[key].estimated_bytes)
    sizes = [cost.estimated_bytes for cost in read.values()]
    assert (large, len(set(sizes))) == (PERSON, 2)
    for least, jobs in ((max(sizes) + 1, []), (max(sizes), ["evidence"]), (min(sizes), ["evidence"] * 2)):
        asked.clear()
        monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_STAGES", f"repair={least}")
        preview = planned_by(graph, "repair", {"evidence": "full"}, RepairPreview)
        assert asked == jobs
        failed = {row.table_key for row in preview.rows if row.evidence and row.evidence.problem}
        assert failed == {key for key in read if read[key].estimated_bytes >= least}


def test_orphans_are_planned_here_below_the_known_number_of_files(
    asked: list[str], demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph_airflow.operators.stages import PlanStageOperator

    graph = demo_graph(node_types=2, loads=3, rows=15)
    known = known_files(graph)
    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_STAGES", f"orphans={known + 1}")
    assert planned_by(graph, "orphans", {}, OrphansPlan).parts is None
    assert asked == []
    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_STAGES", f"orphans={known}")
    done = Run(graph).execute(PlanStageOperator(task_id="plan", stage="orphans", graph=graph.uri))
    assert (done.state, asked) == ("retry", ["orphans"])
    assert not list(Path(graph.uri, "__maintenance").glob("plans/*/*"))


def test_what_has_no_job_is_refused(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph_airflow.operators.stages import PlanStageOperator

    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_STAGES", "orphan")
    graph = demo_graph(node_types=1, loads=1, rows=5)
    done = Run(graph).execute(PlanStageOperator(task_id="plan", stage="repair", graph=graph.uri))
    assert "OMNIGRAPH_OPS_SPARK_STAGES must be repair, orphans or expire-rows, it is 'orphan'" in done.sentence


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize(
    ("connection", "words"),
    [
        ('{"conn_type": "spark", "host": "local[1]", "extra": {"spark-binary": "spark3-submit"}}', "No such"),
        ('{"conn_type": "spark", "host": "local[1]", "extra": {"spark-binary": "mine"}}', "it was `mine`"),
    ],
)
def test_what_is_wrong_with_the_connection_is_said(
    demo_graph: DemoGraph,
    monkeypatch: pytest.MonkeyPatch,
    connection: str,
    words: str,
) -> None:
    from omnigraph_airflow.operators.stages import PlanStageOperator

    graph = demo_graph(node_types=1, loads=1, rows=5)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    done = Run(graph).execute(PlanStageOperator(task_id="plan", stage="orphans", graph=graph.uri))
    assert done.state == "failed"
    assert words in done.sentence
    assert "unexpected" not in done.sentence


@pytest.mark.night
@pytest.mark.usefixtures("submitted")
def test_a_master_that_does_not_answer_is_said(
    unanswered: Callable[[Path], None], demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from omnigraph_airflow.operators.stages import PlanStageOperator

    graph = demo_graph(node_types=1, loads=1, rows=5)
    unanswered(tmp_path / "spark-submit")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "spark://127.0.0.1", "port": 1}')
    done = Run(graph).execute(PlanStageOperator(task_id="plan", stage="orphans", graph=graph.uri))
    assert done.state == "retry"
    assert "All masters are unresponsive" in done.sentence
    assert "unexpected" not in done.sentence

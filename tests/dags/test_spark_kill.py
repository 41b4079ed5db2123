"""A task that is killed takes its submit with it: the launcher, the driver and what they started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from omnigraph_ops.graph import Graph
from tests.conftest import DemoGraph
from tests.support.operators import Outcome, Run
from tests.support.spark_cluster import environment

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("airflow")),
    pytest.mark.usefixtures("unanswered"),  # of the tests after these, which need not wait for it
]
_DRIVER = """\
import pathlib, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
pathlib.Path(__file__).with_suffix(".busy").touch()
time.sleep(600)
"""
_LONGEST_SECONDS = 120


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An application whose driver is busy with something that is not Spark."""
    from omnigraph_airflow.operators import spark_jobs

    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_STAGES", "orphans")
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr(spark_jobs, "APPLICATION", str(tmp_path / "driver.py"))
    (tmp_path / "driver.py").write_text(_DRIVER)
    return tmp_path / "driver.py"


def planning(graph: Graph) -> tuple[Any, str]:
    from omnigraph_airflow.operators.stages import PlanStageOperator

    return PlanStageOperator(task_id="plan", stage="orphans", graph=graph.uri), "ended its submit of the job orphans"


def rewriting(graph: Graph) -> tuple[Any, str]:
    from omnigraph_airflow.operators.spark_jobs import SubmitJobOperator

    class Submits(SubmitJobOperator):
        def run_stage(self, graph: Graph, context: object) -> object:
            return self.submitted(context, graph, "rewrite", (), dict)

    return Submits(task_id="submit", graph=graph.uri, result="__maintenance/results/x/y.json"), ""


def until(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return bool(condition())


def at_work(driver: Path) -> list[str]:
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if str(driver) in line]


@pytest.mark.night("all but one")
@pytest.mark.parametrize("task", [planning, rewriting])
def test_a_killed_task_leaves_no_process(
    driver: Path, demo_graph: DemoGraph, task: Callable[[Graph], tuple[Any, str]]
) -> None:
    graph, ended = demo_graph(node_types=1, loads=1, rows=5), list[Outcome]()
    operator, sentence = task(graph)
    thread = threading.Thread(target=lambda: ended.append(Run(graph).execute(operator)))
    thread.start()
    assert until(driver.with_suffix(".busy").exists)
    assert len(at_work(driver)) == 2
    operator.on_kill()
    thread.join(_LONGEST_SECONDS)
    assert ended[0].state == "retry"
    assert sentence in ended[0].sentence
    assert until(lambda: not at_work(driver)), at_work(driver)
    assert not list(Path(graph.uri, "__maintenance").glob("plans/*/*"))


def test_a_submit_to_yarn_in_cluster_mode_reaches_spark(demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}'
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", cluster)
    graph = demo_graph(node_types=1, loads=1, rows=5)
    operator, _ = rewriting(graph)
    done = Run(graph).execute(operator)
    assert done.state == "retry"
    assert "HADOOP_CONF_DIR" in done.sentence

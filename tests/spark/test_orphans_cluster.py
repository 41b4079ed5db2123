"""The job `orphans` on a standalone cluster that loses a worker or its driver, and that does tasks twice."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph_ops import serde
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.models.orphans import OrphansPlan
from omnigraph_ops.models.runs import SubmitOutcome
from omnigraph_ops.spark.submit import APPLICATION
from omnigraph_ops.stages.orphans.candidates import folder_of
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.storage.inventory import walk
from tests.conftest import DemoGraph
from tests.support.held import HELD_APPLICATION, Held
from tests.support.orphans import PERSON, age, assert_same_plan, plant
from tests.support.rows import tree_of
from tests.support.spark_cluster import Cluster
from tests.support.writers import entry_of

pytestmark = [pytest.mark.spark, pytest.mark.night, pytest.mark.xdist_group("spark-standalone")]
_TOGETHER = {"source": 2, "judge": 1}
"""How many tasks are at work at that moment: Spark judges so few files in one."""
_LONGEST_SECONDS = 300


@pytest.fixture
def graph(demo_graph: DemoGraph) -> Graph:
    made = demo_graph(node_types=2, loads=3, rows=20)
    age(made.uri, days=30)
    for _ in range(5):
        plant(made)
    plant(made, folder=f"{entry_of(made, PERSON).path}/tree/gone")
    Path(made.uri, "__maintenance", "plans").mkdir(parents=True)
    return made


def submit(
    spark: Cluster, graph: Graph, result: Path, plan_id: str, application: str = str(APPLICATION), **settings: str
) -> subprocess.Popen[bytes]:
    words = ("orphans", "--graph", graph.uri, "--plan-id", plan_id, "--result-uri", str(result))
    return spark.submit(application, *words, **settings)


def hold(spark: Cluster, graph: Graph, result: Path, plan_id: str, held: Held) -> subprocess.Popen[bytes]:
    """A submit with tasks in the middle of their work. Starts a process."""
    process = submit(spark, graph, result, plan_id, str(HELD_APPLICATION), **held.environment)
    spark.wait_for_held(held, _TOGETHER[held.moment], process)
    return process


def assert_planned(graph: Graph, result: Path, plan_id: str) -> None:
    """What one process plans, and no file beside those that the plan names."""
    plan = serde.from_json(SubmitOutcome[OrphansPlan], result.read_bytes()).value
    assert plan is not None
    assert plan.parts is not None
    here = plan_orphans(graph)
    assert here.files
    # This one lists the parts, too.
    mine = [s for s in walk(graph.storage) if s.path.startswith(f"{plan.parts.folder}/")]
    listed = {
        "listed_files": here.listed_files - len(mine),
        "listed_bytes": here.listed_bytes - sum(s.size for s in mine),
    }
    assert_same_plan(graph, plan, replace(here, **listed))
    left = {p.name for p in Path(graph.uri, folder_of(plan_id)).iterdir()}
    assert left == {part.name for part in plan.parts.parts}


def outside_of_plans(graph: Graph) -> dict[str, str]:
    return {path: what for path, what in tree_of(graph.uri).items() if "__maintenance/plans" not in path}


def lose_worker(spark: Cluster, process: subprocess.Popen[bytes], held: Held) -> None:
    """Let the submit end without one of its workers."""
    spark.kill("worker-2")
    held.open()
    assert process.wait(_LONGEST_SECONDS) == 0, spark.log("driver")[-3000:]
    spark.add_worker("worker-2")


def test_a_worker_that_is_lost_while_it_lists_costs_no_file(spark: Cluster, graph: Graph, tmp_path: Path) -> None:
    before, plan_id, result = outside_of_plans(graph), new_ulid(), tmp_path / "result.json"
    held = Held.at("source", tmp_path / "marks", free=1)
    lose_worker(spark, hold(spark, graph, result, plan_id, held), held)
    assert_planned(graph, result, plan_id)
    assert outside_of_plans(graph) == before


def test_a_lost_driver_changes_nothing_and_a_lost_worker_and_tasks_done_twice_leave_no_file(
    spark: Cluster, graph: Graph, tmp_path: Path
) -> None:
    before, plan_id, result = outside_of_plans(graph), new_ulid(), tmp_path / "result.json"
    process = hold(spark, graph, result, plan_id, Held.at("judge", tmp_path / "first"))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert outside_of_plans(graph) == before
    held = Held.at("judge", tmp_path / "again")
    lose_worker(spark, hold(spark, graph, result, plan_id, held), held)
    assert_planned(graph, result, plan_id)
    assert outside_of_plans(graph) == before

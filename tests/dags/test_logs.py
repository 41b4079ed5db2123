"""The logs of tasks: an operator reads there what a task found, decided and did."""

from __future__ import annotations

from unittest import mock

import pytest

from omnigraph_ops.coordination.sealed import plan_path
from tests.conftest import DemoGraph
from tests.support.operators import Run
from tests.support.orphans import drop
from tests.support.stages import operator
from tests.support.tables import PERSON
from tests.support.writers import drift

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
KNOWS = "edge:Knows"


def logged(run: Run, task_id: str) -> str:
    """Execute a task that ends well; its log. Writes."""
    task = operator(run, task_id)
    with mock.patch.object(type(task), "log", mock.Mock()) as log:
        assert run.execute(task).state == "success"
    return "\n".join(call.args[0] % call.args[1:] for call in log.info.call_args_list)


def test_the_tasks_of_a_night_log_what_they_found_and_did(demo_graph: DemoGraph) -> None:
    run = Run(demo_graph(node_types=1, loads=3, rows=12, drift_tables=(KNOWS,)))
    found = logged(run, "check_recovery")
    assert "stamp 6, drifted" in found
    assert f"{KNOWS}  7 → 9" in found
    planned = logged(run, "plan_optimize")
    assert f"{KNOWS}   skipped   manifest/head drift" in planned
    assert "frags 3 → 1" in planned
    logged(run, "light_tables")
    assert f"{PERSON}: frags 3 → 1 ✓, wrote " in logged(run, "optimize_table")
    for task_id in ("preview_repair", "approve_repair"):
        logged(run, task_id)
    assert logged(run, "apply_repair").startswith("repair: 1 healed, 1 no_op; graph manifest version ")
    files = logged(run, "plan_cleanup").partition("Every file that goes (")[2].partition("\n")[0]
    assert f": see {plan_path(run.of('plan_cleanup', 'plan')['digest'])} of the graph" in files
    logged(run, "approve_cleanup")
    assert logged(run, "cleanup_table") == f"{PERSON}: 9 versions and 0 forks removed, 0 failed"


def test_a_table_that_is_left_alone_is_logged_with_the_reason(demo_graph: DemoGraph) -> None:
    run = Run(demo_graph(node_types=1, loads=3, rows=12))
    assert logged(run, "check_recovery").endswith("stamp 6, clean")
    logged(run, "plan_optimize")
    logged(run, "light_tables")
    drift(run.graph, PERSON, lambda head: head.delete("true"))
    assert logged(run, "optimize_table").splitlines()[-1].startswith(f"{PERSON}: skipped (manifest/head drift")


def test_a_table_that_is_dropped_since_the_plan_is_skipped(demo_graph: DemoGraph) -> None:
    run = Run(demo_graph(stamp=3, node_types=1, loads=3, rows=12))
    for task_id in ("check_recovery", "plan_optimize", "light_tables"):
        logged(run, task_id)
    drop(run.graph, PERSON)
    assert f"{PERSON}: dropped or renamed since the plan" in logged(run, "optimize_table")

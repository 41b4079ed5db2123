"""The operators of row retention in the states that they handle: frozen before and after the plan, empty, wide."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.conftest import DemoGraph
from tests.support.events import ids, items
from tests.support.operators import Outcome, Run, disk_of
from tests.support.plain import opened

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
FROZEN = r"is frozen by ann \(the yearly backup\).*nothing was written"
CHAIN = ("plan_row_retention", "approve_row_retention", "expire_rows")


def execute(run: Run, task_id: str, *, table: str = "table:items", prop: str = "at", confirmed: bool = True) -> Outcome:
    """Execute one operator of the stage on what the ones before it left. Writes."""
    from omnigraph_airflow.operators.stages import ApplyStageOperator, ApproveStageOperator, PlanStageOperator

    common: dict[str, Any] = {"task_id": task_id, "graph": run.graph.uri, "stage": "expire-rows"}
    if task_id == "plan_row_retention":
        policies = [{"table": table, "property": prop, "older_than": "30d"}]
        return run.execute(PlanStageOperator(request={"policies": policies, "max_share": 1}, **common))
    plan = run.of("plan_row_retention")
    if task_id == "expire_rows":
        return run.execute(ApplyStageOperator(plan=plan, approval="approve_row_retention", **common))
    asking = {"answer_within": timedelta(hours=1), "confirmed": confirmed, "digest": plan["digest"]}
    return run.execute(ApproveStageOperator(plan=plan, only_confirmed=True, **asking, **common))


@pytest.mark.parametrize(("task_id", "ends"), [(CHAIN[0], "skipped"), (CHAIN[1], "success"), (CHAIN[2], "failed")])
def test_a_frozen_folder_keeps_its_rows(tmp_path: Path, task_id: str, ends: str) -> None:
    root = items(tmp_path / "data", [1, 2, 60])
    run = Run(opened(root))
    for earlier in CHAIN[: CHAIN.index(task_id)]:
        assert execute(run, earlier).state == "success"
    freeze_graph(run.graph, ttl_seconds=3600, reason="the yearly backup", owner="ann")
    first = disk_of(run.graph.uri)
    outcome = execute(run, task_id)
    assert outcome.state == ends
    if ends != "success":
        assert re.search(FROZEN, outcome.sentence)
    if ends == "failed":
        assert run.of(task_id, "failure")[0]["message"] == outcome.sentence
    assert first.changed(disk_of(run.graph.uri)) == ({"decided"} if ends == "success" else set())
    assert ids(root) == [0, 1, 2]


@pytest.mark.parametrize("ages", [[], [1, 2]], ids=["no rows", "none that old"])
def test_without_expired_rows_nobody_is_asked(tmp_path: Path, ages: list[float]) -> None:
    root = items(tmp_path / "data", [1, 2])
    if not ages:
        lance.dataset(str(root / "items.lance")).delete("true")
    run = Run(opened(root))
    first = disk_of(run.graph.uri)
    assert execute(run, CHAIN[0]).state == "success"
    asked = execute(run, CHAIN[1])
    assert (asked.state, asked.sentence) == (
        "skipped",
        "no rows that are older than the policies and inside the bounds",
    )
    refused = execute(run, CHAIN[2])
    assert refused.sentence.startswith("expire-rows refused: nobody approved this plan")
    assert first.changed(disk_of(run.graph.uri)) == set()


def test_rows_of_many_columns_expire(tmp_path: Path) -> None:
    root = items(tmp_path / "data", [1, 2, 60])
    uri = str(root / "items.lance")
    lance.dataset(uri).add_columns({f"c{n}": f"{n}" for n in range(300)})
    run = Run(opened(root))
    assert [execute(run, task_id).state for task_id in CHAIN] == ["success"] * 3
    left = lance.dataset(uri).to_table()
    assert (ids(root), left.num_columns) == ([0, 1], 302)
    assert left.column("c299").to_pylist() == pa.array([299, 299]).to_pylist()


def test_a_graph_without_an_engine_has_a_preview_and_else_one_sentence(demo_graph: DemoGraph, stamp: int) -> None:
    run = Run(demo_graph(stamp=stamp, node_types=1, loads=1, rows=3))
    first = disk_of(run.graph.uri)
    assert execute(run, CHAIN[0], table="node:Person", prop="joined").state == "success"
    preview = execute(run, CHAIN[1], confirmed=False)
    assert (preview.state, preview.sentence.split(",")[0]) == ("skipped", "previewed")
    outcome = execute(run, CHAIN[1])
    assert outcome.state == "failed"
    assert re.search("its rows are deleted by the engine.*nothing was deleted; name the binary", outcome.sentence)
    assert first.changed(disk_of(run.graph.uri)) == set()

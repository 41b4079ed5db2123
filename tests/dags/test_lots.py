"""Operators that are mapped over lots: each table counts for itself, and a large graph stays mappable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from omnigraph_ops import serde
from omnigraph_ops.demo import DemoSpec
from omnigraph_ops.errors import CorruptGraph, StorageError
from omnigraph_ops.models.optimize import Executor, OptimizeDecision, OptimizePlan, TablePlan, TableStats
from omnigraph_ops.parallel import SHARED_LOTS
from tests.dags.test_maintenance_dag import run_night
from tests.support.runs import Instance, context_of
from tests.support.templates import Templates

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("airflow")]
TABLES = SHARED_LOTS + 8


def operator(lot: list[str], fails: dict[str, list[Exception]], together: int) -> Any:
    """An operator that begins so many tables together, and whose tables fail as often as told."""
    from omnigraph_airflow.operators.base import LotOperator

    begun = Barrier(together, timeout=60)

    class Told(LotOperator):
        def side_by_side(self, graph: Any) -> int:
            return together

        def run_table(self, graph: Any, table_key: str, context: Any) -> str:
            begun.wait()
            if fails.get(table_key):
                raise fails[table_key].pop(0)
            return f"row of {table_key}"

    return Told(task_id="optimize_table", lot=lot)


@pytest.mark.parametrize("others", [0, 12])
def test_the_label_of_a_type_with_a_long_name_fits_the_column_of_airflow(others: int) -> None:
    from airflow.models import TaskInstance

    column = TaskInstance.__table__.c.rendered_map_index.type.length
    names = [f"node:T{number}{'x' * 300}" for number in range(1 + others)]
    label = operator(names, {}, 1).label

    assert len(label) == column
    assert label.startswith("node:T0xxx")
    assert label.endswith("x… and 12 more" if others else "x…")


def plan_of(tables: int, *, executor: Executor = Executor.IN_PROCESS) -> OptimizePlan:
    """A plan with so many tables to optimize."""
    planned = tuple(
        TablePlan(
            table_key=f"node:{n}",
            decision=OptimizeDecision.OPTIMIZE,
            read_version=1,
            lance_head_version=1,
            executor=executor,
        )
        for n in range(tables)
    )
    return OptimizePlan(uri="/g", stamp=6, graph_version=1, tables=planned)


@pytest.fixture
def run(tmp_path: Path, templates: Templates) -> Callable[..., tuple[Any, dict[str, Any]]]:
    templates.copy(DemoSpec(node_types=1, loads=1, rows=3), tmp_path / "g")

    def go(lot: list[str], *, together: int = 1, **fails: list[Exception]) -> tuple[Any, dict[str, Any]]:
        task, instance = operator(lot, fails, together), Instance("optimize_table", 3)
        task.graph = str(tmp_path / "g")
        try:
            return task.execute(context_of(instance)), instance.pushed
        except Exception as error:
            return error, instance.pushed

    return go


def test_a_lot_returns_a_row_per_table(run: Any) -> None:
    assert run(["a", "b"]) == (["row of a", "row of b"], {})


def test_tables_side_by_side_keep_their_order_and_fail_each_for_itself(run: Any) -> None:
    assert run(["a", "b", "c", "d"], together=2) == ([f"row of {key}" for key in "abcd"], {})
    error, _ = run(["a", "b", "c", "d"], together=4, c=[CorruptGraph("c is broken")])
    assert "1 of 4 tables failed, the others are done: c: c is broken" in str(error)


def test_a_table_that_fails_stops_no_other_and_is_named_alone(run: Any) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    error, pushed = run(["a", "b", "c"], b=[CorruptGraph("b is broken")])
    assert isinstance(error, AirflowFailException)
    assert str(error) == "1 of 3 tables failed, the others are done: b: b is broken"
    assert pushed["failure"] == [
        {"task_id": "optimize_table", "table_key": "b", "message": "b is broken", "map_index": 3, "try_number": 1}
    ]


def test_what_tables_of_a_lot_failed_for_is_told_once(run: Any) -> None:
    error, _ = run(["a", "b", "c"], a=[CorruptGraph("no space")], c=[CorruptGraph("no space")])
    assert str(error) == "2 of 3 tables failed, the others are done: a, c: no space"
    error, _ = run(["a", "b"], a=[CorruptGraph("no space")], b=[CorruptGraph("no space")])
    assert str(error) == "2 of 2 tables failed: a, b: no space"
    error, _ = run(["a", "b"], a=[CorruptGraph("a lacks /g/a/1.lance")], b=[CorruptGraph("b lacks /g/b/22.lance")])
    others = "(the others name their own files, versions and sizes)"
    assert str(error) == f"2 of 2 tables failed: a, b: a lacks /g/a/1.lance {others}"
    error, _ = run(["T1", "b"], T1=[CorruptGraph("T1 pins version 3")], b=[CorruptGraph("b pins version 4")])
    assert str(error) == f"2 of 2 tables failed: T1, b: T1 pins version 3 {others}"
    error, _ = run(["a", "b"], a=[CorruptGraph("code 403")], b=[CorruptGraph("code 500")])
    assert str(error) == "2 of 2 tables failed: a: code 403; b: code 500"


def test_what_may_succeed_later_is_tried_once_more(run: Any) -> None:
    assert run(["a", "b"], a=[StorageError("timeout")]) == (["row of a", "row of b"], {})
    error, _ = run(["a", "b"], a=[StorageError("timeout"), StorageError("again")])
    assert "a: again" in str(error)


def test_what_is_final_is_not_tried_again(run: Any) -> None:
    error, _ = run(["a", "b"], a=[CorruptGraph("first"), CorruptGraph("second")])
    assert "a: first" in str(error)


def test_a_bug_in_one_table_stops_no_other(run: Any) -> None:
    error, _ = run(["a", "b"], a=[TypeError("x")])
    assert "unexpected TypeError" in str(error)


def test_a_table_alone_leaves_the_retry_to_airflow(run: Any) -> None:
    error, pushed = run(["a"], a=[StorageError("timeout")])
    assert type(error) is StorageError
    assert pushed["failure"][0]["table_key"] == "a"


def test_small_tables_for_spark_share_one_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph_airflow.operators.optimize import SelectTablesOperator

    monkeypatch.setenv("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "100")
    plan = plan_of(1000, executor=Executor.SPARK)
    first, *others = plan.tables
    plan = replace(plan, tables=(replace(first, rewrite_bytes=100), *others))
    select = SelectTablesOperator(task_id="heavy_tables", plan=serde.to_json(plan), runs_on=Executor.SPARK, graph="/g")
    lots = sorted(select.execute({"ti": Instance("heavy_tables")}), key=len)  # type: ignore[typeddict-item]
    assert [sorted(lot) for lot in lots] == [["node:0"], sorted(f"node:{n}" for n in range(1, 1000))]


def test_a_table_that_committed_and_then_failed_is_a_failure() -> None:
    from omnigraph_airflow.operators.optimize import summarize

    plan = plan_of(2)
    first, second = (table.table_key for table in plan.tables)
    noted = [TableStats(table_key=key, committed=True) for key in (first, second)]
    assert [row.error for row in summarize(plan, noted, {first: "an index was not folded"})] == [
        "an index was not folded",
        None,
    ]


def test_a_plan_that_cannot_be_split_is_not_split_again() -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from omnigraph_airflow.operators.optimize import SelectTablesOperator

    instance = Instance("light_tables")
    select = SelectTablesOperator(task_id="light_tables", plan={}, runs_on=Executor.IN_PROCESS, graph="/g")
    with pytest.raises(AirflowFailException):
        select.execute({"ti": instance})  # type: ignore[typeddict-item]
    assert "failure" in instance.pushed


def test_the_settings_of_a_graph_decide_which_tables_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph_airflow.operators.optimize import SelectTablesOperator

    listed = tmp_path / "graphs.yaml"
    listed.write_text("version: 1\ngraphs:\n  people:\n    target: /g\n    settings: {small_table_bytes: 0}\n")
    monkeypatch.setenv("OMNIGRAPH_GRAPHS_FILE", str(listed))
    plan = serde.to_json(plan_of(TABLES))

    def lots(graph: str) -> int:
        select = SelectTablesOperator(task_id="light", plan=plan, runs_on=Executor.IN_PROCESS, graph=graph)
        return len(select.execute({}))

    assert lots("/g") == SHARED_LOTS
    assert lots("people") == TABLES


@pytest.mark.night
def test_many_tables_share_tasks_and_each_has_its_row(
    dag: Any, answer_hitl: Any, tmp_path: Path, templates: Templates
) -> None:
    templates.copy(DemoSpec(node_types=TABLES - 3, loads=3, rows=4), tmp_path / "g")
    answer_hitl("approve_cleanup", "Approve")
    night = run_night(dag, tmp_path / "g", keep=1)
    assert night.state == "success", night.tasks
    assert night.of("optimize_table") == ["success"] * SHARED_LOTS
    rows = {t["table_key"]: t for t in night.xcom("summarize")["tables"]}
    assert sum(row["committed"] for row in rows.values()) == TABLES
    assert all(row["error"] is None for row in rows.values())
    assert night.of("cleanup_table") == ["success"] * SHARED_LOTS
    assert night.report["outcome"] == "succeeded"

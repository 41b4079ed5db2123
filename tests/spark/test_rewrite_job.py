"""The job `rewrite` with tables that are large: side by side in one application."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.graph import Graph
from omnigraph_ops.models.optimize import Executor, OptimizeReport
from omnigraph_ops.spark import rewrite_job
from omnigraph_ops.spark.rewrite_job import SparkExecutor
from tests.conftest import DemoGraph
from tests.support.converged import assert_pins_are_heads
from tests.support.kills import AFTER, kill_at
from tests.support.spark_session import submit_in
from tests.support.tables import rows_by_id
from tests.support.writers import entry_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-local")]
TABLES = ("node:Person", "node:Company", "edge:Knows")


def test_the_large_tables_of_a_submit_are_at_work_together(
    session: SparkSession, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, together = demo_graph(node_types=2, loads=3, rows=20), threading.Barrier(len(TABLES))

    class Meets(SparkExecutor):
        """Begins when every table has come so far."""

        def execute(self, dataset: Any, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
            together.wait(timeout=120)
            return super().execute(dataset, orders)

    monkeypatch.setattr(rewrite_job, "SparkExecutor", Meets)
    monkeypatch.setenv("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "0")
    before = rows_by_id(graph)
    words = [word for key in TABLES for word in ("--table", key)]
    report = submit_in(session)("rewrite", ("--graph", graph.uri, *words), OptimizeReport, lambda: None)
    done = [(row.table_key, row.executor, row.fragments_added, row.error) for row in report.tables]
    assert done == [(key, Executor.SPARK, 1, None) for key in TABLES]
    assert rows_by_id(graph) == before
    assert_pins_are_heads(graph)


def test_a_table_is_done_although_the_driver_of_another_one_is_killed_meanwhile(
    session: SparkSession, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, optimize = demo_graph(node_types=2, loads=3, rows=20), rewrite_job.optimize_table

    def killed(of: Graph) -> Any:
        return optimize(of, "node:Company")

    def beside_a_death(of: Graph, key: str, **how: Any) -> Any:
        monkeypatch.setattr(rewrite_job, "optimize_table", optimize)
        kill_at(graph, killed, "put", AFTER)
        return optimize(of, key, **how)

    monkeypatch.setattr(rewrite_job, "optimize_table", beside_a_death)
    before = rows_by_id(graph)
    words = ("--graph", graph.uri, "--table", "node:Person")
    (row,) = submit_in(session)("rewrite", words, OptimizeReport, lambda: None).tables
    assert (row.error, row.fragments_added) == (None, 1)
    assert rows_by_id(graph) == before
    assert_pins_are_heads(graph)


@pytest.mark.parametrize("dies", ["execute_on_worker", "optimize_on_worker"])
def test_a_job_that_spark_gives_up_costs_the_other_tables_nothing(
    session: SparkSession, demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """A worker that is lost too often: what was done of the other tables is told, and they are tried again."""
    graph, work = demo_graph(node_types=2, loads=3, rows=20), getattr(rewrite_job, dies)
    fatal = graph.table_uri(entry_of(graph, "node:Company"))

    def work_or_die(*args: Any) -> Any:
        if fatal in args or ("node:Company",) in args:
            os._exit(1)
        return work(*args)

    monkeypatch.setattr(rewrite_job, dies, work_or_die)
    # Large tables have tasks of their own, small ones are done whole in a worker.
    monkeypatch.setenv("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "0" if dies == "execute_on_worker" else str(2**30))
    before = rows_by_id(graph)
    words = [word for key in TABLES for word in ("--table", key)]
    report = submit_in(session)("rewrite", ("--graph", graph.uri, *words), OptimizeReport, lambda: None)
    errors = {row.table_key: row.error for row in report.tables}
    assert errors["node:Company"] is not None and "worker" in errors["node:Company"]
    if dies == "execute_on_worker":  # the job of a lot has several tables
        assert errors == dict.fromkeys(TABLES) | {"node:Company": errors["node:Company"]}
    assert rows_by_id(graph) == before
    monkeypatch.undo()
    (row,) = submit_in(session)("rewrite", ("--graph", graph.uri, *words[2:4]), OptimizeReport, lambda: None).tables
    assert row.error is None
    assert_pins_are_heads(graph)

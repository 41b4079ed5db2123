"""The job `rewrite` with tables that are large: side by side in one application."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.models.optimize import Executor, OptimizeReport
from omnigraph_ops.spark import rewrite_job
from omnigraph_ops.spark.rewrite_job import SparkExecutor
from tests.conftest import DemoGraph
from tests.support.converged import assert_pins_are_heads
from tests.support.spark_session import submit_in
from tests.support.tables import rows_by_id

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

"""`--spark MASTER` on the verbs of the shell: the jobs for real, on Spark in one process."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph_ops.graph import open_graph
from omnigraph_ops.models import OptimizeReport
from omnigraph_ops.spark.submit import Submitter
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.rewrites import TABLE
from tests.support.shell import Cli
from tests.support.spark_cluster import environment
from tests.support.tables import rows_by_id

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-standalone")]
MASTER = "local[2]"
SPEC: dict[str, Any] = {"node_types": 2, "loads": 3, "rows": 20}


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def test_optimize_submits_the_tables_above_the_threshold(
    demo_graph: DemoGraph, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = demo_graph(**SPEC)
    before = rows_by_id(graph)
    monkeypatch.setenv("OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES", "1")
    monkeypatch.setenv("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "0")
    done = cli(f"optimize --json --table {TABLE}", graph.uri, "--spark", MASTER)
    assert done.code == 0, done.err
    (stats,) = done.json["tables"]
    assert (stats["executor"], stats["fragments_added"], stats["error"]) == ("spark", 1, None)
    assert f"rewrite on {MASTER}" in done.err
    assert rows_by_id(open_graph(graph.uri)) == before
    assert_pins_are_heads(graph)
    assert_no_leftovers(graph)


def test_the_driver_does_what_it_is_told(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SPEC)
    words = ("--graph", graph.uri, "--table", TABLE, "--request", '{"cutoff": 100}')
    (stats,) = Submitter(master=MASTER)("rewrite", words, OptimizeReport, lambda: None).tables
    assert (stats.error, stats.fragments_added) == (None, 0), "no more fragments than that are small"


def test_a_table_that_is_gone_costs_no_other_of_its_submit(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SPEC)
    keys = [entry.table_key for entry in graph.state().entries]
    words = ("--graph", graph.uri, *(word for key in (*keys, "node:Gone") for word in ("--table", key)))
    report = Submitter(master=MASTER)("rewrite", words, OptimizeReport, lambda: None)
    assert {row.table_key: row.committed for row in report.tables} == dict.fromkeys(keys, True) | {"node:Gone": False}
    assert [row.table_key for row in report.failed] == ["node:Gone"]
    assert_pins_are_heads(graph)

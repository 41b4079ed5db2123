"""Index work of a table in tasks: what it leaves, and attempts that fail, come twice or come too late."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.tables import IndexFacts, index_facts
from omnigraph_ops.models.optimize import Executor, IndexBuild, OptimizeReport, TablePlan
from omnigraph_ops.progress import Lines
from omnigraph_ops.spark.rewrite_job import index_on_worker, work_in_tasks
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.rewrites import clones
from tests.support.spark_session import submit_in
from tests.support.tables import PERSON, rows_by_id
from tests.support.writers import entry_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-local")]
SPEC = {"node_types": 2, "loads": 4, "rows": 20}


@contextlib.contextmanager
def cloned(graph: Graph, tmp_path: Path) -> Iterator[Dataset]:
    yield graph.lance.clone(graph.open_pinned(entry_of(graph, PERSON)), str(tmp_path / "clone.lance"))


def plan_of(graph: Graph) -> TablePlan:
    (plan,) = plan_optimize(graph, tables=[PERSON]).tables
    assert len(plan.folds) > 1
    return plan


def facts(graph: Graph, key: str) -> list[IndexFacts]:
    found = index_facts(graph.open_pinned(entry_of(graph, key)))
    # Text indexes are a few bytes longer or shorter from one time to the next.
    return sorted((replace(index, size_bytes=0) for index in found), key=lambda index: index.name)


@pytest.mark.parametrize("stamp", [3, 6])
def test_what_tasks_do_is_what_one_process_does(
    session: SparkSession,
    demo_graph: DemoGraph,
    stamp: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OMNIGRAPH_OPS_SMALL_TABLE_BYTES", "0")
    here, there = (demo_graph(stamp=stamp, name=name, **SPEC) for name in ("here.omni", "there.omni"))
    keys = [table.table_key for table in plan_optimize(there).productive()]
    before = rows_by_id(there)
    words = [word for key in keys for word in ("--table", key)]
    report = submit_in(session)("rewrite", ("--graph", there.uri, *words), OptimizeReport, lambda: None)
    said = capsys.readouterr().out
    rows = [optimize_table(here, key) for key in keys]
    assert [(r.table_key, r.error, r.executor) for r in report.tables] == [(k, None, Executor.SPARK) for k in keys]
    assert [(set(r.indexes_folded), set(r.indexes_built)) for r in report.tables] == [
        (set(r.indexes_folded), set(r.indexes_built)) for r in rows
    ]
    assert [facts(there, key) for key in keys] == [facts(here, key) for key in keys]
    assert f"{PERSON}: folding and building" in said
    assert f"{PERSON}: folding index" not in said, "the driver did none itself"
    assert rows_by_id(there) == before == rows_by_id(here)
    assert not plan_optimize(there).productive()
    assert_pins_are_heads(there)
    assert_no_leftovers(there)


def test_an_attempt_that_comes_after_another_does_nothing(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    (index, *_), plan = plan_of(graph).folds, plan_of(graph)
    one = replace(plan, folds=(index,), builds=())
    with cloned(graph, tmp_path) as clone:
        since = int(clone.version)
        for _ in range(2):
            assert index_on_worker(graph.target, graph.settings, clone.uri, since, one) is None
        clone.checkout_latest()
        assert int(clone.version) == since + 1


def test_of_two_attempts_at_once_both_are_done_and_one_segment_is_left(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    plan = plan_of(graph)
    one = replace(plan, folds=plan.folds[:1], builds=())
    with cloned(graph, tmp_path) as clone, ThreadPoolExecutor(2) as pool:
        since = int(clone.version)
        twins = [pool.submit(index_on_worker, graph.target, graph.settings, clone.uri, since, one) for _ in range(2)]
        assert [twin.result() for twin in twins] == [None, None]
        clone.checkout_latest()
        (found,) = (i for i in index_facts(clone) if i.name == one.folds[0].name)
        assert found.segments == 1
        assert found.covered >= {f.fragment_id for f in clone.get_fragments()}


def test_what_a_task_cannot_do_is_left_to_the_driver(
    session: SparkSession, demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph, said = demo_graph(**SPEC), list[str]()
    plan = plan_of(graph)
    wrong = IndexBuild(column="no such column", index_type="BTREE", name="wrong_idx")
    with cloned(graph, tmp_path) as clone:
        progress = Lines(said.append)
        done = work_in_tasks(session.sparkContext, graph, clone, replace(plan, builds=(wrong,)), progress)
        assert done == {index.name for index in plan.folds}
        assert {i.name: i.segments for i in index_facts(clone) if i.name in done} == dict.fromkeys(done, 1)
    assert any("index wrong_idx was not done in its task, it is done here: " in line for line in said)


def test_a_job_that_spark_gives_up_is_left_to_the_driver(
    session: SparkSession, demo_graph: DemoGraph, tmp_path: Path
) -> None:
    graph, said, over = demo_graph(**SPEC), list[str](), threading.Event()
    plan, context = plan_of(graph), session.sparkContext

    def cancel() -> None:
        while not over.wait(0.02):
            context.cancelAllJobs()

    canceller = threading.Thread(target=cancel)
    with cloned(graph, tmp_path) as clone:
        canceller.start()
        try:
            assert work_in_tasks(context, graph, clone, plan, Lines(said.append)) == set()
        finally:
            over.set()
            canceller.join()
    assert sum("was not done in its task, it is done here" in line for line in said) == len(plan.folds)


def test_nothing_stays_of_clones(session: SparkSession, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SPEC)
    submit_in(session)("rewrite", ("--graph", graph.uri, "--table", PERSON), OptimizeReport, lambda: None)
    assert not clones(graph)

"""Index work of a table in tasks: what it leaves, and attempts that fail, come twice or come too late."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo.spec import VECTOR_LENGTH
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.tables import IndexFacts, index_facts
from omnigraph_ops.models.optimize import Executor, IndexBuild, OptimizeReport, TablePlan
from omnigraph_ops.progress import SILENT, Lines
from omnigraph_ops.spark import rewrite_job
from omnigraph_ops.spark.rewrite_job import (
    IndexPart,
    IndexTaskOutcome,
    JoinedParts,
    WholeIndex,
    index_on_worker,
    work_in_tasks,
)
from omnigraph_ops.stages.optimize.index_work import NewIndex, groups_of
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.rewrites import clones
from tests.support.spark_session import submit_in
from tests.support.tables import PERSON, rows_by_id
from tests.support.writers import Change, entry_of, write

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-local")]
DOC = "node:Doc"
SPEC = {"node_types": 2, "loads": 4, "rows": 20}


@contextlib.contextmanager
def cloned(graph: Graph, tmp_path: Path, table_key: str = PERSON) -> Iterator[Dataset]:
    yield graph.lance.clone(graph.open_pinned(entry_of(graph, table_key)), str(tmp_path / "clone.lance"))


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
    assert " parts of " not in said, "each core has an index"
    assert f"{PERSON}: folding index" not in said, "the driver did none itself"
    assert rows_by_id(there) == before == rows_by_id(here)
    assert not plan_optimize(there).productive()
    assert_pins_are_heads(there)
    assert_no_leftovers(there)


def test_an_attempt_that_comes_after_another_does_nothing(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    (index, *_), plan = plan_of(graph).folds, plan_of(graph)
    one = WholeIndex(name=index.name, plan=replace(plan, folds=(index,), builds=()))
    done = IndexTaskOutcome(name=index.name)
    with cloned(graph, tmp_path) as clone:
        since = int(clone.version)
        for _ in range(2):
            assert index_on_worker(graph.target, graph.settings, clone.uri, since, {}, one) == done
        clone.checkout_latest()
        assert int(clone.version) == since + 1


def test_of_two_attempts_at_once_both_are_done_and_one_segment_is_left(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    plan = plan_of(graph)
    index = plan.folds[0]
    one = WholeIndex(name=index.name, plan=replace(plan, folds=(index,), builds=()))
    with cloned(graph, tmp_path) as clone, ThreadPoolExecutor(2) as pool:
        since = int(clone.version)
        twins = [
            pool.submit(index_on_worker, graph.target, graph.settings, clone.uri, since, {}, one) for _ in range(2)
        ]
        assert [twin.result() for twin in twins] == [IndexTaskOutcome(name=index.name)] * 2
        clone.checkout_latest()
        (found,) = (i for i in index_facts(clone) if i.name == index.name)
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
    session: SparkSession, demo_graph: DemoGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, said, over = demo_graph(**SPEC), list[str](), threading.Event()
    plan, context = plan_of(graph), session.sparkContext

    def without_end(*_: object) -> None:
        time.sleep(600)

    # No task is done before the job is cancelled, however late that is.
    monkeypatch.setattr(rewrite_job, "index_on_worker", without_end)

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


def _drop(name: str) -> Change:
    return lambda dataset: dataset.drop_index(name)


@pytest.mark.parametrize("name", ["id_idx", "bio_idx"])
def test_what_is_made_anew_is_made_in_parts_and_joined(
    session: SparkSession, demo_graph: DemoGraph, tmp_path: Path, name: str
) -> None:
    graph, said = demo_graph(**SPEC, settings=Settings(small_table_bytes=0)), list[str]()
    write(graph, PERSON, _drop(name))
    plan = replace(plan_of(graph), folds=())
    with cloned(graph, tmp_path) as clone:
        before = {path.name for path in (tmp_path / "clone.lance").glob("_indices/*")}
        done = work_in_tasks(session.sparkContext, graph, clone, plan, Lines(said.append))
        assert done == {name} == {build.name for build in plan.builds}
        assert said == [f"folding and building 1 index in tasks, 2 parts of {name}"]
        (made,) = (index for index in index_facts(clone) if index.name == name)
        assert (made.segments, made.covered) == (1, {f.fragment_id for f in clone.get_fragments()})
        for where in ("id >= 'person-1'", "id = 'person-7'"):
            asked, scanned = (clone.to_table(filter=where, use_scalar_index=used) for used in (True, False))
            assert asked.sort_by("id") == scanned.sort_by("id")
        assert len({path.name for path in (tmp_path / "clone.lance").glob("_indices/*")} - before) == 3


def test_no_index_in_parts_is_trained_in_the_driver(
    session: SparkSession, demo_graph: DemoGraph, tmp_path: Path
) -> None:
    """The first job trains, the others make the parts and join them."""
    graph = demo_graph(node_types=3, loads=4, rows=20, settings=Settings(small_table_bytes=0))
    write(graph, DOC, _drop("embedding_idx"))
    (plan,), context = plan_optimize(graph, tables=[DOC]).tables, session.sparkContext
    plan, tracker = replace(plan, folds=()), context.statusTracker()
    context.setJobGroup("indexes", "")
    with cloned(graph, tmp_path, DOC) as clone:
        assert work_in_tasks(context, graph, clone, plan, SILENT) == {"embedding_idx"}
        nearest = {"column": "embedding", "q": [1.0] * VECTOR_LENGTH, "k": 5}
        found, scanned = (
            clone.to_table(columns=["id", "_distance"], nearest=nearest | {"use_index": used}) for used in (True, False)
        )
        assert found["id"] == scanned["id"]
    jobs = [tracker.getJobInfo(number) for number in sorted(tracker.getJobIdsForGroup("indexes"))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    assert [stage.numTasks for stage in stages if stage is not None] == [1, 2, 1]


@pytest.mark.parametrize(("least_bytes", "parts"), [(0, 2), (1, 2), (10**6, 0)])
def test_a_part_has_so_many_bytes_of_its_column(
    session: SparkSession, demo_graph: DemoGraph, tmp_path: Path, least_bytes: int, parts: int
) -> None:
    graph, said = demo_graph(**SPEC, settings=Settings(small_table_bytes=least_bytes)), list[str]()
    write(graph, PERSON, _drop("id_idx"))
    plan = replace(plan_of(graph), folds=())
    with cloned(graph, tmp_path) as clone:
        done = work_in_tasks(session.sparkContext, graph, clone, plan, Lines(said.append))
    assert (len(done), sum(f" {parts} parts of id_idx" in line for line in said)) == ((1, 1) if parts else (0, 0))


def test_parts_are_joined_once(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph = demo_graph(**SPEC)
    index = NewIndex(name="id_idx", column="id", index_type="BTREE")
    with cloned(graph, tmp_path) as clone:
        since = int(clone.version)
        perform = partial(index_on_worker, graph.target, graph.settings, clone.uri, since, {"id_idx": index})
        groups = groups_of(clone, most=2)
        parts = [perform(IndexPart(name="id_idx", fragments=group)) for group in groups]
        assert [part.error for part in parts] == [None, None]
        joint = JoinedParts(name="id_idx", parts=tuple(part.part for part in parts))
        assert int(graph.lance.open(clone.uri).version) == since, "no part is committed"
        for _ in range(2):
            assert perform(joint) == IndexTaskOutcome(name="id_idx")
        assert int(graph.lance.open(clone.uri).version) == since + 1


def test_an_index_with_a_part_that_no_task_made_is_left_to_the_driver(
    session: SparkSession, demo_graph: DemoGraph, tmp_path: Path
) -> None:
    settings = Settings(small_table_bytes=0, text_indexers=str(tmp_path / "none"))
    graph, said = demo_graph(**SPEC), list[str]()
    write(graph, PERSON, _drop("bio_idx"))
    plan, there = replace(plan_of(graph), folds=()), open_graph(graph.uri, settings)
    with cloned(graph, tmp_path) as clone:
        assert not work_in_tasks(session.sparkContext, there, clone, plan, Lines(said.append))
        assert "bio_idx" not in {index.name for index in index_facts(clone)}
    assert sum("index bio_idx was not done in its task, it is done here: " in line for line in said) == 1


def test_nothing_stays_of_clones(session: SparkSession, demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SPEC)
    submit_in(session)("rewrite", ("--graph", graph.uri, "--table", PERSON), OptimizeReport, lambda: None)
    assert not clones(graph)

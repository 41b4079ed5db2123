"""Copied pages: the same rows, row ids and answers as encoded ones, and only where pages can be copied."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.gateway import Dataset, LanceGateway
from omnigraph_ops.lance.rewrites import TaskLimits, copying, has_large_pages, with_sizes
from omnigraph_ops.lance.tables import commit_results, execute_task, fragment_facts, plan_tasks
from omnigraph_ops.models.optimize import BinaryCopy, OptimizeDecision
from omnigraph_ops.spark.rewrite_job import execute_on_worker
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.edges import when_asked
from tests.support.pages import copied, files_of
from tests.support.rewrites import TABLE, Counting, Died
from tests.support.rows import digest_of, scan
from tests.support.writers import entry_of

pytestmark = pytest.mark.slow

LOADS = 4
SPEC = {"node_types": 1, "loads": LOADS, "rows": 200}
ENCODING = Settings(small_table_bytes=0)
COPYING = Settings(small_table_bytes=0, binary_copy=BinaryCopy.ALWAYS)
PHOTOS = "node:Photo"


def rows(graph: Graph, table: str = TABLE) -> str:
    return digest_of(scan(graph.open_pinned(entry_of(graph, table))).sort_by("_rowid"))


def contents(graph: Graph, table: str = TABLE) -> list[bytes]:
    return files_of(graph.open_pinned(entry_of(graph, table)))


@pytest.mark.parametrize("copies", [True, False])
def test_pages_are_copied_and_nothing_else_changes(demo_graph: DemoGraph, stamp: int, copies: bool) -> None:
    graph = demo_graph(
        stamp=stamp,
        **SPEC,
        settings=COPYING if copies else ENCODING,
    )
    before, pages = rows(graph), contents(graph)
    stats = optimize_table(graph, TABLE)
    assert (stats.fragments_removed, stats.fragments_added) == (LOADS, 1)
    assert copied(pages, contents(graph)) is copies
    assert rows(graph) == before
    head = graph.open_pinned(entry_of(graph, TABLE))
    head.validate()
    (fragment,) = head.get_fragments()
    (size,) = (file.file_size_bytes for file in fragment.metadata.files)
    assert size == len(contents(graph)[0]), "without it the next plan would take the fragment for empty"
    for index in head.describe_indices():
        assert [set(s.fragment_ids) for s in index.segments] == [{fragment.fragment_id}]
    assert head.to_table(filter="id = 'p7'").num_rows == 1
    (again,) = plan_optimize(graph, tables=[TABLE]).tables
    assert (again.decision, again.data_bytes) == (OptimizeDecision.NO_OP, size)
    assert_pins_are_heads(graph)
    assert_no_leftovers(graph)


def test_a_task_with_a_deletion_is_encoded_anew(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SPEC, deletes=3, settings=COPYING)
    before, pages = rows(graph), contents(graph)
    head = graph.open_head(entry_of(graph, TABLE))
    payloads = [task.payload for task in plan_tasks(head, 10**6)]
    assert payloads
    assert [copying(payload) for payload in payloads] == payloads
    optimize_table(graph, TABLE)
    assert not copied(pages, contents(graph))
    assert rows(graph) == before


class Asked(InProcessExecutor):
    """Notes how each task is to be written."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: list[str | None] = []

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        self.modes += [json.loads(order.payload)["options"]["compaction_mode"] for order in orders]
        return super().execute(dataset, orders)


def test_a_table_with_blobs_is_encoded_anew(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=3, rows=40, blobs=True, settings=COPYING)
    photos, people = Asked(), Asked()
    optimize_table(graph, PHOTOS, executor=photos)
    optimize_table(graph, TABLE, executor=people)
    assert (photos.modes, people.modes) == ([None], ["TryBinaryCopy"])


class OnWorker(InProcessExecutor):
    """Executes as a Spark worker does, from what travels to it."""

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        limits = TaskLimits(num_threads=1, batch_size=512, io_buffer_size=2**20)
        for order in orders:
            yield execute_on_worker(str(dataset.uri), int(dataset.version), limits, 1, order)


def test_a_spark_worker_copies_too(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SPEC, settings=COPYING)
    before, pages = rows(graph), contents(graph)
    optimize_table(graph, TABLE, executor=OnWorker())
    assert copied(pages, contents(graph))
    assert rows(graph) == before


def test_a_resumed_run_keeps_to_the_journal(demo_graph: DemoGraph) -> None:
    copying_in_groups = Settings(small_table_bytes=0, binary_copy=BinaryCopy.ALWAYS, target_rows_per_fragment=400)
    graph = demo_graph(**SPEC, settings=copying_in_groups)
    before, pages = rows(graph), contents(graph)
    with pytest.raises(Died):
        optimize_table(graph, TABLE, executor=Counting(dies_after=1))
    plain = open_graph(graph.uri, Settings(small_table_bytes=0, target_rows_per_fragment=400, lease_wait_seconds=5))
    optimize_table(plain, TABLE)
    assert copied(pages, contents(plain))
    assert rows(plain) == before
    assert_no_leftovers(plain)


def _loaded(folder: Path, loads: int, rows: int, width: int) -> tuple[LanceGateway, Dataset]:
    """A table of so many loads with text of that width that does not compress."""
    lance, draw = LanceGateway(None), np.random.default_rng(1)
    dataset = None
    for load in range(loads):
        text = [line.tobytes().hex() for line in draw.integers(0, 256, (rows, width // 2), dtype=np.uint8)]
        data = pa.table({"id": [f"{load}-{n}" for n in range(rows)], "text": text})
        dataset = lance.append(dataset, data) if dataset else lance.create(str(folder / "t.lance"), data)
    assert dataset is not None
    return lance, dataset


@pytest.mark.parametrize(("loads", "rows", "width", "large"), [(3, 2000, 4000, True), (30, 20, 4000, False)])
def test_pages_count_as_large_by_what_a_page_holds(
    tmp_path: Path, loads: int, rows: int, width: int, large: bool
) -> None:
    lance, dataset = _loaded(tmp_path, loads, rows, width)
    (task,) = plan_tasks(dataset, 1_000_000)
    assert has_large_pages(lance, str(dataset.uri), task.payload) is large


def test_no_footer_is_read_of_a_task_that_cannot_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lance, dataset = _loaded(tmp_path, 3, 2000, 4000)
    dataset.delete("id = '0-0'")
    (task,) = plan_tasks(dataset, 1_000_000)
    footers = when_asked(monkeypatch, LanceFileReader, "__init__")
    assert has_large_pages(lance, str(dataset.uri), task.payload) is False
    assert footers == [], "a footer was read"


def test_a_large_file_of_many_small_pages_is_encoded_anew(tmp_path: Path) -> None:
    lance, dataset = _loaded(tmp_path, 60, 100, 4000)
    (task,) = plan_tasks(dataset, 1_000_000)
    result = execute_task(dataset, copying(task.payload))
    commit_results(dataset, [with_sizes(result, lambda path: Path(dataset.uri, path).stat().st_size)])
    dataset = lance.append(dataset, dataset.to_table(limit=100))
    (task,) = plan_tasks(dataset, 1_000_000)
    assert max(f.data_bytes for f in fragment_facts(dataset)) > 10_000_000
    assert not has_large_pages(lance, str(dataset.uri), task.payload)

"""Optimize while somebody else writes: nothing of theirs is lost, nothing unproven is published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.landing import land
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.errors import OpsError, StalePlan, UnknownTable
from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.graph import spec_of
from omnigraph_ops.graph.schema import Catalog
from omnigraph_ops.lance.commits import RewriteChange
from omnigraph_ops.lance.gateway import CommitConflict, Dataset
from omnigraph_ops.lance.tables import execute_task, plan_tasks
from omnigraph_ops.models.optimize import SkipReason
from omnigraph_ops.progress import Stopped
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor
from tests.conftest import DemoGraph
from tests.support.converged import assert_converged, assert_no_leftovers, assert_pins_are_heads
from tests.support.orphans import drop
from tests.support.rows import rows_of
from tests.support.stopped import LeavesPauses
from tests.support.tables import rows_by_id
from tests.support.writers import Change, copies, delete_first, drift, entry_of, write

SMALL = {"loads": 3, "rows": 20}
PEOPLE = {"node_types": 1, "loads": 4, "rows": 15}
TWO_WINDOWS = Settings(small_table_bytes=0)


class Interrupted(InProcessExecutor):
    """Lets another writer publish between the execution of a rewrite and its commit."""

    def __init__(self, graph: Graph, changes: list[Change]) -> None:
        super().__init__(graph.storage)
        self.graph, self.changes = graph, changes

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        yield from super().execute(dataset, orders)
        if self.changes:
            write(self.graph, "node:Person", self.changes.pop(0))


@pytest.mark.slow
@pytest.mark.parametrize("change", [copies("new-"), delete_first(2)], ids=["append", "delete"])
def test_a_write_during_the_rewrite_is_kept(demo_graph: DemoGraph, stamp: int, change: Change) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE, settings=TWO_WINDOWS)
    twin = demo_graph(stamp=stamp, **PEOPLE, name="twin.omni")
    write(twin, "node:Person", change)
    # Interrupted is an InProcessExecutor, so small_table_bytes=0 is what sends it through two windows.
    stats = optimize_table(graph, "node:Person", executor=Interrupted(graph, [change]))
    assert stats.fragments_removed >= 4
    assert rows_by_id(graph) == rows_by_id(twin)
    optimize_all(graph)
    assert_converged(graph)
    assert rows_by_id(graph) == rows_by_id(twin)


@pytest.mark.slow
def test_writers_that_never_rest_end_in_a_clean_refusal(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**PEOPLE, settings=TWO_WINDOWS)
    with pytest.raises(OpsError, match="preempted"):
        optimize_table(graph, "node:Person", executor=Interrupted(graph, [delete_first() for _ in range(9)]))
    assert_pins_are_heads(graph)
    assert_no_leftovers(graph)


class Preempted(InProcessExecutor):
    """Finds the table moved on, so many times."""

    def __init__(self, graph: Graph, times: int) -> None:
        super().__init__(graph.storage)
        self.times = times

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        if self.times:
            self.times -= 1
            raise StalePlan("it was published in between")
        yield from super().execute(dataset, orders)


@pytest.mark.parametrize("times", [0, 2])
def test_a_table_that_was_planned_again_says_how_often(demo_graph: DemoGraph, times: int) -> None:
    graph = demo_graph(**PEOPLE, settings=TWO_WINDOWS)
    stats = optimize_table(graph, "node:Person", executor=Preempted(graph, times))
    assert (stats.committed, stats.preempted) == (True, times)


def test_a_run_that_is_stopped_does_not_plan_a_preempted_table_again(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**PEOPLE, settings=TWO_WINDOWS)
    graph = graph.with_run(LeavesPauses())
    with pytest.raises(Stopped):
        optimize_table(graph, "node:Person", executor=Preempted(graph, 1))


class Intruder(InProcessExecutor):
    """Commits a delete without a publish while the rewrite executes: drift at commit time."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.storage)
        self.graph = graph

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        yield from super().execute(dataset, orders)
        drift(self.graph, "node:Person", delete_first())


def test_drift_that_appears_during_the_rewrite_is_never_published(demo_graph: DemoGraph, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **PEOPLE, settings=TWO_WINDOWS)
    before = rows_of(graph)
    optimize_table(graph, "node:Person", executor=Intruder(graph))
    assert rows_of(graph) == before
    entry = entry_of(graph, "node:Person")
    assert graph.open_head(entry).version > entry.version
    assert_no_leftovers(graph)


def test_results_are_never_committed_over_fragments_that_changed(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**PEOPLE)
    stale = entry_of(graph, "node:Person")
    pinned = graph.open_pinned(stale)
    change = RewriteChange(results=tuple(execute_task(pinned, t.payload) for t in plan_tasks(pinned, 1 << 20)))
    write(graph, "node:Person", delete_last)
    rows = rows_of(graph)
    with pytest.raises(CommitConflict, match="changed while they were rewritten; nothing was committed"):
        land(graph, stale, [change], unit="rewrite")
    assert rows_of(graph) == rows


def delete_last(dataset: Any) -> None:
    *_, last = dataset.to_table(columns=["id"]).column("id").to_pylist()
    dataset.delete(f"id = '{last}'")


def test_results_are_committed_beside_rows_that_came_meanwhile(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**PEOPLE)
    stale = entry_of(graph, "node:Person")
    pinned = graph.open_pinned(stale)
    change = RewriteChange(results=tuple(execute_task(pinned, t.payload) for t in plan_tasks(pinned, 1 << 20)))
    write(graph, "node:Person", copies("new-"))
    rows = rows_by_id(graph)
    assert land(graph, stale, [change], unit="rewrite").landed == 1
    assert rows_by_id(graph) == rows
    assert_no_leftovers(graph)


def test_a_schema_that_was_changed_since_the_graph_was_opened_is_another_writer(
    demo_graph: DemoGraph, stamp: int
) -> None:
    """An index is planned on a property that has another name by now."""
    graph = demo_graph(stamp=stamp, **PEOPLE)
    person = spec_of(graph, entry_of(graph, "node:Person"))
    old = {"name": "called", "age": "years"}
    earlier = replace(
        person,
        properties=tuple(replace(p, name=old.get(p.name, p.name)) for p in person.properties),
        indexed=tuple(old.get(name, name) for name in person.indexed),
    )
    tables = (earlier, *(t for t in graph.catalog.tables if t is not person))
    stats = optimize_table(replace(graph, catalog=Catalog(tables=tables)), "node:Person")
    assert (stats.error, stats.preempted) == (None, 1)
    assert optimize_table(graph, "node:Person").committed is False


class Dropping(Interrupted):
    """Drops the table instead."""

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        yield from super().execute(dataset, orders)
        drop(self.graph, "node:Person")


def test_a_table_that_is_gone_since_the_run_was_planned_fails_nothing(demo_graph: DemoGraph) -> None:
    # On stamp 6 it takes a schema apply of the engine: test_a_type_that_is_renamed_beside_a_run_fails_nothing.
    graph = demo_graph(stamp=3, **PEOPLE, settings=TWO_WINDOWS)
    report = optimize_all(graph, tables=["node:Person"], executor=Dropping(graph, []))
    assert [(t.skipped, t.error) for t in report.tables] == [(SkipReason.GONE, None)]
    (person,) = report.tables
    assert person.indexes_folded, "what was published before is told"
    with pytest.raises(UnknownTable):
        optimize_all(graph, tables=["node:Person"])

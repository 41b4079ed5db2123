"""Under a ceiling on bytes per second no task takes longer than seconds of it, and the next run has nothing to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination import rewrite_journal
from omnigraph_ops.coordination.pace import Ceilings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.tables import fragment_facts
from omnigraph_ops.models.optimize import OptimizeDecision, RewritePolicy
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from omnigraph_ops.storage.store import Storage
from tests.conftest import DemoGraph
from tests.support.converged import assert_pins_are_heads
from tests.support.plain import content, fragment_ids, opened
from tests.support.tables import rows_by_id

pytestmark = pytest.mark.slow

TABLE = "node:Person"
LOADS = 12
SPEC = {"node_types": 1, "loads": LOADS, "rows": 1_000}


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every task that asks for admission; nobody waits."""
    sizes: list[int] = []

    @contextlib.contextmanager
    def admit(_storage: Storage, _ceilings: Ceilings, size: int, _pause: object) -> Iterator[None]:
        sizes.append(size)
        yield

    monkeypatch.setattr(rewrite_journal, "admitted", admit)
    return sizes


def settings(graph: Graph, loads: int) -> Settings:
    """A ceiling of which ten seconds are so many loads of the table, and a half: no two are of one size."""
    (plan,) = plan_optimize(open_graph(graph.uri, Settings()), tables=[TABLE]).tables
    return Settings(max_rewrite_bytes_per_second=plan.data_bytes * (2 * loads + 1) // (2 * LOADS * 10))


def test_tasks_follow_the_ceiling_and_the_next_run_is_done(
    demo_graph: DemoGraph, stamp: int, admitted: list[int]
) -> None:
    graph = demo_graph(stamp=stamp, **SPEC)
    bound = settings(graph, 4)
    graph, before = open_graph(graph.uri, bound), rows_by_id(graph)
    (plan,) = plan_optimize(graph, tables=[TABLE]).tables
    (stats,) = optimize_all(graph, tables=[TABLE]).tables
    assert stats.error is None
    assert (stats.fragments_removed, stats.fragments_added) == (LOADS, 3)
    # The small table, too: nothing goes past the throttle in one armed window.
    assert len(admitted) == 3
    assert max(admitted) <= bound.max_rewrite_bytes_per_second * 10
    assert (plan.compaction_tasks, plan.fragments_after, plan.rewrite_bytes) == (3, 3, sum(admitted))
    assert rows_by_id(graph) == before
    assert_pins_are_heads(graph)
    (again,) = plan_optimize(graph, tables=[TABLE]).tables
    assert (again.decision, again.rewrite_bytes) == (OptimizeDecision.NO_OP, 0)
    (row,) = (t for t in health(graph).tables if t.table_key == TABLE)
    assert next(p for p in row.parts if p.name == "fragments").points == 0


def test_without_the_ceiling_the_table_goes_on_to_one_fragment(demo_graph: DemoGraph, admitted: list[int]) -> None:
    graph = demo_graph(**SPEC)
    optimize_all(open_graph(graph.uri, settings(graph, 4)), tables=[TABLE])
    free = open_graph(graph.uri, Settings())
    (stats,) = optimize_all(free, tables=[TABLE]).tables
    assert (stats.fragments_removed, stats.fragments_added) == (3, 1)


def test_a_ceiling_wide_enough_changes_nothing(demo_graph: DemoGraph, admitted: list[int]) -> None:
    graph = demo_graph(**SPEC)
    graph = open_graph(graph.uri, settings(graph, 3 * LOADS))
    (stats,) = optimize_all(graph, tables=[TABLE]).tables
    assert (stats.fragments_removed, stats.fragments_added) == (LOADS, 1)
    assert len(admitted) == 1


@pytest.mark.night("combinations")
@pytest.mark.parametrize("policy", list(RewritePolicy))
@pytest.mark.parametrize("stable", [True, False])
def test_nights_of_small_loads_stay_within_the_ceiling(
    tmp_path: Path, stable: bool, policy: RewritePolicy, admitted: list[int]
) -> None:
    path, bound = tmp_path / "t.lance", 0
    for _ in range(6):
        for _ in range(4):
            append(path, stable=stable)
        bound = bound or sum(f.data_bytes for f in fragment_facts(lance.dataset(str(path)))) * 9 // 8
        graph = opened(path, max_rewrite_bytes_per_second=bound // 10, policy=policy, target_rows_per_fragment=10**6)
        before = content(path)
        (stats,) = optimize_all(graph).tables
        assert (stats.error, content(path)) == (None, before)
        (plan,) = plan_optimize(graph).tables
        assert plan.decision is OptimizeDecision.NO_OP
    # Four loads fill a task, and what a task has filled is not touched again.
    assert len(admitted) == len(fragment_ids(path)) == 6
    assert max(admitted) <= bound


def append(path: Path, *, stable: bool) -> None:
    first = lance.dataset(str(path)).count_rows() if path.exists() else 0
    noise = np.random.default_rng(first).random(3_000)
    lance.write_dataset(
        pa.table({"id": range(first, first + len(noise)), "noise": noise}),
        str(path),
        mode="append" if path.exists() else "create",
        enable_stable_row_ids=stable,
    )

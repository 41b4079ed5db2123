"""The tiered policy and the cutoff on real tables: rows and row ids stay, little is rewritten, the bound holds."""

from __future__ import annotations

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.models.optimize import OptimizeDecision, RewritePolicy
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from tests.conftest import DemoGraph
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.rows import rows_everywhere
from tests.support.tables import fragment_sizes
from tests.support.writers import copies, delete_first, write

pytestmark = pytest.mark.slow

PERSON = "node:Person"
TIERED = Settings(policy=RewritePolicy.TIERED)
EVERY_NIGHT = TIERED.model_copy(update={"tier_unindexed_share": 0.0})
NIGHTS = 6


@pytest.mark.night("combinations")
@pytest.mark.parametrize("small_table_bytes", [64 * 2**20, 0], ids=["one_window", "two_windows"])
def test_nights_of_small_loads_keep_rows_and_rewrite_little(
    demo_graph: DemoGraph, stamp: int, small_table_bytes: int
) -> None:
    settings = EVERY_NIGHT.model_copy(update={"small_table_bytes": small_table_bytes})
    graph = demo_graph(stamp=stamp, node_types=1, loads=1, rows=200, settings=settings)
    optimize_all(graph)
    removed = []
    for night in range(NIGHTS):
        write(graph, PERSON, copies(f"n{night}-", 4))
        before = rows_everywhere(graph)
        stats = optimize_table(graph, PERSON)
        removed.append(stats.fragments_removed)
        assert stats.committed
        assert rows_everywhere(graph) == before
    # Four loads of one size become one fragment; the 200 rows are never touched.
    assert removed == [0, 0, 0, 4, 0, 0]
    assert fragment_sizes(graph) == [200, 16, 4, 4]
    assert_pins_are_heads(graph)
    assert_no_leftovers(graph)
    assert {p.decision for p in plan_optimize(graph).tables} == {OptimizeDecision.NO_OP}


def test_the_plan_says_what_tiers_will_do(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=1, rows=200, settings=TIERED)
    optimize_all(graph)
    for load in range(4):
        write(graph, PERSON, copies(f"n{load}-", 4))
    (plan,) = plan_optimize(graph, tables=(PERSON,)).tables
    assert (plan.fragments, plan.fragments_after) == (5, 2)
    assert 0 < plan.rewrite_bytes < plan.data_bytes
    optimize_table(graph, PERSON)
    assert fragment_sizes(graph) == [200, 16]


def test_deletions_are_materialised_all_the_same(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=1, rows=40, settings=TIERED)
    optimize_all(graph)
    write(graph, PERSON, delete_first(10))
    before = rows_everywhere(graph)
    optimize_table(graph, PERSON)
    assert rows_everywhere(graph) == before
    assert fragment_sizes(graph) == [30]


@pytest.mark.parametrize(("policy", "expected"), [(RewritePolicy.CONVERGE, [52]), (RewritePolicy.TIERED, [40, 12])])
def test_the_cutoff_is_a_trigger_and_a_bound(demo_graph: DemoGraph, policy: RewritePolicy, expected: list[int]) -> None:
    graph = demo_graph(node_types=1, loads=1, rows=40, settings=Settings(policy=policy, cutoff=2))
    optimize_all(graph)
    write(graph, PERSON, copies("a", 4))
    assert optimize_table(graph, PERSON).fragments_removed == 0
    assert fragment_sizes(graph) == [40, 4]
    for load in ("b", "c"):
        write(graph, PERSON, copies(load, 4))
    optimize_table(graph, PERSON)
    assert fragment_sizes(graph) == expected

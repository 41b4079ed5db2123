"""Indexes that wait for more rows: readers find the same, fragments and uncovered rows stay bounded."""

from __future__ import annotations

import math
from pathlib import Path

import lance
import numpy as np
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.lance.tables import fragment_facts, index_facts
from omnigraph_ops.models.optimize import OptimizeDecision, RewritePolicy, SkipReason
from omnigraph_ops.stages.health.read import health
from omnigraph_ops.stages.optimize.run import optimize_all, optimize_table, plan_optimize
from omnigraph_ops.stages.optimize.stage import plan_view
from omnigraph_ops.views.view import plain_text
from tests.conftest import DemoGraph
from tests.support import plain
from tests.support.converged import assert_no_leftovers, assert_pins_are_heads
from tests.support.rows import digest_of, rows_everywhere
from tests.support.tables import fragment_sizes
from tests.support.writers import copies, delete_first, entry_of, write

pytestmark = pytest.mark.slow

PERSON = "node:Person"
TIERED = Settings(policy=RewritePolicy.TIERED)
SHARE, NIGHTS, NIGHTLY, FAN_IN = 0.1, 40, 6, 3


def uncovered(path: Path) -> float:
    """The share of rows that the worst index of a dataset does not cover."""
    dataset = lance.dataset(str(path))
    worst = max(
        sum(f.physical_rows - f.deleted_rows for f in fragment_facts(dataset) if f.fragment_id not in index.covered)
        for index in index_facts(dataset)
    )
    return worst / dataset.count_rows()


def scanned(path: Path) -> tuple[list[int], ...]:
    """What `plain.answers` must find, told from the rows themselves."""
    rows = lance.dataset(str(path)).to_table().to_pylist()
    half = np.full(plain.DIMENSION, 0.5, np.float32)
    nearest = sorted(rows, key=lambda r: float(((np.array(r["vector"], np.float32) - half) ** 2).sum()))[:12]
    found = (
        [r for r in rows if 390 <= r["id"] < 430],
        [r for r in rows if r["kind"] == "k1"],
        [r for r in rows if "word3" in r["text"]],
        [r for r in rows if "word4 common" in r["text"]],
        nearest,
    )
    return tuple(sorted(r["id"] for r in part) for part in found)


def rows_by_id(path: Path) -> str:
    """Digest of all rows. Lance keeps fragments in the order of their ids, so what is rewritten comes last."""
    return digest_of(lance.dataset(str(path)).to_table().sort_by("id"))


def edit(path: Path, night: int) -> None:
    """Rows that an index covers and rows that wait change what they are indexed by; some go."""
    dataset = lance.dataset(str(path))
    newest = dataset.count_rows() + night
    for number in (night * 7 % 380, newest - 20):
        dataset.update({"kind": f"'k{night % 3}'", "text": f"'word{night % 7} common'"}, where=f"id = {number}")
    dataset.delete(f"id = {night * 11 % 380}")


@pytest.mark.night("combinations")
@pytest.mark.parametrize("small_table_bytes", [64 * 2**20, 0], ids=["one_window", "two_windows"])
@pytest.mark.parametrize("stable", [True, False], ids=["stable", "unstable"])
def test_many_nights_find_the_same_with_few_fragments_and_few_folds(
    tmp_path: Path, *, stable: bool, small_table_bytes: int
) -> None:
    path = tmp_path / "table.lance"
    plain.indexed(path, stable=stable)
    tiers = {"policy": RewritePolicy.TIERED, "tier_fan_in": FAN_IN, "tier_unindexed_share": SHARE}
    graph = plain.opened(path, **tiers, small_table_bytes=small_table_bytes)
    folds, first = 0, 10_000
    for night in range(NIGHTS):
        plain.append(path, first + night * NIGHTLY, NIGHTLY)
        if night % 2:
            edit(path, night)
        expected, before = scanned(path), rows_by_id(path)
        assert plain.answers(path) == expected
        stats = optimize_table(graph, "table:table")
        folds += bool(stats.indexes_folded)
        assert plain.answers(path) == expected
        assert rows_by_id(path) == before
        assert uncovered(path) <= SHARE
        assert len(plain.fragment_ids(path)) <= FAN_IN * math.log(len(expected) + 1000, FAN_IN)
    assert 2 <= folds <= 8


def graph_of(demo_graph: DemoGraph, stamp: int = 6, **settings: object) -> Graph:
    graph = demo_graph(stamp=stamp, node_types=1, loads=1, rows=200, settings=TIERED.model_copy(update=settings))
    optimize_all(graph)
    return graph


def test_a_table_whose_index_waits_has_nothing_to_do_and_says_why(demo_graph: DemoGraph) -> None:
    graph = graph_of(demo_graph)
    write(graph, PERSON, copies("a", 4))
    version = entry_of(graph, PERSON).version
    (plan,) = plan_optimize(graph, tables=(PERSON,)).tables
    assert (plan.decision, plan.folds) == (OptimizeDecision.NO_OP, ())
    assert "behind by 4 of 204 rows, folded above 5 %" in plan.reason
    assert f"no-op; {plan.reason.removeprefix('nothing to do; ')}" in plain_text(plan_view(plan_optimize(graph)))
    assert not optimize_table(graph, PERSON).committed
    assert entry_of(graph, PERSON).version == version
    (row,) = (t for t in health(graph).tables if t.table_key == PERSON)
    assert row.unindexed_share == pytest.approx(4 / 204, abs=1e-4)


def test_no_table_with_a_text_index_waits_on_stamp_3_whose_searches_fail_meanwhile(demo_graph: DemoGraph) -> None:
    graph = graph_of(demo_graph, 3)
    write(graph, PERSON, copies("a", 4))
    assert "bio_idx" in optimize_table(graph, PERSON).indexes_folded


@pytest.mark.parametrize("small_table_bytes", [64 * 2**20, 0], ids=["one_window", "two_windows"])
def test_what_waits_is_merged_by_itself_and_folded_later(demo_graph: DemoGraph, small_table_bytes: int) -> None:
    graph = graph_of(demo_graph, small_table_bytes=small_table_bytes)
    nights = []
    for night in range(6):
        write(graph, PERSON, copies(f"n{night}-", 2))
        before = rows_everywhere(graph)
        stats = optimize_table(graph, PERSON)
        assert rows_everywhere(graph) == before
        nights.append((stats.committed, bool(stats.indexes_folded), fragment_sizes(graph)))
    # The fourth load fills a tier of its own; the sixth makes more than a twentieth of the rows.
    assert nights == [
        (False, False, [200, 2]),
        (False, False, [200, 2, 2]),
        (False, False, [200, 2, 2, 2]),
        (True, False, [200, 8]),
        (False, False, [200, 8, 2]),
        (True, True, [200, 8, 2, 2]),
    ]
    assert_pins_are_heads(graph)
    assert_no_leftovers(graph)
    assert {p.reason for p in plan_optimize(graph).tables} == {"nothing to do"}


@pytest.mark.parametrize("small_table_bytes", [64 * 2**20, 0], ids=["one_window", "two_windows"])
def test_fragments_of_covered_and_of_waiting_fragments_are_filled_apart(
    demo_graph: DemoGraph, small_table_bytes: int
) -> None:
    graph = graph_of(demo_graph, small_table_bytes=small_table_bytes)
    nightly = open_graph(graph.uri, graph.settings.model_copy(update={"tier_unindexed_share": 0.0}))
    for load in range(3):
        write(graph, PERSON, copies(f"n{load}-", 2))
        optimize_table(nightly, PERSON)
    write(graph, PERSON, copies("late-", 2))
    # Four of a size, but Lance would merge the three that are covered and leave the fourth.
    assert not optimize_table(graph, PERSON).committed
    write(graph, PERSON, delete_first(30))
    assert optimize_table(graph, PERSON).indexes_folded == ()
    assert fragment_sizes(graph) == [2, 2, 2, 2, 170]
    optimize_table(nightly, PERSON)
    assert fragment_sizes(graph) == [178]


def test_indexes_of_edges_never_wait(demo_graph: DemoGraph) -> None:
    graph = demo_graph(node_types=1, loads=3, rows=200, index_after_load=2, settings=TIERED)
    edges = [p for p in plan_optimize(graph).tables if p.table_key.startswith("edge:")]
    assert edges
    assert all([f.name for f in p.folds] == ["dst_idx", "id_idx", "src_idx"] for p in edges)


def test_a_missing_index_is_built_and_the_others_are_folded_with_it(demo_graph: DemoGraph) -> None:
    graph = graph_of(demo_graph)
    write(graph, PERSON, lambda dataset: dataset.drop_index("tier_idx"))
    write(graph, PERSON, copies("a", 4))
    stats = optimize_table(graph, PERSON)
    assert stats.indexes_built == ("tier_idx",)
    assert "id_idx" in stats.indexes_folded


def test_delta_segments_are_merged_whatever_they_cover(demo_graph: DemoGraph) -> None:
    graph = graph_of(demo_graph)

    def deltas(dataset: lance.LanceDataset) -> None:
        copies("a", 4)(dataset)
        lance.dataset(dataset.uri).optimize.optimize_indices(index_names=["id_idx"], num_indices_to_merge=0)

    write(graph, PERSON, deltas)
    assert "id_idx" in optimize_table(graph, PERSON).indexes_folded


def test_the_cutoff_folds_first_where_it_cannot_be_kept_otherwise(demo_graph: DemoGraph) -> None:
    graph = graph_of(demo_graph, cutoff=2)
    for load in ("a", "b"):
        write(graph, PERSON, copies(load, 2))
    assert optimize_table(graph, PERSON).indexes_folded == ()
    assert fragment_sizes(graph) == [200, 4]
    strict = open_graph(graph.uri, graph.settings.model_copy(update={"cutoff": 1}))
    assert "id_idx" in optimize_table(strict, PERSON).indexes_folded
    assert fragment_sizes(strict) == [204]


def test_auto_is_not_moved_by_rows_that_wait(demo_graph: DemoGraph) -> None:
    graph = graph_of(demo_graph, tier_unindexed_share=0.3, auto=True, cutoff=5, auto_unindexed_share=0.1)
    for load in range(4):
        write(graph, PERSON, copies(f"n{load}-", 16))
    (plan,) = plan_optimize(graph, tables=(PERSON,)).tables
    assert (plan.decision, plan.skipped) == (OptimizeDecision.DEFERRED, SkipReason.BELOW_THRESHOLDS)
    assert "24% unindexed" in plan.reason
    assert "behind by 64 of 264 rows" in plan.reason

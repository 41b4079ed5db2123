"""Which fragments the policies leave alone, and what a thousand nights of that cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph_ops.lance.tables import FragmentFacts
from omnigraph_ops.models import RewritePolicy
from omnigraph_ops.stages.optimize.tiers import RewriteRules, excluded, mostly_deleted

HUGE = 10**12


def rules(*, fan_in: int = 4, target: int = HUGE, cutoff: int | None = None, tiered: bool = True) -> RewriteRules:
    policy = RewritePolicy.TIERED if tiered else RewritePolicy.CONVERGE
    return RewriteRules(target_rows=target, policy=policy, fan_in=fan_in, cutoff=cutoff)


def fragments(*rows: int, deleted: Sequence[int] = ()) -> list[FragmentFacts]:
    return [
        FragmentFacts(fragment_id=n, physical_rows=count, deleted_rows=count if n in deleted else 0, data_bytes=count)
        for n, count in enumerate(rows)
    ]


def moving(parts: Sequence[FragmentFacts], wanted: RewriteRules) -> list[int]:
    left = excluded(parts, wanted)
    return [f.fragment_id for f in parts if f.fragment_id not in left]


def compacted(sizes: list[int], wanted: RewriteRules) -> tuple[list[int], int]:
    """The table after a night, and the rows written. As Lance does it: neighbours that are not excluded become one,
    and fragments lie in the order of their ids, so what was written lies last.
    """
    left = excluded(fragments(*sizes), wanted)
    after: list[list[int]] = []
    open_run = False
    for number, rows in enumerate(sizes):
        candidate = number not in left and rows < wanted.target_rows
        if candidate and open_run:
            after[-1].append(rows)
        else:
            after.append([rows])
        open_run = candidate
    after.sort(key=lambda group: len(group) > 1)
    return [sum(group) for group in after], sum(sum(group) for group in after if len(group) > 1)


def nights(loads: Sequence[int], wanted: RewriteRules, start: int = 0) -> tuple[list[int], int, int]:
    """Fragments at the end, rows written by all nights, the most fragments of any night."""
    sizes, written, most = ([start] if start else []), 0, 0
    for rows in loads:
        sizes, cost = compacted([*sizes, rows], wanted)
        written += cost
        most = max(most, len(sizes))
    return sizes, written, most


@pytest.mark.parametrize("fan_in", [2, 4, 10])
@pytest.mark.parametrize("start", [0, 100_000])
def test_a_thousand_nights_rewrite_every_row_log_n_times(fan_in: int, start: int) -> None:
    loads = [100] * 1000
    sizes, written, most = nights(loads, rules(fan_in=fan_in), start)
    tiers = math.log(start + sum(loads), fan_in) + 1
    assert written <= (math.log(1000, fan_in) + 1) * sum(loads) + 2 * start
    assert most <= fan_in * tiers
    assert sum(sizes) == start + sum(loads)


def test_converging_every_night_costs_in_proportion_to_the_nights() -> None:
    loads = [100] * 1000
    _, tiered, _ = nights(loads, rules())
    _, converged, _ = nights(loads, rules(tiered=False))
    assert converged > 100 * tiered


@given(loads=st.lists(st.integers(1, 100_000), min_size=1, max_size=120), fan_in=st.integers(2, 10))
@settings(deadline=None)
def test_loads_of_any_size_stay_bounded(loads: list[int], fan_in: int) -> None:
    _, written, most = nights(loads, rules(fan_in=fan_in))
    tiers = math.log(sum(loads), fan_in) + 1
    assert most <= fan_in * tiers
    assert written <= fan_in * tiers * sum(loads)


@given(
    sizes=st.lists(st.integers(0, 3000), max_size=40),
    deleted=st.sets(st.integers(0, 40)),
    fan_in=st.integers(2, 6),
    cutoff=st.none() | st.integers(1, 8),
)
@settings(deadline=None)
def test_one_night_leaves_less_than_a_full_tier_and_nothing_mostly_deleted(
    sizes: list[int], deleted: set[int], fan_in: int, cutoff: int | None
) -> None:
    parts = fragments(*sizes, deleted=sorted(deleted))
    left = excluded(parts, rules(fan_in=fan_in, target=2000, cutoff=cutoff))
    assert left <= {f.fragment_id for f in parts}
    assert not any(f.fragment_id in left and mostly_deleted(f) for f in parts)
    assert excluded(parts, rules(fan_in=fan_in, target=2000, cutoff=cutoff)) == left


@given(sizes=st.lists(st.integers(1, 1900), max_size=60), fan_in=st.integers(2, 6), cutoff=st.integers(1, 6))
@settings(deadline=None)
def test_the_cutoff_bounds_what_one_night_leaves(sizes: list[int], fan_in: int, cutoff: int) -> None:
    after, _ = compacted(sizes, rules(fan_in=fan_in, cutoff=cutoff))
    assert len(after) <= cutoff


def test_small_fragments_between_large_ones_do_not_pile_up() -> None:
    assert moving(fragments(100, 1, 1, 100), rules()) == [0, 1, 2, 3]


def test_a_tier_that_fills_the_next_one_is_merged_in_one_go() -> None:
    assert moving(fragments(64, 16, 16, 16, 4, 4, 4, 4), rules()) == [1, 2, 3, 4, 5, 6, 7]


def test_what_lies_behind_a_merge_is_merged_with_it() -> None:
    assert moving(fragments(100, 16, 16, 16, 16, 4, 1), rules()) == [1, 2, 3, 4, 5, 6]
    assert moving(fragments(100, 16, 16, 16, 4, 1), rules()) == []


def test_fragments_of_the_target_size_are_never_touched() -> None:
    assert moving(fragments(100, 10, 10, 100, 10, 10), rules(target=100)) == []
    assert moving(fragments(10, 10, 10, 10, 100), rules(target=100)) == [0, 1, 2, 3]


def test_converge_takes_everything_unless_a_cutoff_says_it_is_too_early() -> None:
    parts = fragments(10, 10, 10)
    assert moving(parts, rules(tiered=False)) == [0, 1, 2]
    assert moving(parts, rules(tiered=False, cutoff=3)) == []
    assert moving(parts, rules(tiered=False, cutoff=2)) == [0, 1, 2]


@pytest.mark.parametrize("tiered", [False, True])
def test_deletions_are_materialised_below_every_bound(*, tiered: bool) -> None:
    assert moving(fragments(10, 10, 10, deleted=[1]), rules(tiered=tiered, cutoff=3)) == [1]

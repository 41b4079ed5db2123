"""Which fragments a rewrite takes, and how big its tasks get."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph_ops.coordination.pace import Ceilings
from omnigraph_ops.lance.tables import FragmentFacts
from omnigraph_ops.models.optimize import RewritePolicy
from omnigraph_ops.stages.optimize.fragments import RewriteRules, counted, excluded, is_full, split, wants_rewrite

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
    assert not any(f.fragment_id in left and wants_rewrite(f) for f in parts)
    assert excluded(parts, rules(fan_in=fan_in, target=2000, cutoff=cutoff)) == left


@pytest.mark.parametrize("wanted", [rules(), rules(cutoff=9), rules(tiered=False, cutoff=9)])
def test_without_a_share_that_may_stay_deleted_every_fragment_with_a_deleted_row_moves(wanted: RewriteRules) -> None:
    parts = [
        FragmentFacts(fragment_id=n, physical_rows=1000, deleted_rows=gone, data_bytes=1000)
        for n, gone in enumerate((0, 1, 100, 101))
    ]
    assert moving(parts, replace(wanted, target_rows=10)) == [3]
    assert moving(parts, replace(wanted, target_rows=10, deleted_share=0.0)) == [1, 2, 3]
    assert [len(run) for run in split(parts[1:3], 1000, 0.0)] == [1, 1]
    assert not split(parts[1:3], 1000)
    assert (is_full(parts[1], 1000), is_full(parts[1], 1000, 0.0)) == (True, False)


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


BOUND = 1000


def fragment(number: int, size: int, *, deleted: bool = False) -> FragmentFacts:
    return FragmentFacts(fragment_id=number, physical_rows=100, deleted_rows=50 * deleted, data_bytes=size)


def cut_ids(sizes: Sequence[int]) -> list[list[int]]:
    tasks = split([fragment(n, size) for n, size in enumerate(sizes)], BOUND)
    return [[f.fragment_id for f in task] for task in tasks]


def groups(fragments: Sequence[FragmentFacts]) -> list[list[FragmentFacts]]:
    """Neighbours that are not full."""
    found: list[list[FragmentFacts]] = [[]]
    for f in fragments:
        if is_full(f, BOUND):
            found.append([])
        else:
            found[-1].append(f)
    return found


def after_a_run(fragments: Sequence[FragmentFacts]) -> list[FragmentFacts]:
    """Every task as one fragment without deletions; Lance keeps fragments in the order of their ids."""
    tasks = [task for group in groups(fragments) for task in split(group, BOUND)]
    gone = {f.fragment_id for task in tasks for f in task}
    first = max((f.fragment_id for f in fragments), default=0) + 1
    made = [fragment(first + n, sum(f.data_bytes for f in task)) for n, task in enumerate(tasks)]
    return [f for f in fragments if f.fragment_id not in gone] + made


def test_neighbours_share_a_task_up_to_the_bound() -> None:
    assert cut_ids([400, 400, 400, 100, 100]) == [[0, 1], [2, 3, 4]]


def test_none_is_left_over_at_the_end_if_its_neighbour_has_company() -> None:
    assert cut_ids([300, 300, 300, 300]) == [[0, 1], [2, 3]]
    assert cut_ids([450, 450, 450]) == [[0, 1]]


def test_a_large_fragment_is_rewritten_only_for_its_deletions() -> None:
    kept, sparse = fragment(0, 5 * BOUND), fragment(1, 5 * BOUND, deleted=True)
    assert is_full(kept, BOUND)
    assert not is_full(sparse, BOUND)
    assert split([kept, sparse], BOUND) == ((sparse,),)


def test_a_fragment_that_is_too_long_is_rewritten_alone() -> None:
    long = replace(fragment(2, 5 * BOUND), divided_into=2)
    assert not is_full(long, BOUND)
    table = [fragment(0, 400), fragment(1, 400), long, fragment(3, 400), fragment(4, 400)]
    assert [[f.fragment_id for f in task] for task in split(table, BOUND)] == [[0, 1], [2], [3, 4]]
    assert excluded(table, rules(cutoff=9, tiered=False)) == {0, 1, 3, 4}


def test_without_a_ceiling_nothing_is_full() -> None:
    assert Ceilings(concurrent_rewrites=3).task_bytes is None
    assert not is_full(fragment(0, 10**15), None)


def test_full_counts_as_the_target_size() -> None:
    full, small = fragment(0, BOUND), fragment(1, 1)
    assert [f.physical_rows for f in counted([full, small], BOUND, 7_000)] == [7_000, 100]


fragment_lists = st.lists(st.tuples(st.integers(0, 2 * BOUND), st.booleans()), max_size=30).map(
    lambda found: [fragment(n, size, deleted=deleted) for n, (size, deleted) in enumerate(found)]
)


@given(fragment_lists)
def test_no_task_is_over_the_bound_but_for_one_fragment_with_deletions(fragments: list[FragmentFacts]) -> None:
    for task in split(fragments, BOUND):
        assert sum(f.data_bytes for f in task) <= BOUND or (len(task) == 1 and task[0].deleted_rows)
        assert len(task) > 1 or task[0].deleted_rows
        first = task[0].fragment_id
        assert list(task) == fragments[first : first + len(task)], "neighbours, in order"


@pytest.mark.slow
@given(fragment_lists)
def test_runs_come_to_an_end_with_nothing_left_to_merge(fragments: list[FragmentFacts]) -> None:
    for _ in range(len(fragments) + 1):
        fragments = after_a_run(fragments)
    assert after_a_run(fragments) == fragments
    for group in groups(fragments):
        assert len(group) < 2


@given(st.lists(st.integers(0, BOUND // 2), max_size=30))
def test_the_second_run_has_nothing_to_do(sizes: list[int]) -> None:
    once = after_a_run([fragment(n, size) for n, size in enumerate(sizes)])
    assert after_a_run(once) == once


@given(st.lists(st.integers(1, BOUND // 3), min_size=8, max_size=8))
def test_nights_of_loads_leave_few_small_fragments(sizes: list[int]) -> None:
    fragments: list[FragmentFacts] = []
    for _ in range(12):
        first = max((f.fragment_id for f in fragments), default=0) + 1
        loads = [fragment(first + n, size) for n, size in enumerate(sizes)]
        fragments = after_a_run(fragments + loads)
    most = 4 * sum(sizes) * 12 // BOUND + 4
    assert len(fragments) <= most

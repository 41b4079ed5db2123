"""Tasks under a ceiling: within the bound as far as fragments allow, and nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.coordination.throttle import Ceilings
from omnigraph_ops.lance.tables import FragmentFacts
from omnigraph_ops.stages.optimize.task_size import counted, cut, is_full

BOUND = 1000


def fragment(number: int, size: int, *, deleted: bool = False) -> FragmentFacts:
    return FragmentFacts(fragment_id=number, physical_rows=100, deleted_rows=50 * deleted, data_bytes=size)


def cut_ids(sizes: Sequence[int]) -> list[list[int]]:
    tasks = cut([fragment(n, size) for n, size in enumerate(sizes)], BOUND)
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
    tasks = [task for group in groups(fragments) for task in cut(group, BOUND)]
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
    assert cut([kept, sparse], BOUND) == ((sparse,),)


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
    for task in cut(fragments, BOUND):
        assert sum(f.data_bytes for f in task) <= BOUND or (len(task) == 1 and task[0].deleted_rows)
        assert len(task) > 1 or task[0].deleted_rows
        first = task[0].fragment_id
        assert list(task) == fragments[first : first + len(task)], "neighbours, in order"


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

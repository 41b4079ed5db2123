"""Which indexes may wait, and what a thousand nights of waiting cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph_ops.lance.tables import FragmentFacts, IndexFacts, TableFacts
from omnigraph_ops.models import RewritePolicy
from omnigraph_ops.stages.optimize.folds import waiting_for_rows
from omnigraph_ops.stages.optimize.tiers import RewriteRules, excluded

TIERED = RewriteRules(target_rows=10**12, policy=RewritePolicy.TIERED)
ID = IndexFacts(name="id_idx", columns=("id",), details="BTreeIndexDetails", segments=1, covered=frozenset({0}))


def table(*rows: int, indexes: Sequence[IndexFacts] = (ID,), deleted: int = 0) -> TableFacts:
    fragments = tuple(
        FragmentFacts(fragment_id=n, physical_rows=count, deleted_rows=min(deleted, count), data_bytes=count)
        for n, count in enumerate(rows)
    )
    return TableFacts(
        version=1,
        rows=sum(f.physical_rows - f.deleted_rows for f in fragments),
        fragments=fragments,
        indexes=tuple(indexes),
        compaction_tasks=(),
        auto_cleanup_keys=(),
    )


@pytest.mark.parametrize(("tail", "waits"), [(0, True), (5, True), (6, False)])
def test_an_index_waits_up_to_the_share(tail: int, waits: bool) -> None:
    assert (waiting_for_rows(table(95, tail), TIERED, 0.05) is not None) == waits


def test_what_waits_is_told_with_its_limit() -> None:
    behind = replace(ID, name="other_idx", covered=frozenset({0, 1}))
    found = waiting_for_rows(table(94, 3, 2, indexes=(ID, behind)), TIERED, 0.055)
    assert found is not None
    assert found.sentence(99) == "id_idx, other_idx behind by 5 of 99 rows, folded above 5.5 %"


@pytest.mark.parametrize(
    "facts",
    [
        table(95, 5, indexes=(replace(ID, segments=2),)),
        table(95, 5, indexes=(replace(ID, covered=frozenset()),)),
        table(95, 5, indexes=(replace(ID, covered=frozenset({7})),)),
        table(95, 5, indexes=(ID, replace(ID, name="b", covered=frozenset()))),
        table(0, 0, 5, deleted=0, indexes=(ID,)),
        table(95, indexes=(ID,)),
        table(indexes=()),
    ],
    ids=["segments", "covers_nothing", "covers_what_is_gone", "one_of_two", "all_rows_behind", "nothing", "empty"],
)
def test_some_indexes_never_wait(facts: TableFacts) -> None:
    assert waiting_for_rows(facts, TIERED, 0.05) is None


def test_deleted_rows_count_on_neither_side() -> None:
    assert waiting_for_rows(table(100, 9, deleted=5), TIERED, 0.05) is not None
    assert waiting_for_rows(table(100, 11, deleted=5), TIERED, 0.05) is None


def test_only_tiers_wait_and_only_with_a_share() -> None:
    assert waiting_for_rows(table(95, 5), replace(TIERED, policy=RewritePolicy.CONVERGE), 0.05) is None
    assert waiting_for_rows(table(95, 5), TIERED, 0.0) is None


@pytest.mark.parametrize(("cutoff", "waits"), [(None, True), (2, True), (1, False)])
def test_an_index_is_folded_where_the_cutoff_cannot_be_kept_otherwise(cutoff: int | None, waits: bool) -> None:
    assert (waiting_for_rows(table(95, 3, 2), replace(TIERED, cutoff=cutoff), 0.05) is not None) == waits


def test_a_fold_that_brings_the_cutoff_no_closer_is_not_done_for_it() -> None:
    rules = replace(TIERED, cutoff=1, target_rows=90)
    apart = replace(ID, covered=frozenset({0, 1}))
    assert waiting_for_rows(table(5, 95, 1, indexes=(apart,)), rules, 0.05) is not None


@pytest.mark.parametrize(("pairs", "waits"), [(20, True), (40, False)])
def test_what_waits_between_covered_fragments_does_not_pile_up(pairs: int, waits: bool) -> None:
    # A fragment that is rewritten for its deletions comes to lie behind what waits.
    spread = replace(ID, covered=frozenset(range(0, 2 * pairs, 2)))
    assert (waiting_for_rows(table(*[100, 1] * pairs, indexes=(spread,)), TIERED, 0.05) is not None) == waits


def test_tiers_end_where_an_index_ends() -> None:
    fragments = table(1, 1, 1, 1, 1, 1).fragments
    two = replace(ID, covered=frozenset({0, 1}))
    assert excluded(fragments, TIERED) == frozenset()
    assert excluded(fragments, TIERED, (two,)) == {0, 1}
    assert excluded(fragments, TIERED, (replace(ID, covered=frozenset({0, 1, 2})),)) == set(range(6))


@dataclass(slots=True)
class Season:
    """A table as nights go by: rows and coverage of each fragment, and what was written."""

    rules: RewriteRules
    share: float
    fragments: list[tuple[int, bool]]
    data: int = 0
    index: int = 0
    most: int = 0
    uncovered: list[float] = field(default_factory=list)

    def night(self, rows: int) -> None:
        """A load, then what an optimize does."""
        self.fragments.append((rows, False))
        total = sum(r for r, _ in self.fragments)
        if waiting_for_rows(self.facts(), self.rules, self.share) is None:
            self.fragments = [(r, True) for r, _ in self.fragments]
            self.index += total
        self._compact()
        self.most = max(self.most, len(self.fragments))
        self.uncovered.append(sum(r for r, covered in self.fragments if not covered) / total)

    def facts(self) -> TableFacts:
        covered = frozenset(n for n, (_, c) in enumerate(self.fragments) if c)
        return table(*(r for r, _ in self.fragments), indexes=(replace(ID, covered=covered),))

    def _compact(self) -> None:
        # As Lance does it: neighbours that are not excluded and covered alike become one.
        facts, after = self.facts(), list[list[tuple[int, bool]]]()
        left = excluded(facts.fragments, self.rules, facts.indexes)
        for number, fragment in enumerate(self.fragments):
            joins = number and {number - 1, number}.isdisjoint(left) and after[-1][-1][1] == fragment[1]
            after[-1].append(fragment) if joins else after.append([fragment])
        self.data += sum(r for group in after if len(group) > 1 for r, _ in group)
        # Fragments lie in the order of their ids: what was written lies last.
        after.sort(key=lambda group: len(group) > 1)
        self.fragments = [(sum(r for r, _ in group), group[0][1]) for group in after]


def season(loads: Sequence[int], share: float, start: int = 0, **rules: int) -> Season:
    found = Season(rules=replace(TIERED, **rules), share=share, fragments=[(start, True)] if start else [])
    for rows in loads:
        found.night(rows)
    return found


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("start", [0, 100_000])
def test_folding_costs_a_constant_and_tiers_stay_bounded(share: float, start: int) -> None:
    loads = [100] * 600
    found = season(loads, share, start)
    tiers = math.log(start + sum(loads), 4) + 1
    assert found.index <= sum(loads) / share
    assert max(found.uncovered) <= share
    assert found.most <= 2 * 4 * tiers
    assert found.data <= (tiers + 1) * sum(loads) + 2 * start


def test_folding_every_night_costs_in_proportion_to_the_nights() -> None:
    loads = [100] * 600
    assert season(loads, 0.0, 100_000).index > 30 * season(loads, 0.1, 100_000).index


@given(
    loads=st.lists(st.integers(1, 100_000), min_size=1, max_size=60),
    share=st.sampled_from([0.02, 0.1, 0.5]),
    fan_in=st.integers(2, 8),
)
@settings(deadline=None, max_examples=60)
def test_loads_of_any_size_stay_bounded(loads: list[int], share: float, fan_in: int) -> None:
    found = season(loads, share, fan_in=fan_in)
    assert found.index <= sum(loads) / share
    assert max(found.uncovered) <= share
    assert found.most <= 2 * fan_in * (math.log(sum(loads), fan_in) + 1)


@given(loads=st.lists(st.integers(1, 1000), min_size=1, max_size=40), cutoff=st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_the_cutoff_is_kept_while_indexes_wait(loads: list[int], cutoff: int) -> None:
    assert season(loads, 0.2, cutoff=cutoff).most <= cutoff

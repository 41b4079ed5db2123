"""Which indexes a run folds or builds, and by which release of pylance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph_ops.graph.stamp import Analyser, TextIndex, analyser_of
from omnigraph_ops.graph.stamp3 import Stamp3
from omnigraph_ops.graph.stamp6 import Stamp6
from omnigraph_ops.lance.tables import FragmentFacts, IndexFacts, TableFacts
from omnigraph_ops.lance.vector_indexes import VectorFacts
from omnigraph_ops.models.optimize import IndexBuild, IndexFold, PendingIndex, RewritePolicy
from omnigraph_ops.stages.optimize.fragments import RewriteRules, excluded
from omnigraph_ops.stages.optimize.index_plan import (
    IndexWork,
    TextState,
    foreign_note,
    foreign_texts,
    waiting_for_rows,
    with_retrains,
    with_texts,
)

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


def test_fragments_end_where_an_index_ends() -> None:
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


_COMMON = b'\n\x06simple\x12\t"English" ((\x010\x018\x01@\x01H\x03P\x03'
"""InvertedIndexDetails of the engine's default parameters, as pylance 8.0.1 writes them."""
ALL = frozenset({"8.0.1", "10.0.0"})
TEXT = IndexFacts(
    name="bio_idx", columns=("bio",), details="InvertedIndexDetails", segments=1, covered=frozenset({0, 1})
)
KEY = replace(TEXT, name="id_idx", columns=("id",), details="BTreeIndexDetails")
FACTS = TableFacts(
    version=3,
    rows=20,
    fragments=tuple(FragmentFacts(fragment_id=n, physical_rows=10, deleted_rows=0, data_bytes=9) for n in range(2)),
    indexes=(TEXT, KEY),
    compaction_tasks=(),
    auto_cleanup_keys=(),
)
FOLD = IndexFold(name="bio_idx", columns=("bio",), segments=1, uncovered_fragments=1)
KEY_FOLD = replace(FOLD, name="id_idx", columns=("id",))
BUILD = IndexBuild(column="bio", index_type="INVERTED", name="bio_idx")
NOTHING = IndexWork(folds=(), builds=(), pending=())
BEHIND = replace(NOTHING, folds=(FOLD, KEY_FOLD))


def state(stamp: int | None, *analysers: Analyser, certified: bool = False, **fields: object) -> TextState:
    writer = {3: Stamp3.text_writer, 6: Stamp6.text_writer, None: None}[stamp]
    index = TextIndex(analysers=frozenset(analysers), certified=certified)
    return replace(TextState(writer=writer, indexes={"bio_idx": index}, installed=ALL), **fields)


@pytest.mark.parametrize(
    ("details", "analyser"),
    [
        (b"", Analyser.LANCE_8),
        (_COMMON, Analyser.LANCE_8),
        (_COMMON + b"`\x80\x01", Analyser.LANCE_10),
        (_COMMON + b"`\x80\x01x\x02", Analyser.LANCE_11),
    ],
    ids=["no details", "8.0.1", "9.0.0 and 10.0.0", "11.0.0 and 13.0.0"],
)
def test_the_details_of_a_segment_tell_its_analyser(details: bytes, analyser: Analyser) -> None:
    assert analyser_of(details) is analyser


@pytest.mark.parametrize(
    ("stamp", "analyser", "release", "rebuild", "foreign"),
    [
        (3, Analyser.LANCE_8, "8.0.1", True, False),
        (3, Analyser.LANCE_10, "8.0.1", True, True),
        (3, Analyser.LANCE_11, "8.0.1", True, True),
        (6, Analyser.LANCE_8, "10.0.0", False, False),
        (6, Analyser.LANCE_10, "10.0.0", False, False),
        (6, Analyser.LANCE_11, "10.0.0", True, True),
        (None, Analyser.LANCE_8, "8.0.1", False, False),
        (None, Analyser.LANCE_10, "10.0.0", False, False),
        (None, Analyser.LANCE_11, None, False, False),
    ],
)
def test_a_lagging_index_is_written_by_the_release_of_its_readers(
    stamp: int | None, analyser: Analyser, release: str | None, rebuild: bool, foreign: bool
) -> None:
    seen = state(stamp, analyser)
    text, key = with_texts(BEHIND, FACTS, seen).folds
    assert (text.release, text.rebuild, bool(text.why)) == (release, rebuild, foreign)
    assert key == KEY_FOLD
    assert foreign_texts(FACTS, seen) == (("bio_idx",) if foreign else ())


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_covered_index_is_left_alone_unless_its_words_are_foreign(stamp: int) -> None:
    own = {3: Analyser.LANCE_8, 6: Analyser.LANCE_10}[stamp]
    assert with_texts(NOTHING, FACTS, state(stamp, own)) == NOTHING
    (fold,) = with_texts(NOTHING, FACTS, state(stamp, own, Analyser.LANCE_11)).folds
    assert (fold.name, fold.rebuild, fold.why) == ("bio_idx", True, "bio_idx has words of Lance 11 or newer")
    assert "not found until optimize builds it anew" in str(foreign_note(FACTS, state(stamp, Analyser.LANCE_11)))
    assert foreign_note(FACTS, state(stamp, own)) is None


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_missing_index_is_built_by_that_release_or_waits(stamp: int) -> None:
    wanted = replace(NOTHING, builds=(replace(BUILD, column="id", index_type="BTREE", name="id_idx"), BUILD))
    release = {3: "8.0.1", 6: "10.0.0"}[stamp]
    done = with_texts(wanted, FACTS, state(stamp, Analyser.LANCE_8))
    assert [b.release for b in done.builds] == [None, release]
    waits = with_texts(wanted, FACTS, state(stamp, Analyser.LANCE_8, installed=frozenset()))
    assert ([b.column for b in waits.builds], [p.column for p in waits.pending]) == (["id"], ["bio"])


def test_without_the_installation_the_reason_names_the_command_and_on_stamp_3_the_cure() -> None:
    reasons = {}
    for stamp in (3, 6):
        work = with_texts(BEHIND, FACTS, state(stamp, Analyser.LANCE_8, installed=frozenset({"elsewhere"})))
        assert work.folds == (KEY_FOLD,)
        (pending,) = work.pending
        reasons[stamp] = pending.reason
    assert all("`omnigraph-ops install-text-indexer`" in reason for reason in reasons.values())
    assert ["must have the same length" in reasons[stamp] for stamp in (3, 6)] == [True, False]


def test_an_engine_that_certifies_keeps_its_indexes() -> None:
    for seen in (
        state(6, Analyser.LANCE_11, certified=True),
        state(6, Analyser.LANCE_11, certified_by="nodes/x was written by lance 11.0.0"),
        state(None, Analyser.LANCE_11, certified=True),
    ):
        work = with_texts(BEHIND, FACTS, seen)
        assert (work.folds, [p.column for p in work.pending]) == ((KEY_FOLD,), ["bio"])
        assert "omnigraph rebuild-full-text-indexes" in work.pending[0].reason
        assert foreign_texts(FACTS, seen) == ()
        assert with_texts(NOTHING, FACTS, seen) == NOTHING


def test_plain_lance_with_words_of_several_releases_is_left_to_its_owner() -> None:
    work = with_texts(BEHIND, FACTS, state(None, Analyser.LANCE_10, Analyser.LANCE_11))
    assert (work.folds, len(work.pending)) == ((KEY_FOLD,), 1)


def test_tables_without_text_or_rows_are_left_as_planned() -> None:
    kept = replace(BEHIND, pending=(PendingIndex(column="v", reason="no vectors"),))
    assert with_texts(kept, FACTS, None) is kept
    assert with_texts(kept, replace(FACTS, rows=0), state(3, Analyser.LANCE_11)) is kept


VECTOR = VectorFacts(
    name="vec_idx",
    column="vec",
    kind="IVF_FLAT",
    metric="l2",
    segments=1,
    sizes=(20_000,),
    uncovered_rows=0,
    size_bytes=1,
)


def test_an_index_with_wrong_partitions_is_trained_though_it_covers_every_row() -> None:
    (fold,) = with_retrains((), (VECTOR,))
    assert (fold.name, fold.columns, fold.retrain, fold.uncovered_fragments) == ("vec_idx", ("vec",), True, 0)
    assert "1 partition for 20,000 rows" in fold.why
    assert "of several partitions a query with `limit 1` reads one, and may miss" in fold.why


def test_an_index_that_is_folded_anyway_is_trained_in_its_place() -> None:
    folds = (
        IndexFold(name="id_idx", columns=("id",), segments=1, uncovered_fragments=2),
        IndexFold(name="vec_idx", columns=("vec",), segments=3, uncovered_fragments=2),
    )
    found = with_retrains(folds, (VECTOR,))
    assert [(f.name, f.retrain, f.segments) for f in found] == [("id_idx", False, 1), ("vec_idx", True, 3)]


def test_an_index_whose_partitions_fit_is_left_alone() -> None:
    assert with_retrains((), (replace(VECTOR, sizes=(4_000, 4_000, 4_000)),)) == ()

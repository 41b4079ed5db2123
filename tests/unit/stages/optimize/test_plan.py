"""The optimize decision for one table, from facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.graph.schema import Property, TableSpec
from omnigraph_ops.lance.tables import FragmentFacts, IndexFacts, TableFacts
from omnigraph_ops.models.optimize import Executor, OptimizeDecision, PendingIndex, RewritePolicy, SkipReason, TablePlan
from omnigraph_ops.stages.optimize.fragments import Thresholds
from omnigraph_ops.stages.optimize.plan import NO_VECTORS, OptimizePolicy, TableObservation, plan_table

POLICY = OptimizePolicy(target_rows=1000, spark_threshold_bytes=10_000, compacts_blobs=True)
ID = IndexFacts(name="id_idx", columns=("id",), details="BTreeIndexDetails", segments=1, covered=frozenset({0, 1}))


def prop(name: str, scalar: str, *, is_list: bool = False, is_enum: bool = False) -> Property:
    return Property(name=name, property_id=name, scalar=scalar, is_list=is_list, is_enum=is_enum)


def spec(*properties: Property, key: str = "node:Doc", indexed: tuple[str, ...] = ()) -> TableSpec:
    return TableSpec(table_key=key, path=None, properties=properties, indexed=indexed)


def fragments(*rows: int, deleted: int = 0, size: int = 100) -> tuple[FragmentFacts, ...]:
    return tuple(
        FragmentFacts(fragment_id=n, physical_rows=count, deleted_rows=deleted, data_bytes=size)
        for n, count in enumerate(rows)
    )


def facts(
    parts: tuple[FragmentFacts, ...],
    *,
    indexes: tuple[IndexFacts, ...] = (ID,),
    tasks: tuple[tuple[int, ...], ...] = (),
    auto_cleanup: tuple[str, ...] = (),
) -> TableFacts:
    return TableFacts(
        version=7,
        rows=sum(p.physical_rows - p.deleted_rows for p in parts),
        fragments=parts,
        indexes=indexes,
        compaction_tasks=tasks,
        auto_cleanup_keys=auto_cleanup,
    )


def plan(found: TableFacts | None, declared: TableSpec | None = None, *, head: int = 7, **seen: object) -> TablePlan:
    observation = TableObservation(
        spec=declared or spec(), pinned_version=7, lance_head_version=head, facts=found, **seen
    )
    return plan_table(observation, POLICY)


def test_a_covered_single_fragment_is_left_alone() -> None:
    decided = plan(facts(fragments(10), indexes=(replace(ID, covered=frozenset({0})),)))
    assert (decided.decision, decided.reason, decided.rewrite_bytes) == (OptimizeDecision.NO_OP, "nothing to do", 0)
    assert (decided.folds, decided.builds, decided.compaction_tasks) == ((), (), 0)


def test_an_empty_table_needs_nothing() -> None:
    declared = spec(prop("title", "String"), indexed=("title",))
    decided = plan(facts((), indexes=()), declared)
    assert (decided.decision, decided.builds, decided.pending_indexes) == (OptimizeDecision.NO_OP, (), ())


def test_an_uncovered_fragment_folds_every_index_that_misses_it() -> None:
    behind = replace(ID, name="slug_idx", columns=("slug",), covered=frozenset({0}))
    decided = plan(facts(fragments(10, 10), indexes=(behind, ID)))
    assert [(f.name, f.uncovered_fragments, f.segments) for f in decided.folds] == [("slug_idx", 1, 1)]


def test_coverage_of_a_removed_fragment_does_not_count_as_work() -> None:
    assert plan(facts(fragments(10), indexes=(replace(ID, covered=frozenset({0, 5})),))).folds == ()


def test_several_segments_are_merged_even_when_they_cover_all() -> None:
    decided = plan(facts(fragments(2000), indexes=(replace(ID, segments=3),)))
    assert (decided.decision, decided.folds[0].segments) == (OptimizeDecision.OPTIMIZE, 3)


def test_folds_come_by_name() -> None:
    names = ("z_idx", "a_idx")
    indexes = tuple(replace(ID, name=n, covered=frozenset()) for n in names)
    assert [f.name for f in plan(facts(fragments(1), indexes=indexes)).folds] == ["a_idx", "z_idx"]


def test_every_declared_index_is_built_with_its_type() -> None:
    declared = spec(
        prop("slug", "String"),
        prop("tier", "String", is_enum=True),
        prop("age", "I32"),
        prop("tags", "String", is_list=True),
        prop("embedding", "Vector"),
        prop("image", "Blob"),
        indexed=("slug", "tier", "age", "tags", "embedding", "image", "slug"),
    )
    decided = plan(facts(fragments(10), indexes=()), declared)
    assert [(b.name, b.index_type) for b in decided.builds] == [
        ("id_idx", "BTREE"),
        ("slug_idx", "INVERTED"),
        ("tier_idx", "BTREE"),
        ("age_idx", "BTREE"),
        ("embedding_idx", "IVF_FLAT"),
    ]


def test_edges_get_their_three_indexes_and_no_declared_one() -> None:
    declared = spec(prop("since", "Date"), key="edge:Knows", indexed=("since",))
    assert [b.name for b in plan(facts(fragments(1), indexes=()), declared).builds] == ["id_idx", "src_idx", "dst_idx"]


def test_an_index_under_another_name_still_serves_but_one_of_another_type_does_not() -> None:
    named = plan(facts(fragments(1, 1), indexes=(replace(ID, name="mine"),)))
    typed = plan(facts(fragments(1, 1), indexes=(replace(ID, details="BitmapIndexDetails"),)))
    assert (named.builds, [b.name for b in typed.builds]) == ((), ["id_idx"])


def test_an_index_whose_name_another_one_takes_is_not_folded_before() -> None:
    older = IndexFacts(
        name="tier_idx", columns=("tier",), details="InvertedIndexDetails", segments=1, covered=frozenset({0})
    )
    decided = plan(
        facts(fragments(10, 10), indexes=(ID, older)), spec(prop("tier", "String", is_enum=True), indexed=("tier",))
    )
    assert [(b.name, b.index_type) for b in decided.builds] == [("tier_idx", "BTREE")]
    assert decided.folds == ()


def test_a_vector_index_waits_for_the_first_vector() -> None:
    declared = spec(prop("embedding", "Vector"), indexed=("embedding",))
    decided = plan(facts(fragments(1, 1)), declared, columns_without_values=frozenset({"embedding"}))
    assert decided.pending_indexes == (PendingIndex(column="embedding", reason=NO_VECTORS),)
    assert (decided.builds, decided.decision) == ((), OptimizeDecision.NO_OP)


def test_without_index_work_lances_own_tasks_decide() -> None:
    decided = plan(facts(fragments(1, 1, 1), indexes=(replace(ID, covered=frozenset({0, 1, 2})),), tasks=((0, 2),)))
    assert (decided.rewrite_bytes, decided.fragments_after, decided.compaction_tasks) == (200, 2, 1)


def test_with_index_work_groups_are_what_the_fold_makes_possible() -> None:
    full = (*fragments(10, 10), FragmentFacts(fragment_id=2, physical_rows=1000, deleted_rows=0, data_bytes=7))
    tail = FragmentFacts(fragment_id=3, physical_rows=10, deleted_rows=0, data_bytes=3)
    decided = plan(facts((*full, tail), indexes=(replace(ID, covered=frozenset()),)))
    assert (decided.compaction_tasks, decided.rewrite_bytes, decided.fragments_after) == (1, 200, 3)


@pytest.mark.parametrize(("deleted", "groups"), [(10, 0), (11, 1)])
def test_a_full_fragment_is_rewritten_above_a_tenth_deleted(deleted: int, groups: int) -> None:
    decided = plan(facts(fragments(100, deleted=deleted), indexes=(replace(ID, covered=frozenset()),)))
    assert decided.compaction_tasks == groups


@pytest.mark.parametrize(
    ("size", "executor"), [(4999, Executor.IN_PROCESS), (5000, Executor.SPARK), (5001, Executor.SPARK)]
)
def test_spark_takes_rewrites_from_its_threshold_on(size: int, executor: Executor) -> None:
    assert plan(facts(fragments(1, 1, size=size), tasks=((0, 1),))).executor is executor


def test_index_work_alone_never_goes_to_spark() -> None:
    observation = TableObservation(
        spec=spec(),
        pinned_version=7,
        lance_head_version=7,
        facts=facts(fragments(2000), indexes=(replace(ID, segments=2),)),
    )
    decided = plan_table(observation, replace(POLICY, spark_threshold_bytes=0))
    assert (decided.decision, decided.executor) == (OptimizeDecision.OPTIMIZE, Executor.IN_PROCESS)


def test_drift_skips_the_table_and_says_both_versions() -> None:
    decided = plan(None, head=9)
    assert (decided.decision, decided.skipped) == (OptimizeDecision.SKIPPED, SkipReason.DRIFT)
    assert (decided.read_version, decided.lance_head_version) == (7, 9)
    assert "omnigraph-ops check" in decided.reason


@pytest.mark.parametrize("head", [7, 9])
def test_blobs_are_skipped_where_the_engine_cannot_compact_them(head: int) -> None:
    observation = TableObservation(
        spec=spec(prop("image", "Blob")), pinned_version=7, lance_head_version=head, facts=None
    )
    decided = plan_table(observation, replace(POLICY, compacts_blobs=False))
    assert decided.skipped is SkipReason.BLOBS


def test_blobs_are_rewritten_where_the_engine_does_it_too() -> None:
    decided = plan(facts(fragments(1, 1), tasks=((0, 1),)), spec(prop("image", "Blob")))
    assert decided.decision is OptimizeDecision.OPTIMIZE


def test_auto_cleanup_is_stripped_with_other_work_and_never_alone() -> None:
    keys = ("lance.auto_cleanup.interval",)
    assert plan(facts(fragments(1, 1), tasks=((0, 1),), auto_cleanup=keys)).strip_auto_cleanup
    alone = plan(facts(fragments(1, 1), auto_cleanup=keys))
    assert (alone.decision, alone.strip_auto_cleanup) == (OptimizeDecision.NO_OP, False)


TIERED = replace(POLICY, policy=RewritePolicy.TIERED, unindexed_share=0.1)


def tiered(found: TableFacts, *, key: str = "node:Doc", **policy: object) -> TablePlan:
    observation = TableObservation(spec=spec(key=key), pinned_version=7, lance_head_version=7, facts=found)
    return plan_table(observation, replace(TIERED, **policy))


def behind_by(rows: int) -> TableFacts:
    indexes = [replace(ID, name=f"{c}_idx", columns=(c,), covered=frozenset({0})) for c in ("dst", "id", "src")]
    return facts(fragments(100 - rows, rows), indexes=tuple(indexes))


def test_a_fold_below_the_share_is_nothing_to_do_yet() -> None:
    waits, due = tiered(behind_by(10)), tiered(behind_by(11))
    assert (waits.decision, waits.folds, waits.index_bytes) == (OptimizeDecision.NO_OP, (), 0)
    assert waits.reason == "nothing to do; dst_idx, id_idx, src_idx behind by 10 of 100 rows, folded above 10 %"
    assert (due.decision, len(due.folds)) == (OptimizeDecision.OPTIMIZE, 3)


def test_a_rewrite_says_what_waits_and_counts_no_benefit_for_it() -> None:
    waits = tiered(replace(behind_by(10), compaction_tasks=((0, 1),)))
    covered = replace(behind_by(10), compaction_tasks=((0, 1),), indexes=(replace(ID, covered=frozenset({0, 1})),))
    assert (waits.decision, waits.folds) == (OptimizeDecision.OPTIMIZE, ())
    assert waits.reason.startswith("rewrite 2 fragments; dst_idx, id_idx, src_idx behind by 10")
    assert waits.benefit == tiered(covered).benefit


def test_no_index_of_an_edge_waits_and_none_beside_one_that_is_built() -> None:
    assert len(tiered(behind_by(1), key="edge:Knows").folds) == 3
    lone = replace(ID, name="other", columns=("other",), covered=frozenset({0}))
    decided = tiered(facts(fragments(99, 1), indexes=(lone,)))
    assert ([f.name for f in decided.folds], [b.name for b in decided.builds]) == (["other"], ["id_idx"])


@pytest.mark.parametrize("details", ["InvertedIndexDetails", "VectorIndexDetails"])
def test_no_index_beside_one_that_is_searched_waits_where_searches_need_all_rows_in_it(details: str) -> None:
    found = behind_by(1)
    searched = replace(found, indexes=(*found.indexes, replace(found.indexes[0], name="body_idx", details=details)))
    assert len(tiered(searched).folds) == 0
    assert len(tiered(searched, searches_uncovered=False).folds) == 4
    assert len(tiered(found, searches_uncovered=False).folds) == 0


@pytest.mark.parametrize("policy", [{"unindexed_share": 0.0}, {"policy": RewritePolicy.CONVERGE}, {"cutoff": 1}])
def test_nothing_waits_without_tiers_or_a_share_or_below_the_cutoff(policy: dict[str, object]) -> None:
    assert len(tiered(behind_by(1), **policy).folds) == 3


def test_auto_is_not_moved_by_rows_that_wait() -> None:
    found = replace(behind_by(10), compaction_tasks=((0, 1),))
    thresholds = Thresholds(fragments=5, unindexed_share=0.05)
    decided = tiered(found, auto=True, thresholds=thresholds)
    assert decided.skipped is SkipReason.BELOW_THRESHOLDS
    assert "10% unindexed" in decided.reason
    assert tiered(found, auto=True, thresholds=thresholds, unindexed_share=0.0).decision is OptimizeDecision.OPTIMIZE


def judged(found: TableFacts, **limits: object) -> TablePlan:
    thresholds = Thresholds(fragments=2, unindexed_share=0.2, deleted_share=0.2, **limits)
    observation = TableObservation(spec=spec(), pinned_version=7, lance_head_version=7, facts=found)
    return plan_table(observation, replace(POLICY, auto=True, thresholds=thresholds))


@pytest.mark.parametrize(
    ("found", "decision"),
    [
        (facts(fragments(10, 10), tasks=((0, 1),)), OptimizeDecision.DEFERRED),
        (facts(fragments(10, 10, 10), indexes=(replace(ID, covered=frozenset({0, 1, 2})),)), OptimizeDecision.NO_OP),
        (facts(fragments(10, 2, 2), indexes=(replace(ID, covered=frozenset({0, 1})),)), OptimizeDecision.OPTIMIZE),
        (facts(fragments(10, 2), indexes=(replace(ID, covered=frozenset({0})),)), OptimizeDecision.DEFERRED),
        (facts(fragments(10, 3), indexes=(replace(ID, covered=frozenset({0})),)), OptimizeDecision.OPTIMIZE),
        (facts(fragments(10, 10, deleted=2), tasks=((0, 1),)), OptimizeDecision.DEFERRED),
        (facts(fragments(10, 10, deleted=3), tasks=((0, 1),)), OptimizeDecision.OPTIMIZE),
        (facts(fragments(10), indexes=()), OptimizeDecision.OPTIMIZE),
    ],
)
def test_auto_takes_tables_past_any_threshold(found: TableFacts, decision: OptimizeDecision) -> None:
    decided = judged(found)
    assert decided.decision is decision
    assert (decided.skipped is SkipReason.BELOW_THRESHOLDS) == (decision is OptimizeDecision.DEFERRED)


def test_auto_takes_what_readers_cannot_read() -> None:
    (part,) = fragments(10)
    covered = (replace(ID, covered=frozenset({0})),)
    decided = judged(facts((replace(part, divided_into=4),), indexes=covered, tasks=((0,),)))
    assert decided.decision is OptimizeDecision.OPTIMIZE
    assert (decided.fragments, decided.fragments_after) == (1, 4)
    assert decided.reason == "rewrite 1 fragment; divide 1 fragment with more text than readers can read"


def test_auto_never_takes_a_table_that_is_switched_off() -> None:
    decided = judged(facts(fragments(10), indexes=()), off=("node:Doc",))
    assert (decided.decision, decided.skipped) == (OptimizeDecision.DEFERRED, SkipReason.AUTO_OFF)
    assert "would build id_idx" in decided.reason


def test_a_plan_knows_its_benefit_and_its_whole_cost() -> None:
    behind = replace(ID, covered=frozenset({0}), size_bytes=40)
    decided = plan(facts(fragments(10, 10), indexes=(behind,)))
    assert (decided.rewrite_bytes, decided.index_bytes, decided.cost_bytes) == (200, 80, 280)
    assert decided.benefit > 0
    assert plan(facts(fragments(10), indexes=(replace(ID, covered=frozenset({0})),))).benefit == 0


@pytest.mark.parametrize(
    ("rows", "covered", "deleted", "size"),
    [
        ((10, 30), {0}, 0, 160),
        ((10, 30), {0, 1}, 0, 40),
        ((10, 10, 10), {0, 1}, 0, 60),
        ((20, 20), {0}, 10, 80),
        ((10, 10), {7}, 0, 40),
    ],
)
def test_a_fold_writes_the_index_grown_by_its_rows(
    rows: tuple[int, ...], covered: set[int], deleted: int, size: int
) -> None:
    behind = replace(ID, covered=frozenset(covered), segments=2, size_bytes=40)
    assert plan(facts(fragments(*rows, deleted=deleted), indexes=(behind,))).index_bytes == size


def test_a_first_build_writes_its_column_and_where_its_rows_are() -> None:
    declared = spec(prop("title", "String"), indexed=("title",))
    covered = replace(ID, covered=frozenset({0}))
    small, large = (
        plan(facts(fragments(1000), indexes=(covered,)), declared, column_bytes={"title": size}).index_bytes
        for size in (0, 5000)
    )
    assert (small > 1000, large - small) == (True, 5000)


@given(
    rows=st.lists(st.integers(1, 1500), max_size=12),
    covered=st.sets(st.integers(0, 12)),
    deleted=st.integers(0, 1),
)
def test_a_plan_never_promises_more_than_there_is(rows: list[int], covered: set[int], deleted: int) -> None:
    parts = fragments(*rows, deleted=deleted)
    decided = plan(facts(parts, indexes=(replace(ID, covered=frozenset(covered)),)))
    assert 0 <= decided.fragments_after <= decided.fragments == len(rows)
    assert 0 <= decided.rewrite_bytes <= decided.data_bytes
    assert (decided.decision is OptimizeDecision.NO_OP) == (not decided.folds and not decided.builds)

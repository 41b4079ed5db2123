"""Which fragments a rewrite leaves alone, how big its tasks get, and how much of a table wants maintenance. Pure.

Tiered: fragments fall into size classes (tiers), each `fan_in` times the one below. Fragments that lie side
by side in one tier are merged once there are `fan_in` of them. Then every row moves up a tier when it is
rewritten, so it is rewritten O(log n) times, and fewer than `fan_in` fragments stay per tier.

Lance never merges fragments of which an index covers some and not others. Where indexes are behind, each side
has tiers of its own; a plan across that line would rewrite what lies on one side of it for nothing.

How big compaction tasks get under a ceiling on bytes per second. The throttle admits whole tasks, and a task that runs
reads as fast as it can: what it reads is the burst. Booking it in pieces would keep the average and bound nothing, so
tasks are split. The rule is Lance's for rows, in bytes: a fragment of more than half of the bound is full and stays;
smaller neighbours become one task up to the bound. What two neighbouring tasks write is together more than the bound,
so the next run has nothing to do. A table keeps more fragments than without a ceiling: merging further would take a
larger task, whoever plans it.

Of the health of a table the shares that a run improves are here, and from which of them on `--auto` takes a table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.graph.schema import TableSpec
from omnigraph_ops.lance.tables import DELETED_SHARE, FragmentFacts, IndexFacts, TableFacts
from omnigraph_ops.models.health import HealthPart
from omnigraph_ops.models.optimize import IndexBuild, OptimizeDecision, RewritePolicy, SkipReason, TablePlan
from omnigraph_ops.quantities import count


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRules:
    """What a rewrite wants of a table's fragments."""

    target_rows: int
    policy: RewritePolicy = RewritePolicy.CONVERGE
    fan_in: int = 4
    cutoff: int | None = None
    """Converge: rewrite only when more fragments than this are small. Tiered: leave at most so many."""
    deleted_share: float = DELETED_SHARE
    """A fragment of which more than this is deleted is rewritten for its own sake."""


def excluded(
    fragments: Sequence[FragmentFacts], rules: RewriteRules, indexes: Sequence[IndexFacts] = ()
) -> frozenset[int]:
    """The fragments that stay as they are under these rules, by id. Pure.

    Never one of which too much is deleted, or that readers cannot read: those are rewritten whatever the policy.

    Args:
        indexes: what is covered when the rewrite is planned; none when every index is folded before.
    """
    if rules.policy is RewritePolicy.TIERED:
        runs = _runs(fragments, rules, indexes)
        moving = {f.fragment_id for run in runs for segment in run if len(segment) > 1 for f in segment}
        left = [f for f in fragments if f.fragment_id not in moving]
    elif rules.cutoff is not None and small_fragments(fragments, rules.target_rows) <= rules.cutoff:
        left = list(fragments)
    else:
        left = []
    return frozenset(f.fragment_id for f in left if not wants_rewrite(f, rules.deleted_share))


def kept_apart(fragments: Sequence[FragmentFacts], rules: RewriteRules, indexes: Sequence[IndexFacts]) -> bool:
    """Whether too many fragments stay because the indexes cover some of them and not others. Pure.

    Too many are more than the cutoff, or than the tiers of two tables of that size would leave.
    """
    most = 2 * rules.fan_in * (_tier(_rows(fragments), rules.fan_in) + 1)
    if rules.cutoff is not None:
        most = min(most, rules.cutoff)
    apart = _left_small(fragments, rules, indexes)
    return apart > most and apart > _left_small(fragments, rules, ())


def _left_small(fragments: Sequence[FragmentFacts], rules: RewriteRules, indexes: Sequence[IndexFacts]) -> int:
    return sum(map(len, _runs(fragments, rules, indexes)))


def small_fragments(fragments: Sequence[FragmentFacts], target_rows: int) -> int:
    """How many are below the target size. Pure."""
    return sum(f.physical_rows < target_rows for f in fragments)


def wants_rewrite(fragment: FragmentFacts, deleted_share: float = DELETED_SHARE) -> bool:
    """Whether it is rewritten for its own sake. Pure."""
    return fragment.divided_into > 0 or fragment.deleted_rows > deleted_share * max(fragment.physical_rows, 1)


def uncovered_rows(fragments: Sequence[FragmentFacts], index: IndexFacts) -> int:
    """Rows that a query through the index scans. Pure."""
    return sum(f.live_rows for f in fragments if f.fragment_id not in index.covered)


_Segment = tuple[FragmentFacts, ...]
"""Neighbours that become one fragment."""


def _runs(
    fragments: Sequence[FragmentFacts], rules: RewriteRules, indexes: Sequence[IndexFacts]
) -> list[list[_Segment]]:
    """What tonight leaves of the small fragments, run by run. Pure."""
    small = small_runs(fragments, rules, indexes)
    runs = [_merged_tiers([(fragment,) for fragment in run], rules.fan_in) for run in small]
    if rules.cutoff is not None:
        _bound(runs, rules.cutoff)
    return runs


def small_runs(
    fragments: Sequence[FragmentFacts],
    rules: RewriteRules,
    indexes: Sequence[IndexFacts],
    left: Collection[int] = (),
) -> list[list[FragmentFacts]]:
    """Neighbours that may be merged; one that is large, left alone or under other indexes ends a run. Pure."""
    runs: list[list[FragmentFacts]] = [[]]
    before: list[bool] = []
    for fragment in fragments:
        covered = [fragment.fragment_id in index.covered for index in indexes]
        small = fragment.physical_rows < rules.target_rows or wants_rewrite(fragment, rules.deleted_share)
        goes = small and fragment.fragment_id not in left
        if not goes or covered != before:
            runs.append([])
        if goes:
            runs[-1].append(fragment)
        before = covered
    return [run for run in runs if run]


def _merged_tiers(run: list[_Segment], fan_in: int) -> list[_Segment]:
    """Merge the largest full tier with all behind it, and the tiers above that this fills, in one go. Pure.

    Lance puts what it writes last. What is left behind a merge would come to lie before a larger fragment, and
    then count as large itself; merged with the rest it moves up tiers, as every rewritten row must.
    """
    while True:
        groups = _tier_groups(run, fan_in)
        full = next((n for n, group in enumerate(groups) if len(group) >= fan_in), None)
        if full is None:
            return run
        at = sum(map(len, groups[:full]))
        run = [*run[:at], _joined(run[at:])]


def _tier_groups(run: Sequence[_Segment], fan_in: int) -> list[list[_Segment]]:
    """Neighbours of one tier, oldest first. A small one with a larger one after it counts as large. Pure.

    Without that, small fragments between large ones would never find enough neighbours of their size.
    """
    groups: list[list[_Segment]] = []
    highest = -1
    for segment in reversed(run):
        own = _tier(_rows(segment), fan_in)
        if own > highest:
            highest = own
            groups.append([])
        groups[-1].append(segment)
    return [group[::-1] for group in reversed(groups)]


def _tier(rows: int, fan_in: int) -> int:
    tier = 0
    while rows >= fan_in:
        rows //= fan_in
        tier += 1
    return tier


def _bound(runs: list[list[_Segment]], cutoff: int) -> None:
    """Merge the cheapest neighbours until at most `cutoff` segments are left, or no neighbours are. Changes `runs`."""
    while sum(map(len, runs)) > cutoff:
        pairs = [
            (_rows(run[at]) + _rows(run[at + 1]), n, at) for n, run in enumerate(runs) for at in range(len(run) - 1)
        ]
        if not pairs:
            return
        _, n, at = min(pairs)
        runs[n][at : at + 2] = [_joined(runs[n][at : at + 2])]


def _rows(segment: Sequence[FragmentFacts]) -> int:
    return sum(f.live_rows for f in segment)


def _joined(group: Sequence[_Segment]) -> _Segment:
    return tuple(f for segment in group for f in segment)


def is_full(fragment: FragmentFacts, most_bytes: int | None, deleted_share: float = DELETED_SHARE) -> bool:
    """Whether the bound, if there is one, leaves no room to merge it with its like. Pure."""
    return (
        most_bytes is not None and 2 * fragment.data_bytes > most_bytes and not wants_rewrite(fragment, deleted_share)
    )


def counted(fragments: Sequence[FragmentFacts], most_bytes: int | None, target_rows: int) -> list[FragmentFacts]:
    """The fragments as a policy counts them: one that is full has reached the target size. Pure."""
    return [
        replace(f, physical_rows=max(f.physical_rows, target_rows)) if is_full(f, most_bytes) else f for f in fragments
    ]


def split(
    group: Sequence[FragmentFacts], most_bytes: int, deleted_share: float = DELETED_SHARE
) -> tuple[tuple[FragmentFacts, ...], ...]:
    """The neighbours of a task as tasks within the bound; what would not get fewer or lose deletions drops out. Pure.

    A fragment cannot be divided: one of which too much is deleted is rewritten whatever its size.
    """
    runs: list[list[FragmentFacts]] = []
    size = 0
    for fragment in group:
        if not runs or size + fragment.data_bytes > most_bytes:
            runs.append([])
            size = 0
        runs[-1].append(fragment)
        size += fragment.data_bytes
    _share_the_last(runs, most_bytes)
    return tuple(tuple(run) for run in runs if len(run) > 1 or wants_rewrite(run[0], deleted_share))


def _share_the_last(runs: list[list[FragmentFacts]], most_bytes: int) -> None:
    """Give one that is left over at the end a neighbour, else outputs would come between it and later loads."""
    if len(runs) < 2 or len(runs[-1]) > 1 or len(runs[-2]) < 3:
        return
    if runs[-2][-1].data_bytes + runs[-1][0].data_bytes <= most_bytes:
        runs[-1].insert(0, runs[-2].pop())


FRAGMENTS, DELETIONS, UNINDEXED = 35, 20, 25
"""The most points that each part takes."""
_WORST_DELETED_SHARE = 0.5
"""From this share on, deletions take all their points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Between 0 and 1, but for the count of small fragments."""

    small_fragments: int
    small_share: float
    """Bytes below the target size; nothing when there is only one such fragment: nothing can be merged."""
    deleted_share: float
    unindexed_share: float
    worst_index: str | None


def shares_of(
    facts: TableFacts,
    spec: TableSpec,
    target_rows: int,
    pending: Sequence[str] = (),
    task_bytes: int | None = None,
) -> Shares:
    """The shares of one table; declared indexes on the columns of `pending` cannot be built yet. Pure.

    Fragments that a bound on the bytes of a task lets nobody merge are not small.
    """
    fragments = counted(facts.fragments, task_bytes, target_rows)
    small = small_fragments(fragments, target_rows)
    in_small = sum(f.data_bytes for f in fragments if f.physical_rows < target_rows)
    rows = sum(f.physical_rows for f in facts.fragments)
    uncovered, worst = _worst_index(facts, spec, frozenset(pending))
    return Shares(
        small_fragments=small,
        small_share=_share(in_small, sum(f.data_bytes for f in facts.fragments)) if small > 1 else 0.0,
        deleted_share=_share(sum(f.deleted_rows for f in facts.fragments), rows),
        unindexed_share=uncovered,
        worst_index=worst,
    )


def put_right(shares: Shares, *, folding: bool) -> Shares:
    """The shares that a run improves; without index work, unindexed rows do not count. Pure."""
    return shares if folding else replace(shares, unindexed_share=0.0, worst_index=None)


def parts_of(shares: Shares, cutoff: int) -> tuple[HealthPart, ...]:
    """The points that fragments, deletions and stale indexes take off. Pure."""
    crowding = min(1.0, max(0, shares.small_fragments - 1) / max(1, cutoff - 1))
    return (
        part("fragments", shares.small_share * crowding, FRAGMENTS),
        part("deletions", min(1.0, shares.deleted_share / _WORST_DELETED_SHARE), DELETIONS),
        part("unindexed", shares.unindexed_share, UNINDEXED),
    )


def part(name: str, badness: float, most: int) -> HealthPart:
    """One part from a badness between 0 and 1. Pure."""
    return HealthPart(name=name, points=round(badness * most, 2), most=most)


def missing_indexes(spec: TableSpec, facts: TableFacts) -> tuple[IndexBuild, ...]:
    """Declared indexes that are not there; none of an empty table, as in the engine. Pure."""
    declared = spec.declared_indexes() if facts.rows else ()
    return tuple(b for b in declared if not any(index.serves(b.column, b.index_type) for index in facts.indexes))


def _worst_index(facts: TableFacts, spec: TableSpec, pending: frozenset[str]) -> tuple[float, str | None]:
    rows = sum(f.live_rows for f in facts.fragments)
    if not rows:
        return 0.0, None
    missing = [b.name for b in missing_indexes(spec, facts) if b.column not in pending]
    if missing:
        return 1.0, missing[0]
    behind = [(_share(uncovered_rows(facts.fragments, i), rows), i.name) for i in facts.indexes]
    return max(behind, key=lambda b: b[0]) if any(b[0] for b in behind) else (0.0, None)


def _share(part_of: int, whole: int) -> float:
    return round(part_of / whole, 4) if whole else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """A table is worth a run when it is past any of these."""

    fragments: int = 16
    """Small fragments."""
    unindexed_share: float = 0.1
    deleted_share: float = 0.1
    off: tuple[str, ...] = ()
    """Tables that are never optimised automatically."""


def deferred_below(plan: TablePlan, shares: Shares, thresholds: Thresholds, *, presses: bool) -> TablePlan:
    """The plan, or the same plan deferred with its reason. Pure.

    Args:
        presses: whether readers fail until it is carried out.
    """
    if plan.decision is not OptimizeDecision.OPTIMIZE:
        return plan
    if plan.table_key in thresholds.off:
        reason = f"automatic optimisation is off for this table; would {plan.reason}"
        return replace(plan, decision=OptimizeDecision.DEFERRED, skipped=SkipReason.AUTO_OFF, reason=reason)
    if (
        presses
        or any(f.why for f in plan.folds)
        or crossed(put_right(shares, folding=bool(plan.folds or plan.builds)), thresholds)
    ):
        return plan
    reason = (
        f"below the thresholds ({shares.small_fragments:,} of {count(thresholds.fragments, 'small fragment')}, "
        f"{shares.unindexed_share:.0%} unindexed, {shares.deleted_share:.0%} deleted); would {plan.reason}"
    )
    return replace(plan, decision=OptimizeDecision.DEFERRED, skipped=SkipReason.BELOW_THRESHOLDS, reason=reason)


def crossed(shares: Shares, thresholds: Thresholds) -> tuple[str, ...]:
    """The thresholds that a table is past, by name. Pure."""
    found = (
        ("fragments", shares.small_fragments > thresholds.fragments),
        ("unindexed", shares.unindexed_share > thresholds.unindexed_share),
        ("deleted", shares.deleted_share > thresholds.deleted_share),
    )
    return tuple(name for name, past in found if past)

"""Which fragments a rewrite leaves alone: the two policies and the cutoff. Pure: facts in, ids out.

Tiered: fragments fall into size classes (tiers), each `fan_in` times the one below. Fragments that lie side
by side in one tier are merged once there are `fan_in` of them. Then every row moves up a tier when it is
rewritten, so it is rewritten O(log n) times, and fewer than `fan_in` fragments stay per tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph_ops.edges.lance_tables import FragmentFacts
from omnigraph_ops.models import RewritePolicy

# Lance rewrites a fragment for its own sake when more than this share of its rows is deleted.
_DELETION_THRESHOLD = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRules:
    """What a rewrite wants of a table's fragments."""

    target_rows: int
    policy: RewritePolicy = RewritePolicy.CONVERGE
    fan_in: int = 4
    cutoff: int | None = None
    """Converge: rewrite only when more fragments than this are small. Tiered: leave at most so many."""


def excluded(fragments: Sequence[FragmentFacts], rules: RewriteRules) -> frozenset[int]:
    """The fragments that stay as they are under these rules, by id. Pure.

    Never one that is mostly deleted: those are rewritten whatever the policy.
    """
    if rules.policy is RewritePolicy.TIERED:
        left = _left_by_tiers(fragments, rules)
    elif rules.cutoff is not None and small_fragments(fragments, rules.target_rows) <= rules.cutoff:
        left = list(fragments)
    else:
        left = []
    return frozenset(f.fragment_id for f in left if not mostly_deleted(f))


def small_fragments(fragments: Sequence[FragmentFacts], target_rows: int) -> int:
    """How many are below the target size. Pure."""
    return sum(f.physical_rows < target_rows for f in fragments)


def mostly_deleted(fragment: FragmentFacts) -> bool:
    """Whether Lance would rewrite it for its own sake. Pure."""
    return fragment.deleted_rows > _DELETION_THRESHOLD * max(fragment.physical_rows, 1)


def live_rows(fragment: FragmentFacts) -> int:
    """Rows that a rewrite would copy. Pure."""
    return fragment.physical_rows - fragment.deleted_rows


_Segment = tuple[FragmentFacts, ...]
"""Neighbours that become one fragment."""


def _left_by_tiers(fragments: Sequence[FragmentFacts], rules: RewriteRules) -> list[FragmentFacts]:
    runs = [_merged_tiers(run, rules.fan_in) for run in _small_runs(fragments, rules.target_rows)]
    if rules.cutoff is not None:
        _bound(runs, rules.cutoff)
    moving = {f.fragment_id for run in runs for segment in run if len(segment) > 1 for f in segment}
    return [f for f in fragments if f.fragment_id not in moving]


def _small_runs(fragments: Sequence[FragmentFacts], target_rows: int) -> list[list[_Segment]]:
    """Neighbours that may be merged; a fragment of the target size ends a run. Pure."""
    runs: list[list[_Segment]] = [[]]
    for fragment in fragments:
        if fragment.physical_rows < target_rows or mostly_deleted(fragment):
            runs[-1].append((fragment,))
        else:
            runs.append([])
    return [run for run in runs if run]


def _merged_tiers(run: list[_Segment], fan_in: int) -> list[_Segment]:
    """Merge every full tier, and the tiers above that this fills, in one go. Pure."""
    while True:
        groups = _tier_groups(run, fan_in)
        merged = [s for group in groups for s in ([_joined(group)] if len(group) >= fan_in else group)]
        if len(merged) == len(run):
            return run
        run = merged


def _tier_groups(run: Sequence[_Segment], fan_in: int) -> list[list[_Segment]]:
    """Neighbours of one tier, oldest first. A small one with a larger one after it counts as large. Pure.

    Without that, small fragments between large ones would never find enough neighbours of their size.
    """
    groups: list[list[_Segment]] = []
    highest = -1
    for segment in reversed(run):
        own = _tier(sum(map(live_rows, segment)), fan_in)
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


def _rows(segment: _Segment) -> int:
    return sum(map(live_rows, segment))


def _joined(group: Sequence[_Segment]) -> _Segment:
    return tuple(f for segment in group for f in segment)

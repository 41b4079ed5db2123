"""How much of a table wants maintenance, and from which share on a run takes it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph.schema import TableSpec
from omnigraph_ops.lance.tables import TableFacts
from omnigraph_ops.models.health import HealthPart
from omnigraph_ops.models.optimize import IndexBuild, OptimizeDecision, SkipReason, TablePlan
from omnigraph_ops.stages.optimize.index_plan import uncovered_rows
from omnigraph_ops.stages.optimize.tiers import counted, live_rows, small_fragments

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
    rows = sum(live_rows(f) for f in facts.fragments)
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


def thresholds_of(settings: Settings) -> Thresholds:
    """The thresholds of a deployment. Reads the number of cores."""
    return Thresholds(
        fragments=settings.fragment_cutoff,
        unindexed_share=settings.auto_unindexed_share,
        deleted_share=settings.auto_deleted_share,
        off=settings.auto_off,
    )


def deferred_below(plan: TablePlan, shares: Shares, thresholds: Thresholds) -> TablePlan:
    """The plan, or the same plan deferred with its reason. Pure."""
    if plan.decision is not OptimizeDecision.OPTIMIZE:
        return plan
    if plan.table_key in thresholds.off:
        reason = f"automatic optimisation is off for this table; would {plan.reason}"
        return replace(plan, decision=OptimizeDecision.DEFERRED, skipped=SkipReason.AUTO_OFF, reason=reason)
    if any(f.why for f in plan.folds) or crossed(
        put_right(shares, folding=bool(plan.folds or plan.builds)), thresholds
    ):
        return plan
    reason = (
        f"below the thresholds ({shares.small_fragments} of {thresholds.fragments} small fragments, "
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

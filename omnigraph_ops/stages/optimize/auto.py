"""Automatic optimisation: only tables past a threshold, and never those that are switched off. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.models import OptimizeDecision, SkipReason, TablePlan
from omnigraph_ops.stages.optimize.shares import Shares, put_right


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


def judged(plan: TablePlan, shares: Shares, thresholds: Thresholds) -> TablePlan:
    """The plan, or the same plan deferred with its reason. Pure."""
    if plan.decision is not OptimizeDecision.OPTIMIZE:
        return plan
    if plan.table_key in thresholds.off:
        reason = f"automatic optimisation is off for this table; would {plan.reason}"
        return replace(plan, decision=OptimizeDecision.DEFERRED, skipped=SkipReason.AUTO_OFF, reason=reason)
    if crossed(put_right(shares, folding=bool(plan.folds or plan.builds)), thresholds):
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

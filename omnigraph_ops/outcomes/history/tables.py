"""One table in the record of a run: what every stage did to it, as one row. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omnigraph_ops.models import Classification, OrphanedFork, RepairAction
from omnigraph_ops.models.history import Answer, Measured, RunDecision, RunOutcome, TableRecord, Work
from omnigraph_ops.outcomes.history.parts import TableParts
from omnigraph_ops.outcomes.history.results import DONE_BY_RECOVER, DONE_BY_REPAIR

_NO_WORK = "no work"


def table_record(of: TableParts) -> TableRecord:
    """The row of one table. Pure."""
    stats, after = of.optimized, of.after
    stages, error = tuple(_stages(of)), _error(of)
    return TableRecord(
        table_key=of.table_key,
        outcome=_outcome(of, error, stages),
        stages=stages,
        reason="" if stages or error is not None else _reason(of),
        error=error,
        before=_before(of),
        after=after if after.version is not None or stats is None else replace(after, version=stats.published_version),
        work=_work(of),
        executor=stats.executor.value if stats is not None and stats.committed else None,
        windows=stats.windows if stats is not None else (),
        decisions=tuple(d for d in of.decisions if _concerns(d, of)),
    )


def _outcome(of: TableParts, error: str | None, stages: tuple[str, ...]) -> RunOutcome:
    if error is not None:
        return RunOutcome.FAILED
    if of.interrupted:
        return RunOutcome.INTERRUPTED
    return RunOutcome.SUCCEEDED if stages else RunOutcome.NOTHING_TO_DO


def _stages(of: TableParts) -> Iterator[str]:
    """The stages that did something to the table, in their order. Pure."""
    if any(o.action in DONE_BY_RECOVER for o in of.recovered):
        yield "recover"
    if of.optimized is not None and of.optimized.committed:
        yield "optimize"
    if of.repaired is not None and of.repaired.action in DONE_BY_REPAIR:
        yield "repair"
    if _removed_forks(of) or (of.cleaned is not None and of.cleaned.old_versions_removed):
        yield "cleanup"
    if of.expired is not None and of.expired.rows_removed:
        yield "expire-rows"


def _error(of: TableParts) -> str | None:
    """The first thing that failed about the table. Pure."""
    repaired = of.repaired
    refused = repaired is not None and repaired.action is RepairAction.REFUSED
    found = (
        *(f.message for f in of.failures),
        of.optimized.error if of.optimized else None,
        of.plan.error if of.plan and of.optimized is None else None,
        (repaired.error or f"repair refused {repaired.classification.value} drift") if repaired and refused else None,
        of.cleaned.error if of.cleaned else None,
        of.expired.error if of.expired else None,
        *(f"fork {f.branch}: {f.error}" for f in of.forks if f.error is not None),
    )
    return next((error for error in found if error), None)


def _reason(of: TableParts) -> str:
    """Why nothing was done: a token of optimize, what keeps cleanup away, or that there was no work. Pure."""
    stats, plan, cleanup = of.optimized, of.plan, of.cleanup_plan
    waiting = [o for o in of.recovered if o.action not in DONE_BY_RECOVER]
    # A decision that was not an approval says more than what the plan would have done.
    turned_down = [d for d in of.decisions if d.answer is not Answer.APPROVED and _concerns(d, of)]
    found = (
        "interrupted" if of.interrupted else None,
        stats.skipped.value if stats and stats.skipped else None,
        plan.skipped.value if plan and plan.skipped else None,
        *(f"{d.stage} {d.answer.value}" for d in turned_down),
        cleanup.refused if cleanup else None,
        of.expired.refused if of.expired else None,
        *(o.detail or o.action for o in waiting),
    )
    return next((reason for reason in found if reason), _NO_WORK)


def _before(of: TableParts) -> Measured:
    """How the table stood when it was planned, as far as the run knows: nothing is read for this. Pure."""
    known, plan, stats = of.before, of.plan, of.optimized
    if plan is not None and plan.error is None:
        looked = plan.fragments > 0 or plan.rows > 0
        return replace(
            known,
            version=plan.read_version,
            rows=plan.rows if looked else known.rows,
            fragments=plan.fragments if looked else known.fragments,
            data_bytes=plan.data_bytes if looked else known.data_bytes,
        )
    if stats is not None and of.after.fragments is not None:
        moved = stats.fragments_removed - stats.fragments_added
        # Optimizing changes no row; whoever wrote meanwhile is in neither number.
        known = replace(known, fragments=max(0, of.after.fragments + moved), rows=stats.rows)
    if known.version is None:
        cleanup, drifted = of.cleanup_plan, of.previewed
        pinned = cleanup.pinned_version if cleanup else drifted.manifest_version if drifted else None
        known = replace(known, version=pinned)
    return known


def _work(of: TableParts) -> Work:
    stats, cleaned = of.optimized, of.cleaned
    freed = sum(file.size for fork in _removed_forks(of) for file in fork.files)
    work = Work(
        versions_removed=cleaned.old_versions_removed if cleaned else 0,
        bytes_reclaimed=freed + (cleaned.bytes_removed if cleaned else 0),
    )
    if stats is None:
        return work
    return replace(
        work,
        fragments_removed=stats.fragments_removed,
        fragments_added=stats.fragments_added,
        bytes_rewritten=stats.bytes_rewritten,
        bytes_ingested=stats.bytes_ingested,
        write_amplification=stats.write_amplification,
        preempted=stats.preempted,
    )


def _concerns(decision: RunDecision, of: TableParts) -> bool:
    """Whether the plan that was decided about named the table. Pure."""
    if decision.stage == "repair":
        return of.previewed is not None and of.previewed.classification is not Classification.NO_DRIFT
    if decision.stage == "expire-rows":
        return of.expired is not None and of.expired.refused is None
    named = of.cleanup_plan is not None and bool(of.cleanup_plan.versions)
    return decision.stage == "cleanup" and (named or bool(of.planned_forks))


def _removed_forks(of: TableParts) -> tuple[OrphanedFork, ...]:
    return tuple(f for f in of.forks if f.error is None)

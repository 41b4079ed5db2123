"""One table in the record of a run: what every stage did to it, as one row. Pure."""

from __future__ import annotations

from dataclasses import replace

from omnigraph_ops.models import Classification
from omnigraph_ops.models.history import Answer, Measured, RunDecision, RunOutcome, TableRecord, Work
from omnigraph_ops.outcomes.history.parts import TableParts

_NO_WORK = "no work"


def table_record(of: TableParts) -> TableRecord:
    """The row of one table. Pure."""
    stats, after = of.optimized, of.after
    stages, error = tuple(stage for stage, row in of.done if row.changed), _error(of)
    return TableRecord(
        table_key=of.table_key,
        outcome=_outcome(of, error, stages),
        stages=stages,
        reason="" if stages or error is not None else _reason(of),
        error=error,
        before=_before(of),
        after=after if after.version is not None or stats is None else replace(after, version=stats.published_version),
        work=Work.of(row.work for _, row in of.done),
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


def _error(of: TableParts) -> str | None:
    """The first thing that failed about the table. Pure."""
    found = (
        *(f.message for f in of.failures),
        of.plan.error if of.plan and of.optimized is None else None,
        *(row.error for _, row in of.done),
    )
    return next((error for error in found if error), None)


def _reason(of: TableParts) -> str:
    """Why nothing was done: a token of optimize, what keeps cleanup away, or that there was no work. Pure."""
    stats, plan, cleanup = of.optimized, of.plan, of.cleanup_plan
    # A decision that was not an approval says more than what the plan would have done.
    turned_down = [d for d in of.decisions if d.answer is not Answer.APPROVED and _concerns(d, of)]
    found = (
        "interrupted" if of.interrupted else None,
        stats.skipped.value if stats and stats.skipped else None,
        plan.skipped.value if plan and plan.skipped else None,
        *(f"{d.stage} {d.answer.value}" for d in turned_down),
        cleanup.refused if cleanup else None,
        *(row.reason for _, row in reversed(of.done)),
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


def _concerns(decision: RunDecision, of: TableParts) -> bool:
    """Whether the plan that was decided about named the table. Pure."""
    if decision.stage == "repair":
        return of.previewed is not None and of.previewed.classification is not Classification.NO_DRIFT
    if decision.stage == "cleanup":
        return bool(of.planned_forks or (of.cleanup_plan is not None and of.cleanup_plan.versions))
    return any(stage == decision.stage and not row.reason for stage, row in of.done)

"""From what a run left to its record, table by table. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Protocol, TypeVar

from omnigraph_ops.coordination.freezes import tells_of_freeze
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.models.cleanup import OrphanedFork, TableCleanupPlan
from omnigraph_ops.models.history import (
    Answer,
    Measured,
    RunDecision,
    RunHeader,
    RunOutcome,
    RunRecord,
    TableCounts,
    TableRecord,
    Work,
)
from omnigraph_ops.models.optimize import SkipReason, TablePlan, TableStats
from omnigraph_ops.models.repair import Classification, RepairRow
from omnigraph_ops.models.runs import Outcome, TableOutcome
from omnigraph_ops.outcomes.results import RunResults, StageFailure, outcomes_of


class _Keyed(Protocol):
    @property
    def table_key(self) -> str | None: ...


K = TypeVar("K", bound=_Keyed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableParts:
    """Everything about one table; None where no stage looked."""

    table_key: str
    before: Measured
    after: Measured
    plan: TablePlan | None
    optimized: TableStats | None
    previewed: RepairRow | None
    cleanup_plan: TableCleanupPlan | None
    planned_forks: tuple[OrphanedFork, ...]
    done: tuple[tuple[str, TableOutcome], ...]
    """What each stage did to it, with the name of the stage."""
    failures: tuple[StageFailure, ...]
    interrupted: bool
    """Whether the run was ended while it worked on the table."""
    decisions: tuple[RunDecision, ...]
    """All of the run."""


def parts_of(results: RunResults) -> tuple[TableParts, ...]:
    """The parts of every table that any stage looked at, by key. Pure."""
    plan = _by_key(results.optimize_plan.tables if results.optimize_plan else ())
    optimized = _by_key(results.optimize.tables if results.optimize else ())
    previewed = _by_key(results.preview.rows if results.preview else ())
    cleanup_plan = _by_key(results.cleanup_plan.tables if results.cleanup_plan else ())
    planned_forks = _by_key(results.cleanup_plan.orphaned_forks if results.cleanup_plan else ())
    failures = _by_key(results.failures)
    done: dict[str, list[tuple[str, TableOutcome]]] = defaultdict(list)
    for outcome in outcomes_of(results):
        for row in outcome.tables:
            done[row.table_key].append((outcome.stage, row))
    before, after = dict(results.before.tables), dict(results.after.tables)
    interrupted = results.interruption.tables if results.interruption else frozenset[str]()
    everything = (plan, previewed, cleanup_plan, planned_forks, done, failures, interrupted)
    return tuple(
        TableParts(
            table_key=key,
            before=before.get(key, Measured()),
            after=after.get(key, Measured()),
            plan=_first(plan, key),
            optimized=_first(optimized, key),
            previewed=_first(previewed, key),
            cleanup_plan=_first(cleanup_plan, key),
            planned_forks=tuple(planned_forks.get(key, ())),
            done=tuple(done.get(key, ())),
            failures=tuple(failures.get(key, ())),
            interrupted=key in interrupted or _was_left(_first(optimized, key)),
            decisions=results.decisions,
        )
        for key in sorted({key for found in everything for key in found})
    )


def _by_key(rows: Iterable[K]) -> dict[str, list[K]]:
    """The rows by their table; those about none are left out. Pure."""
    found: dict[str, list[K]] = defaultdict(list)
    for row in rows:
        if row.table_key:
            found[row.table_key].append(row)
    return found


def _first(found: dict[str, list[K]], key: str) -> K | None:
    return next(iter(found.get(key, ())), None)


def _was_left(stats: TableStats | None) -> bool:
    """Whether an optimize stopped with a part of the table done. Pure."""
    return stats is not None and stats.committed and stats.skipped is SkipReason.INTERRUPTED


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
        decisions=tuple(d for d in of.decisions if _concerns(d.stage, of)),
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
    turned_down = [d for d in of.decisions if d.answer is not Answer.APPROVED and _concerns(d.stage, of)]
    undecided = {"repair", "cleanup"} - {d.stage for d in of.decisions}
    found = (
        "interrupted" if of.interrupted else None,
        stats.skipped.value if stats and stats.skipped else None,
        plan.skipped.value if plan and plan.skipped else None,
        *(f"{d.stage} {d.answer.value}" for d in turned_down),
        cleanup.refused if cleanup else None,
        *(row.reason for _, row in reversed(of.done)),
        *(f"{stage} not confirmed" for stage in sorted(undecided) if _concerns(stage, of)),
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


def _concerns(stage: str, of: TableParts) -> bool:
    """Whether the plan of a stage that is decided about names the table. Pure."""
    if stage == "repair":
        return of.previewed is not None and of.previewed.classification is not Classification.NO_DRIFT
    if stage == "cleanup":
        return bool(of.planned_forks or (of.cleanup_plan is not None and of.cleanup_plan.versions))
    return any(name == stage and not row.reason for name, row in of.done)


def record_of(header: RunHeader, results: RunResults) -> RunRecord:
    """The record of a run that ends now. Reads the clock."""
    tables = tuple(table_record(parts) for parts in parts_of(results))
    outcomes = outcomes_of(results)
    errors = _errors(results, outcomes, tables)
    ended_at_us = now_us()
    return RunRecord(
        record_id=new_ulid(ended_at_us),
        header=header,
        ended_at_us=ended_at_us,
        outcome=RunOutcome.INTERRUPTED
        if results.interruption is not None
        else outcome_of(results, failed=bool(errors)),
        errors=errors,
        attention=results.attention,
        notes=tuple(filter(None, map(_note, outcomes))),
        counts=_counts(tables),
        before=_graph_before(results, tables),
        after=results.after.graph,
        work=Work.of((*(t.work for t in tables), *(o.work for o in outcomes))),
        decisions=results.decisions,
        tables=tables,
    )


def outcome_of(results: RunResults, *, failed: bool) -> RunOutcome:
    """What came of a run that nobody interrupted: the worst outweighs what was done. Pure."""
    if failed:
        return RunOutcome.FAILED
    if any(decision.answer is not Answer.APPROVED for decision in results.decisions):
        return RunOutcome.UNAPPROVED
    if any(outcome.changed for outcome in outcomes_of(results)):
        return RunOutcome.SUCCEEDED
    return RunOutcome.FROZEN if _kept_by_freeze(results) else RunOutcome.NOTHING_TO_DO


def _kept_by_freeze(results: RunResults) -> bool:
    """Whether a freeze kept the run from a table, or from all of the graph. Pure."""
    planned = results.optimize_plan.tables if results.optimize_plan else ()
    done = results.optimize.tables if results.optimize else ()
    cleanup = results.cleanup_plan.tables if results.cleanup_plan else ()
    return (
        results.frozen
        or SkipReason.FROZEN in {*(plan.skipped for plan in planned), *(stats.skipped for stats in done)}
        or any(table.refused and tells_of_freeze(table.refused) for table in cleanup)
    )


def _errors(results: RunResults, outcomes: Iterable[Outcome], tables: Iterable[TableRecord]) -> tuple[str, ...]:
    """Every failure once: those of the run, then those of tables that no sentence is about yet. Pure."""
    told = [results.interruption.reason] if results.interruption is not None else []
    told += [f"{f.table_key}: {f.message}" if f.table_key else f.message for f in results.failures]
    named = {f.table_key for f in results.failures}
    told += [f"{t.table_key}: {t.error}" for t in tables if t.error is not None and t.table_key not in named]
    told += [failure for outcome in outcomes for failure in outcome.failures]
    return tuple(dict.fromkeys(told))


def _note(outcome: Outcome) -> str:
    """What was done that no figure of the record tells. Pure."""
    figures = Work.of((outcome.work, *(table.work for table in outcome.tables)))
    return outcome.detail if outcome.changed and figures == Work.of(()) else ""


def _counts(tables: Iterable[TableRecord]) -> TableCounts:
    found = Counter(t.outcome for t in tables)
    return TableCounts(**{field.name: found[RunOutcome(field.name)] for field in fields(TableCounts)})


def _graph_before(results: RunResults, tables: Iterable[TableRecord]) -> Measured:
    """How the graph stood before, from the plan, else from what is known of the time after. Pure."""
    known, plan, after = results.before.graph, results.optimize_plan, results.after.graph
    if plan is not None:
        return Measured(
            version=plan.graph_version if known.version is None else known.version,
            rows=sum(t.rows for t in plan.tables),
            fragments=sum(t.fragments for t in plan.tables),
            data_bytes=sum(t.data_bytes for t in plan.tables),
        )
    if after.fragments is None:
        return known
    maintained = [t.work for t in tables if t.after.fragments is not None]
    return replace(known, fragments=after.fragments + sum(w.fragments_removed - w.fragments_added for w in maintained))

"""From what a run left to its record. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace

from omnigraph_ops.graph.ids import new_ulid, now_us
from omnigraph_ops.models.history import (
    Answer,
    Measured,
    RunHeader,
    RunOutcome,
    RunRecord,
    TableCounts,
    TableRecord,
    Work,
)
from omnigraph_ops.models.outcome import Outcome
from omnigraph_ops.outcomes.history.parts import parts_of
from omnigraph_ops.outcomes.history.results import RunResults, outcomes_of
from omnigraph_ops.outcomes.history.tables import table_record


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
    changed = any(outcome.changed for outcome in outcomes_of(results))
    return RunOutcome.SUCCEEDED if changed else RunOutcome.NOTHING_TO_DO


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

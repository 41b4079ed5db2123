"""From what a run left to its record. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace

from omnigraph_ops.graph.ids import new_ulid, now_us
from omnigraph_ops.history.parts import parts_of
from omnigraph_ops.history.results import RunResults
from omnigraph_ops.history.tables import table_record
from omnigraph_ops.models import SparedFile
from omnigraph_ops.models.backup import BackupLeft
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
from omnigraph_ops.sizes import human_bytes


def record_of(header: RunHeader, results: RunResults) -> RunRecord:
    """The record of a run that ends now. Reads the clock."""
    tables = tuple(table_record(parts) for parts in parts_of(results))
    errors = _errors(results, tables)
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
        notes=_notes(results),
        counts=_counts(tables),
        before=_graph_before(results, tables),
        after=results.after.graph,
        work=_work(results, tables),
        decisions=results.decisions,
        tables=tables,
    )


def outcome_of(results: RunResults, *, failed: bool) -> RunOutcome:
    """What came of a run that nobody interrupted: the worst outweighs what was done. Pure."""
    if failed:
        return RunOutcome.FAILED
    if any(decision.answer is not Answer.APPROVED for decision in results.decisions):
        return RunOutcome.UNAPPROVED
    return RunOutcome.SUCCEEDED if results.did_anything else RunOutcome.NOTHING_TO_DO


def _errors(results: RunResults, tables: Iterable[TableRecord]) -> tuple[str, ...]:
    """Every failure once: those of the run, then those of tables that no sentence is about yet. Pure."""
    told = [results.interruption.reason] if results.interruption is not None else []
    told += [f"{f.table_key}: {f.message}" if f.table_key else f.message for f in results.failures]
    named = {f.table_key for f in results.failures}
    told += [f"{t.table_key}: {t.error}" for t in tables if t.error is not None and t.table_key not in named]
    removal = (*(results.orphans.failed if results.orphans else ()), *_quarantine_failed(results))
    told += [f"{file.path}: {file.reason}" for file in removal]
    return tuple(dict.fromkeys(told))


def _quarantine_failed(results: RunResults) -> tuple[SparedFile, ...]:
    return results.quarantine.failed if results.quarantine else ()


def _notes(results: RunResults) -> tuple[str, ...]:
    """What was done that no figure of the record tells. Pure."""
    made, left = results.backup, results.backup_left
    if made is None:
        return () if left is None else (_left(left),)
    copied = human_bytes(made.copied.bytes)
    return (f"backup {made.backup_id}: {made.total.files:,} files, {copied} copied, at {made.backup}",)


def _left(left: BackupLeft) -> str:
    """A backup whose run was cut off, or failed. Pure."""
    state = "finished" if left.finished else "unfinished, the next backup to that place goes on with it"
    there = f"{left.total.files:,} files, {human_bytes(left.total.bytes)}"
    return f"backup {left.backup_id}: {state}; {there}, at {left.backup}"


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


def _work(results: RunResults, tables: tuple[TableRecord, ...]) -> Work:
    orphans, quarantine, optimize = results.orphans, results.quarantine, results.optimize
    files = orphans.files_removed if orphans else 0
    # Files that were only moved aside still cost their bytes.
    freed = orphans.bytes_removed if orphans and orphans.quarantine_id is None else 0
    if quarantine is not None and quarantine.action == "purged":
        files, freed = files + quarantine.files, freed + quarantine.bytes
    told = [t.work.preempted for t in tables if t.work.preempted is not None]
    return Work(
        fragments_removed=sum(t.work.fragments_removed for t in tables),
        fragments_added=sum(t.work.fragments_added for t in tables),
        versions_removed=sum(t.work.versions_removed for t in tables),
        files_removed=files,
        bytes_rewritten=sum(t.work.bytes_rewritten for t in tables),
        bytes_ingested=optimize.bytes_ingested if optimize else None,
        bytes_reclaimed=freed + sum(t.work.bytes_reclaimed for t in tables),
        write_amplification=optimize.write_amplification if optimize else None,
        preempted=sum(told) if told else None,
    )

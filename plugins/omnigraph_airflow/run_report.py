"""The report of one run, from what its tasks left behind: pure, no Airflow.

Skipped is never counted as done: what did not happen is listed with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from omnigraph_airflow.decisions import Decision, refusal
from omnigraph_airflow.run_facts import RunFacts
from omnigraph_airflow.run_failures import failed
from omnigraph_airflow.run_record import results_of
from omnigraph_ops.durations import moment
from omnigraph_ops.models import (
    CleanupStats,
    OptimizePlan,
    OptimizeReport,
    SkipReason,
    TableStats,
)
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.views.details import amplification
from omnigraph_ops.views.markdown import prose, ranges
from omnigraph_ops.views.markdown import table as markdown_table

_MOST_SPARED = 20
_SPARED = (SkipReason.BELOW_THRESHOLDS, SkipReason.AUTO_OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What the operator reads in the morning."""

    graph: str
    outcome: str
    """`succeeded`, `failed`, `unapproved` or `nothing_to_do`."""
    failed: tuple[str, ...]
    unapproved: tuple[str, ...]
    """What was not done because it was rejected or nobody answered, a sentence each."""
    attention: tuple[str, ...]
    markdown: str


def build(facts: RunFacts) -> RunReport:
    """Roll everything up. Pure."""
    from omnigraph_ops.outcomes.history.record import outcome_of

    broken = failed(facts)
    attention = _attention(facts)
    outcome = outcome_of(results_of(facts), failed=bool(broken)).value
    unapproved = tuple(_unapproved(facts))
    sections = [
        f"# Maintenance of {prose(facts.graph)}",
        f"Outcome: **{outcome.replace('_', ' ')}**",
        *_list("Failed", broken),
        *_list("Not approved", unapproved),
        *_list("Needs attention", attention),
        *_sections(facts),
    ]
    return RunReport(
        graph=facts.graph,
        outcome=outcome,
        failed=broken,
        unapproved=unapproved,
        attention=attention,
        markdown="\n".join(sections),
    )


def _sections(facts: RunFacts) -> Iterator[str]:
    written: tuple[tuple[str, Callable[[], list[str]]], ...] = (
        ("optimize", lambda: _optimize(facts.optimize)),
        ("repair", lambda: _repair(facts)),
        ("cleanup", lambda: _cleanup(facts)),
        ("orphans", lambda: _orphans(facts)),
        ("expire-rows", lambda: _rows(facts)),
        ("backup", lambda: _backup(facts)),
    )
    for stage, lines in written:
        if stage in facts.stages:
            yield f"## {stage.capitalize()}"
            why = facts.skipped.get(stage)
            yield from [f"Skipped: {prose(why)}."] if why else lines()


def _backup(facts: RunFacts) -> list[str]:
    if facts.backup is None:
        return ["Not reached."]
    made, read = facts.backup, "read again and sound" if facts.verified is not None else "not verified"
    return [
        f"{prose(made.backup)}: {made.total.files:,} files, {human_bytes(made.total.bytes)}, {read}.",
        f"{human_bytes(made.copied.bytes)} copied, {human_bytes(made.linked.bytes)} taken from "
        f"{prose(made.incremental_from or 'no earlier backup')}.",
    ]


def _attention(facts: RunFacts) -> tuple[str, ...]:
    lines = list(_drifted(facts))
    late = facts.optimize.deferred if facts.optimize else ()
    lines += [f"{t.table_key} had no room in the budget of this run; it stays planned" for t in late]
    lines += _frozen(facts.optimize_plan)
    lines += [f"{stage} skipped: {why}" for stage, why in facts.skipped.items()]
    tables = facts.cleanup_plan.tables if facts.cleanup_plan else ()
    lines += [f"{t.table_key} was not cleaned: {t.refused}" for t in tables if t.refused]
    expiring = facts.row_plan.tables if facts.row_plan else ()
    lines += [f"{t.table_key} keeps its expired rows: {t.refused}" for t in expiring if t.refused]
    if facts.orphans_plan is not None:
        lines += [f"{s.path} was not searched for orphans: {s.reason}" for s in facts.orphans_plan.skipped]
        unknown = len(facts.orphans_plan.unknown)
        lines += [f"{unknown} unknown file(s) lie in the graph; they are never removed"] if unknown else []
    return tuple(lines)


def _unapproved(facts: RunFacts) -> Iterator[str]:
    for stage, decision in facts.decisions.items():
        if not decision.approved:
            yield f"{stage} was not done: {refusal(decision, decision.digest)}"


def _drifted(facts: RunFacts) -> Iterator[str]:
    """What is drifted now, with what its preview called it; where nobody could look, what was. Pure."""
    previewed = {r.table_key: r for r in facts.preview.drifted} if facts.preview else {}
    if facts.drift is None:
        for key, row in previewed.items():
            yield f"{key} was drifted when it was previewed ({row.manifest_version} → {row.lance_head_version})"
        return
    for table in facts.drift:
        known = previewed.get(table.table_key)
        called = f", {known.classification}" if known and known.lance_head_version == table.lance_head_version else ""
        yield f"{table.table_key} is drifted ({table.manifest_version} → {table.lance_head_version}{called})"


def _frozen(plan: OptimizePlan | None) -> Iterator[str]:
    """One line per freeze, however many tables it covers. Pure."""
    frozen = Counter(t.reason for t in plan.tables if t.skipped is SkipReason.FROZEN) if plan else {}
    for why, tables in frozen.items():
        yield f"{tables} table{'s' * (tables != 1)} not optimized: {why}"


def _optimize(report: OptimizeReport | None) -> list[str]:
    if report is None:
        return ["Not reached."]
    spared = [t for t in report.tables if t.skipped in _SPARED]
    work = [t for t in report.tables if t.committed or t.error or (t.skipped and t not in spared)]
    rest = len(report.tables) - len(work) - len(spared)
    header = ("Table", "Outcome", "Fragments", "Where", "Indexes", "Written", "Amplification")
    lines = _table(header, (_optimize_cells(t) for t in work))
    lines += [f"{rest} of {len(report.tables)} tables had nothing to do."]
    lines += [f"{len(spared)} were left alone: below the thresholds, or switched off for them."] if spared else []
    return lines + ([f"The run {amplification(report)}."] if report.bytes_rewritten else [])


def _optimize_cells(stats: TableStats) -> tuple[str, ...]:
    if stats.error:
        outcome = f"FAILED: {stats.error}"
    elif stats.skipped:
        outcome = f"skipped: {stats.skipped}"
    else:
        outcome = f"published version {stats.published_version}"
    fragments = f"-{stats.fragments_removed} +{stats.fragments_added}" if stats.committed else ""
    indexes = ", ".join((*stats.indexes_folded, *stats.indexes_built))
    times = "" if not stats.committed else "unknown"
    if stats.write_amplification is not None:
        times = f"{stats.write_amplification:g}"
    written = human_bytes(stats.bytes_rewritten) if stats.committed else ""
    where = str(stats.executor) if stats.committed else ""
    return (stats.table_key, outcome, fragments, where, indexes, written, times)


def _repair(facts: RunFacts) -> list[str]:
    if facts.preview is None:
        return ["Not reached."]
    if not facts.preview.drifted:
        return ["No table has drifted."]
    return [
        _decision(facts.decisions.get("repair"), facts.preview.digest),
        *_table(("Table", "Published → newest", "Evidence", "Outcome"), _repair_rows(facts)),
    ]


def _repair_rows(facts: RunFacts) -> Iterable[tuple[str, ...]]:
    drifted = facts.preview.drifted if facts.preview else ()
    actions = {r.table_key: r.action for r in facts.repair.tables} if facts.repair else {}
    for row in drifted:
        moved = f"{row.manifest_version} → {row.lance_head_version}"
        yield row.table_key, moved, str(row.classification), str(actions.get(row.table_key, "left as it is"))


def _cleanup(facts: RunFacts) -> list[str]:
    plan = facts.cleanup_plan
    if plan is None:
        return ["Not reached."]
    if not plan.total_versions and not plan.orphaned_forks:
        return ["Nothing to remove."]
    lines = [_decision(facts.decisions.get("cleanup"), plan.digest)]
    rows = [s for s in facts.cleanup if s.old_versions_removed or s.error]
    lines += _table(("Table", "Versions removed", "Bytes", "Kept since protected"), map(_cleanup_cells, rows))
    lines += [f"Removed the orphaned fork {prose(f.branch)} of {prose(f.table_key)}." for f in facts.forks]
    if rows or facts.forks:
        return lines
    return [*lines, f"Nothing was removed; {plan.total_versions:,} versions were planned."]


def _cleanup_cells(stats: CleanupStats) -> tuple[str, ...]:
    removed, kept = ranges(stats.versions), ranges(stats.skipped_since_protected)
    return stats.table_key, stats.error or removed, human_bytes(stats.bytes_removed), kept


def _orphans(facts: RunFacts) -> list[str]:
    plan = facts.orphans_plan
    if plan is None:
        return ["Not reached."]
    if not plan.files and not plan.folders:
        return ["Nothing to remove."]
    lines = [_decision(facts.decisions.get("orphans"), plan.digest)]
    if facts.orphans is None:
        return [*lines, f"Nothing was removed; {len(plan.files):,} files were planned."]
    done = facts.orphans
    fate = f"moved to quarantine {done.quarantine_id}" if done.quarantine_id else "deleted for good"
    lines.append(
        f"{done.files_removed:,} of {len(plan.files):,} files ({human_bytes(done.bytes_removed)}) {fate}, "
        f"{done.folders_removed:,} empty folders removed."
    )
    return lines + [f"- left: {prose(f.path)}: {prose(f.reason)}" for f in done.spared[:_MOST_SPARED]]


def _rows(facts: RunFacts) -> list[str]:
    plan = facts.row_plan
    if plan is None:
        return ["Not reached."]
    if not plan.total_rows:
        return ["Nothing to remove."]
    decision = _decision(facts.decisions.get("expire-rows"), plan.digest)
    if facts.rows is None:
        return [decision, f"Nothing was deleted; {plan.total_rows:,} rows were planned."]
    cells = ((t.table_key, t.error or t.refused or f"{t.rows_removed:,} rows deleted") for t in facts.rows.tables)
    return [decision, *_table(("Table", "Outcome"), cells)]


def _decision(decision: Decision | None, digest: str) -> str:
    if decision is None:
        return f"Nobody was asked, or nobody answered. The digest of the plan is `{digest}`."
    if decision.timed_out:
        return "Nobody answered in time, which counts as Reject."
    when = f" at {moment(decision.decided_at_us)}" if decision.decided_at_us else ""
    return f"{', '.join(decision.chosen_options)} by {prose(decision.decided_by)}{when}, digest `{decision.digest}`."


def _list(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", *(f"- {prose(line)}" for line in lines)] if lines else []


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [[prose(cell) for cell in row] for row in rows]
    return markdown_table(header, body) if body else []

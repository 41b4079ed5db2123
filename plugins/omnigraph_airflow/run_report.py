"""The report of one run, from what its tasks left behind: pure, no Airflow.

Skipped is never counted as done: what did not happen is listed with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from omnigraph_airflow.decisions import Decision, refusal
from omnigraph_airflow.run_facts import RunFacts, failed, results_of
from omnigraph_ops.models.optimize import OptimizePlan, SkipReason, TableStats
from omnigraph_ops.outcomes.of_reports import amplification
from omnigraph_ops.quantities import human_bytes, moment
from omnigraph_ops.stages.registry import planned, tasks_by_stage
from omnigraph_ops.stages.stage import AnyPlanned
from omnigraph_ops.views.markdown import contents, prose
from omnigraph_ops.views.markdown import facts as markdown_facts
from omnigraph_ops.views.markdown import table as markdown_table
from omnigraph_ops.views.view import View, first

_MOST_ROWS = 50
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
    from omnigraph_ops.outcomes.record import outcome_of

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
    for name in tasks_by_stage():
        if name in facts.stages:
            yield f"## {name.capitalize()}"
            why = facts.skipped.get(name)
            lines = _WITHOUT_APPROVAL[name](facts) if name in _WITHOUT_APPROVAL else _stage(facts, planned(name))
            yield from [f"Skipped: {prose(why)}."] if why else lines


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
    lines = [line for name, plan in facts.plans.items() for line in planned(name).attention(plan, facts.drift)]
    late = facts.optimize.deferred if facts.optimize else ()
    lines += [f"{t.table_key} had no room in the budget of this run; it stays planned" for t in late]
    lines += _frozen(facts.optimize_plan)
    lines += [f"{stage} skipped: {why}" for stage, why in facts.skipped.items()]
    return tuple(lines)


def _unapproved(facts: RunFacts) -> Iterator[str]:
    for stage, decision in facts.decisions.items():
        if not decision.approved:
            yield f"{stage} was not done: {refusal(decision, decision.digest)}"


def _frozen(plan: OptimizePlan | None) -> Iterator[str]:
    """One line per freeze, however many tables it covers. Pure."""
    frozen = Counter(t.reason for t in plan.tables if t.skipped is SkipReason.FROZEN) if plan else {}
    for why, tables in frozen.items():
        yield f"{tables} table{'s' * (tables != 1)} not optimized: {why}"


def _optimize(facts: RunFacts) -> list[str]:
    report = facts.optimize
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


def _stage(facts: RunFacts, stage: AnyPlanned) -> list[str]:
    """What was planned, who decided about it, and what came of it. Pure."""
    plan = facts.plans.get(stage.name)
    if plan is None:
        return ["Not reached."]
    if why := stage.nothing_to_do(plan):
        return [f"{prose(why[0].upper() + why[1:])}."]
    lines = [_decision(facts.decisions.get(stage.name), plan.digest)]
    outcome, report = facts.outcome_of(stage), facts.reports.get(stage.name)
    if outcome is None:
        left = markdown_facts((name, value) for name, value in stage.view(plan).facts if value != plan.digest)
        return [*lines, "", "Nothing was done. The plan:", "", *left]
    lines += ["", *(f"{prose(said[0].upper() + said[1:])}." for said in (outcome.detail, outcome.problem) if said)]
    if report is None:
        return lines
    touched = frozenset(table.table_key for table in outcome.tables if table.changed or table.error)
    return [*lines, *_contents(stage.view(report), touched)]


def _contents(view: View, touched: Collection[str]) -> Iterator[str]:
    """The facts and the first rows of each section, before all others those of some tables. Pure."""
    yield from markdown_facts(view.facts)
    for section in view.sections:
        ordered = replace(section, rows=tuple(sorted(section.rows, key=lambda row: row[0] not in touched)))
        shown, hidden = first(ordered, _MOST_ROWS)
        more = f", the first {_MOST_ROWS} of {_MOST_ROWS + hidden:,}" if hidden else ""
        yield from ("", f"{prose(section.title)}{more}:", "", *contents(shown))


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


_WITHOUT_APPROVAL = {"optimize": _optimize, "backup": _backup}

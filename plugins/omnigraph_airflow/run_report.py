"""Everything the tasks of a run left behind, as values; the record and the report of the run. Knows no Airflow.

Skipped is never counted as done: what did not happen is listed with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from omnigraph_airflow.decisions import Decision, refusal
from omnigraph_ops.models.backup import BackupLeft, BackupReport
from omnigraph_ops.models.health import DriftFinding
from omnigraph_ops.models.history import Answer, RunDecision
from omnigraph_ops.models.optimize import OptimizePlan, OptimizeReport, SkipReason, TableStats
from omnigraph_ops.models.outcomes import Outcome
from omnigraph_ops.outcomes.results import RunResults, StageFailure, outcomes_of, with_value
from omnigraph_ops.quantities import count, human_bytes, moment
from omnigraph_ops.stages.optimize.stage import written
from omnigraph_ops.stages.registry import BY_NAME, planned, tasks_by_stage
from omnigraph_ops.stages.stage import AnyPlanned
from omnigraph_ops.views.markdown import by_cause, contents, prose, some
from omnigraph_ops.views.markdown import facts as markdown_facts
from omnigraph_ops.views.view import Section, View, first

_MOST_ROWS = 50
_SPARED = (SkipReason.BELOW_THRESHOLDS, SkipReason.AUTO_OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A task that failed and the sentence it left."""

    task_id: str
    table_key: str | None
    message: str
    map_index: int = -1
    try_number: int = 0
    """Of the attempt that failed; 0: a release that did not tell it."""

    @property
    def instance(self) -> str:
        """The task as `RunFacts.states` calls it. Pure."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything the tasks of a run left; None where a task did not get to leave it."""

    graph: str
    stages: frozenset[str] = frozenset({"optimize", "repair", "cleanup"})
    """What the DAG has: a stage that it lacks has no section."""
    unopened: bool = False
    """The graph cannot be opened, so nothing is known of what the tasks left there."""
    began_us: int = 0
    """When a run began that was cleared since, in microseconds since the epoch; 0: when Airflow says."""
    states: Mapping[str, str | None] = field(default_factory=dict)
    """State per task, mapped ones as `task_index`."""
    failures: tuple[Failure, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Why a stage was not even planned, by its name."""
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    """What was answered, by the name of the stage."""
    carried_out: tuple[RunDecision, ...] = ()
    """What tasks relied on, in whichever clearing of the run."""
    plans: Mapping[str, Any] = field(default_factory=dict)
    """What was planned, by the name of the stage."""
    retried: tuple[str, ...] = ()
    """What became of each try of the tasks that took more than one, a sentence for each task."""
    undone: tuple[str, ...] = ()
    """What was approved and no task did, a sentence for each stage."""
    done: RunResults = field(default_factory=RunResults)
    """What the tasks left, all attempts together: plans without approval, reports, outcomes."""
    approvers: tuple[str, ...] = ()
    """Who may answer the questions about the graph; empty: everybody who may answer any."""
    drift: tuple[DriftFinding, ...] | None = None
    """Tables that are ahead of what is published now; None: nobody looked, or could."""

    @property
    def reports(self) -> dict[str, Any]:
        """What the stages that plan first report, by their names. Pure."""
        done = ((name, self.done.reports.get(name)) for name in BY_NAME)
        return {name: report for name, report in done if report is not None and not isinstance(report, Outcome)}

    @property
    def optimized(self) -> OptimizeReport | None:
        """What became of the tables that nobody is asked about. Pure."""
        found: OptimizeReport | None = self.done.reports.get("optimize")
        return found

    def outcome_of(self, stage: AnyPlanned) -> Outcome | None:
        """What came of a stage; None when it was not carried out. Pure."""
        return next((outcome for outcome in outcomes_of(self.done) if outcome.stage == stage.name), None)


_BAD_STATES = ("failed", "upstream_failed")


def failed(facts: RunFacts) -> tuple[str, ...]:
    """Everything that failed, what is about tables first, a sentence for each cause. Pure."""
    return (*by_cause(_tables(facts)), *failed_tasks(facts))


def failed_tasks(facts: RunFacts) -> tuple[str, ...]:
    """What failed and is about no single table or file. Pure."""
    found = [("", f.instance, f.message) for f in facts.failures if f.table_key is None]
    # A task that died without leaving a sentence (killed, lost worker) still makes the run red.
    known = {f.instance for f in facts.failures}
    silent = [task for task, state in facts.states.items() if state == "failed" and task not in known]
    found += [("", task, "failed, see its log") for task in silent]
    named = (*by_cause(found), *facts.undone)
    return named if named or _tables(facts) else tuple(_without_a_fault(facts))


def _without_a_fault(facts: RunFacts) -> Iterator[str]:
    """Why a run failed in which no task, table or file is known to have, at most one sentence. Pure."""
    if any(state in _BAD_STATES for state in facts.states.values()):
        yield "a task before this one did not finish"
    elif _lacks_backup(facts):
        yield "no backup was finished and verified; run the DAG again"
    elif unplanned := _unplanned(facts):
        yield (
            f"{', '.join(unplanned)}: not planned, because a task before was skipped or cleared by hand; nothing is "
            "harmed; start a new run"
        )


def _unplanned(facts: RunFacts) -> list[str]:
    """The stages whose planning was skipped without a reason of this tool, in the order of a night. Pure."""
    plans = ((stage, of.plan) for stage, of in tasks_by_stage().items() if stage in facts.stages)
    skipped = (stage for stage, plan in plans if facts.states.get(plan) == "skipped")
    return [stage for stage in skipped if stage not in facts.skipped and stage not in facts.plans]


def _lacks_backup(facts: RunFacts) -> bool:
    """Whether a run that backs up ended before it had, as where somebody ended the run. Pure."""
    made = isinstance(facts.done.reports.get("backup"), BackupReport)
    return "backup" in facts.stages and not (made and facts.states.get("verify") != "skipped")


def _tables(facts: RunFacts) -> list[tuple[str, str, str]]:
    """What failed of tables, or of a stage as a whole: the task or stage, the table, and why. Pure."""
    found = [(f.task_id, f.table_key, f.message) for f in facts.failures if f.table_key is not None]
    said = [f"{table}: {message}" for _, table, message in found]
    for name, report in facts.reports.items():
        lines = (line for line in planned(name).failures(report) if not any(line in one for one in said))
        found += [("", *line.partition(": ")[::2]) if ": " in line else ("", "", line) for line in lines]
    told = {f.table_key for f in facts.failures}
    for outcome in outcomes_of(facts.done):
        if outcome.stage not in facts.reports:
            found += [
                (outcome.stage, t.table_key, t.error) for t in outcome.tables if t.error and t.table_key not in told
            ]
            found += [("", outcome.stage, failure) for failure in outcome.failures]
    return found


def results_of(facts: RunFacts, attention: tuple[str, ...] = ()) -> RunResults:
    """What the stages left, in the words of the history, which itself tells what failed of a table. Pure."""
    of_tables = (
        StageFailure(message=f.message, table_key=f.table_key, stage=f.task_id) for f in facts.failures if f.table_key
    )
    results = replace(
        facts.done,
        # Of a backup that was not reached its section says so.
        reports={name: done for name, done in facts.done.reports.items() if not isinstance(done, BackupLeft)},
        decisions=decisions_of(facts),
        failures=(*of_tables, *(StageFailure(message=line) for line in failed_tasks(facts))),
        # Nothing else keeps a stage from being planned.
        frozen=bool(facts.skipped),
        previewed=any(_is_previewed(facts, planned(name), plan) for name, plan in facts.plans.items()),
        attention=attention,
    )
    return reduce(with_value, facts.plans.values(), results)


def _is_previewed(facts: RunFacts, stage: AnyPlanned, plan: Any) -> bool:
    """Whether a plan names work that nobody was asked about. Pure."""
    return stage.name not in facts.decisions and stage.nothing_to_do(plan) is None


def decisions_of(facts: RunFacts) -> tuple[RunDecision, ...]:
    """Who decided about which stage, in the order of the stages; what was carried out before a clear first. Pure."""
    answered = ((name, facts.decisions.get(name)) for name in tasks_by_stage())
    now = tuple(decision_of(name, decision) for name, decision in answered if decision is not None)
    digests = {decision.digest for decision in now}
    return (*(decision for decision in facts.carried_out if decision.digest not in digests), *now)


def decision_of(stage: str, decision: Decision) -> RunDecision:
    """What was decided about a stage, in the words of the history. Pure."""
    answer = Answer.APPROVED if decision.approved else Answer.REJECTED
    return RunDecision(
        stage=stage,
        answer=Answer.TIMEOUT if decision.timed_out else answer,
        by=decision.decided_by,
        digest=decision.digest,
        at_us=decision.decided_at_us or None,
        forced=decision.force,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What the operator reads in the morning."""

    graph: str
    outcome: str
    """`succeeded`, `failed`, `unapproved`, `frozen`, `previewed` or `nothing_to_do`."""
    failed: tuple[str, ...]
    unapproved: tuple[str, ...]
    """What was not done because it was rejected, nobody answered or a switch was off, a sentence each."""
    attention: tuple[str, ...]
    markdown: str


def build(facts: RunFacts) -> RunReport:
    """Roll everything up. Pure."""
    from omnigraph_ops.outcomes.history import outcome_of

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
        *_list("Tried more than once", facts.retried),
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
            if facts.unopened:
                yield "Not known, the graph cannot be opened."
                continue
            why = facts.skipped.get(name)
            lines = _WITHOUT_APPROVAL[name](facts) if name in _WITHOUT_APPROVAL else _stage(facts, planned(name))
            yield from [f"Skipped: {prose(why)}."] if why else lines


def _no_result(facts: RunFacts, stage: str) -> str:
    """Why a stage left nothing to tell: its tasks failed, or none of them began. Pure."""
    of = tasks_by_stage()[stage]
    mine = (of.plan, of.approve, of.apply, *of.others)
    red = {re.sub(r"_\d+$", "", name) for name, state in facts.states.items() if state == "failed"}
    named = " and ".join(f"`{task}`" for task in mine if task in red)
    return f"No result: {named} failed, see *Failed* above." if named else "Not reached."


def _backup(facts: RunFacts) -> list[str]:
    made = facts.done.reports.get("backup")
    if not isinstance(made, BackupReport):
        return [_no_result(facts, "backup")]
    read = "read again and sound" if "verify" in facts.done.reports else "not verified"
    earlier = "no earlier backup was used"
    if made.incremental_from:
        earlier = f"{human_bytes(made.linked.bytes)} taken from {prose(made.incremental_from)}"
    return [
        f"{prose(made.backup)}: {count(made.total.files, 'file')}, {human_bytes(made.total.bytes)}, {read}.",
        f"{human_bytes(made.copied.bytes)} copied, {earlier}.",
    ]


def _attention(facts: RunFacts) -> tuple[str, ...]:
    lines = [line for name, plan in facts.plans.items() for line in planned(name).attention(plan, facts.drift)]
    late = facts.optimized.deferred if facts.optimized else ()
    lines += by_cause(("", t.table_key, "no room in the budget of this run; it stays planned") for t in late)
    lines += _frozen(facts.done.plans.get("optimize"), facts.optimized)
    lines += [f"{stage} skipped: {why}" for stage, why in facts.skipped.items()]
    return tuple(lines)


def _unapproved(facts: RunFacts) -> Iterator[str]:
    for stage, decision in facts.decisions.items():
        if not decision.approved:
            yield f"{stage} was not done: {refusal(decision, decision.digest)}"
    yield from (outcome.unapproved for outcome in outcomes_of(facts.done) if outcome.unapproved)


def _frozen(plan: OptimizePlan | None, report: OptimizeReport | None) -> Iterator[str]:
    """One line per freeze, however many tables it covers; it may have ended by now. Pure."""
    planned = {t.table_key: t.reason for t in plan.tables if t.skipped is SkipReason.FROZEN} if plan else {}
    for why, tables in Counter(planned.values()).items():
        yield f"{count(tables, 'table')} not optimized; when the run planned: {why}"
    skipped = (t.table_key for t in report.tables if t.skipped is SkipReason.FROZEN) if report else ()
    if late := set(skipped) - planned.keys():
        yield f"{count(len(late), 'table')} not optimized: a freeze began after the run had planned"


def _optimize(facts: RunFacts) -> list[str]:
    report = facts.optimized
    if report is None:
        return [_no_result(facts, "optimize")]
    spared = [t for t in report.tables if t.skipped in _SPARED]
    work = [t for t in report.tables if t.committed or t.error or (t.skipped and t not in spared)]
    rest = len(report.tables) - len(work) - len(spared)
    header = ("Table", "Outcome", "Fragments", "Where", "Indexes", "Written", "Amplification")
    lines = contents(Section.table("Tables", header, map(_optimize_cells, work)))
    of = count(len(report.tables), "table")
    lines += [f"{rest:,} of {of} had nothing to do."] if rest or not report.tables else []
    lines += [f"{len(spared)} were left alone: below the thresholds, or switched off for them."] if spared else []
    return lines + ([f"The run {written(report)}."] if report.bytes_rewritten else [])


def _optimize_cells(stats: TableStats) -> tuple[str, ...]:
    if stats.error:
        outcome = f"FAILED: {stats.error}"
    elif stats.skipped and not stats.committed:
        outcome = f"skipped: {stats.skipped}"
    else:
        left = f", then {stats.skipped}" if stats.skipped else ""
        outcome = f"published version {stats.published_version}{left}"
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
        return [_no_result(facts, stage.name)]
    outcome, report = facts.outcome_of(stage), facts.reports.get(stage.name)
    why = stage.nothing_to_do(plan)
    if why and (outcome is None or stage.name not in facts.decisions):
        return [f"{prose(why[0].upper() + why[1:])}."]
    lines = [_decision(facts, stage, plan.digest)]
    lines += ["", f"After that the run was cleared and planned again: {prose(why)}."] if why else []
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


def _decision(facts: RunFacts, stage: AnyPlanned, digest: str) -> str:
    decision, approve = facts.decisions.get(stage.name), stage.tasks.approve
    if decision is None and facts.states.get(approve) == "failed":
        return f"No answer counts: `{approve}` failed, and its error says why. The digest of the plan is `{digest}`."
    if decision is None or decision.timed_out:
        why = "nobody was asked" if facts.states.get(approve) == "skipped" else "nobody was asked, or nobody answered"
        why = prose(refusal(decision, digest) or "") if decision is not None else why
        then = (
            f"to carry it out, trigger `{stage.dag_id}` with this graph, **Confirm** and this digest before it expires"
        )
        if facts.approvers:
            then = f"{some(facts.approvers)} may answer the question of another run about it"
        return f"{why[0].upper()}{why[1:]}. The digest of the plan is `{digest}`: {then}."
    when = f" at {moment(decision.decided_at_us)}" if decision.decided_at_us else ""
    void = f"; it does not count: {prose(decision.void)}" if decision.void else ""
    return (
        f"{', '.join(decision.chosen_options)} by {prose(decision.decided_by)}{when}, digest `{decision.digest}`{void}."
    )


def _list(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", *(f"- {prose(line)}" for line in lines)] if lines else []


_WITHOUT_APPROVAL = {"optimize": _optimize, "backup": _backup}

"""The history of a graph: a record of each run, made of what its stages left, in a Lance table in `__maintenance/`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from omnigraph_ops.coordination.freezes import tells_of_freeze
from omnigraph_ops.coordination.state import HISTORY_PATH
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import new_ulid, now_us
from omnigraph_ops.lance.history_table import HistoryTable, literal, moment_literal, points_of, records_of, rows_of
from omnigraph_ops.models.history import (
    Answer,
    Measured,
    RunDecision,
    RunHeader,
    RunOutcome,
    RunRecord,
    TableCounts,
    TableRecord,
    TableTrendPoint,
    Work,
)
from omnigraph_ops.models.outcomes import Outcome, R, TableOutcome, TablePlanned
from omnigraph_ops.outcomes.results import (
    RunResults,
    StageFailure,
    in_turn,
    outcomes_of,
    redacted_record,
    redactor_of,
)
from omnigraph_ops.outcomes.run_journal import Warn


@dataclass(frozen=True, slots=True, kw_only=True)
class TableParts:
    """Everything about one table."""

    table_key: str
    before: Measured
    after: Measured
    planned: tuple[tuple[str, TablePlanned], ...]
    """What the plan of each stage knows of it, with the name of the stage."""
    done: tuple[tuple[str, TableOutcome], ...]
    """What each stage did to it."""
    failures: tuple[StageFailure, ...]
    interrupted: bool
    """Whether the run was ended while it worked on the table."""
    decisions: tuple[RunDecision, ...]
    """All of the run."""
    by_plan: frozenset[str]
    """The stages of which only the plan tells which tables a decision is about."""
    previewed: bool = False
    """Whether a plan of the run names work that nobody was asked about."""

    @property
    def asked(self) -> frozenset[str]:
        """The stages whose plan asks somebody about the table."""
        return frozenset(stage for stage, plan in self.planned if plan.asked)

    @property
    def undecided(self) -> frozenset[str]:
        """Those about which nobody decided."""
        return self.asked - {decision.stage for decision in self.decisions}

    @property
    def decided(self) -> tuple[RunDecision, ...]:
        """The decisions about plans that name the table."""
        done = {stage for stage, row in self.done if stage not in self.by_plan and not row.reason}
        return tuple(decision for decision in self.decisions if decision.stage in self.asked | done)


def parts_of(results: RunResults) -> tuple[TableParts, ...]:
    """The parts of every table that any stage looked at, by key. Pure."""
    planned = _by_key((stage, row) for stage in in_turn(results.plans) for row in results.plans[stage].by_table())
    outcomes = outcomes_of(results)
    done = _by_key((outcome.stage, row) for outcome in outcomes for row in outcome.tables)
    failures: dict[str, list[StageFailure]] = defaultdict(list)
    for failure in results.failures:
        if failure.table_key:
            failures[failure.table_key].append(failure)
    before, after = dict(results.before.tables), dict(results.after.tables)
    interrupted = results.interruption.tables | _left(planned, done) if results.interruption else frozenset[str]()
    by_plan = {*results.plans, *(outcome.stage for outcome in outcomes if outcome.asks_by_plan)}
    return tuple(
        TableParts(
            table_key=key,
            before=before.get(key, Measured()),
            after=after.get(key, Measured()),
            planned=tuple(planned.get(key, ())),
            done=tuple(done.get(key, ())),
            failures=tuple(failures.get(key, ())),
            interrupted=key in interrupted or any(row.interrupted for _, row in done.get(key, ())),
            decisions=results.decisions,
            by_plan=frozenset(by_plan),
            previewed=results.previewed,
        )
        for key in sorted({*planned, *done, *failures, *interrupted})
    )


def _left(
    planned: Mapping[str, Sequence[tuple[str, TablePlanned]]], done: Mapping[str, Sequence[tuple[str, TableOutcome]]]
) -> frozenset[str]:
    """The tables that a stage would have come to, had the run gone on. Pure."""
    tried = {key: {stage for stage, _ in rows} for key, rows in done.items()}
    return frozenset(
        key for key, rows in planned.items() if any(p.due and stage not in tried.get(key, ()) for stage, p in rows)
    )


def _by_key(rows: Iterable[tuple[str, R]]) -> dict[str, list[tuple[str, R]]]:
    """The rows of stages by their table. Pure."""
    found: dict[str, list[tuple[str, R]]] = defaultdict(list)
    for stage, row in rows:
        found[row.table_key].append((stage, row))
    return found


_NO_WORK = "no work"


def table_record(of: TableParts) -> TableRecord:
    """The row of one table. Pure."""
    stages, error = tuple(stage for stage, row in of.done if row.changed), _error(of)
    rewrite, after = next((row.rewrite for _, row in of.done if row.rewrite is not None), None), of.after
    if after.version is None and rewrite is not None:
        after = replace(after, version=rewrite.published_version)
    return TableRecord(
        table_key=of.table_key,
        outcome=_outcome(of, error, stages),
        stages=stages,
        reason="" if stages or error is not None else _reason(of),
        error=error,
        before=_before(of),
        after=after,
        work=Work.of(row.work for _, row in of.done),
        executor=rewrite.executor if rewrite is not None else None,
        windows=rewrite.windows if rewrite is not None else (),
        decisions=of.decided,
    )


def _outcome(of: TableParts, error: str | None, stages: tuple[str, ...]) -> RunOutcome:
    if error is not None:
        return RunOutcome.FAILED
    if of.interrupted:
        return RunOutcome.INTERRUPTED
    if stages:
        return RunOutcome.SUCCEEDED
    return RunOutcome.PREVIEWED if of.previewed and of.undecided else RunOutcome.NOTHING_TO_DO


def _error(of: TableParts) -> str | None:
    """The first thing that failed about the table. Pure."""
    tried = {stage for stage, _ in of.done}
    found = (
        *(f.message for f in of.failures),
        *(plan.error for stage, plan in of.planned if stage not in tried),
        *(row.error for _, row in of.done),
    )
    return next((error for error in found if error), None)


def _reason(of: TableParts) -> str:
    """Why nothing was done: what the first stage says that has a reason, or that there was no work. Pure."""
    if of.interrupted:
        return "interrupted"
    for stage in in_turn({name: None for name, _ in (*of.done, *of.planned)}):
        found = (
            # A decision that was not an approval says more than what the plan would have done.
            *(f"{stage} {d.answer.value}" for d in of.decided if d.stage == stage and d.answer is not Answer.APPROVED),
            *(row.reason for name, row in of.done if name == stage),
            *(plan.reason for name, plan in of.planned if name == stage),
        )
        if reason := next((reason for reason in found if reason), ""):
            return reason
    if not of.undecided:
        return _NO_WORK
    stage = min(of.undecided)
    work = ", ".join(plan.asked for name, plan in of.planned if name == stage and plan.asked)
    return f"{stage} not confirmed: {work}"


def _before(of: TableParts) -> Measured:
    """How the table stood when it was planned, as far as the run knows: nothing is read for this. Pure."""
    known, looked = of.before, {stage for stage, plan in of.planned if plan.error is None}
    for stage, row in of.done:
        if row.rewrite is not None and stage not in looked and of.after.fragments is not None:
            moved = row.work.fragments_removed - row.work.fragments_added
            # Whoever wrote meanwhile is in neither number.
            known = replace(known, fragments=max(0, of.after.fragments + moved), rows=row.rewrite.rows)
    for _, plan in of.planned:
        known = _filled(known, plan.before)
    return known


def _filled(known: Measured, more: Measured) -> Measured:
    """What is known, and what only the other one says. Pure."""
    missing = [name for name in _MEASURES if getattr(known, name) is None]
    return replace(known, **{name: getattr(more, name) for name in missing})


_MEASURES = tuple(field.name for field in fields(Measured))


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
    outcomes = outcomes_of(results)
    refused = any(decision.answer is not Answer.APPROVED for decision in results.decisions)
    if refused or any(outcome.unapproved for outcome in outcomes):
        return RunOutcome.UNAPPROVED
    if any(outcome.changed for outcome in outcomes):
        return RunOutcome.SUCCEEDED
    if _kept_by_freeze(results):
        return RunOutcome.FROZEN
    return RunOutcome.PREVIEWED if results.previewed else RunOutcome.NOTHING_TO_DO


def _kept_by_freeze(results: RunResults) -> bool:
    """Whether a freeze kept the run from a table, or from all of the graph. Pure."""
    reasons = [row.reason for plan in results.plans.values() for row in plan.by_table()]
    reasons += [row.reason for outcome in outcomes_of(results) for row in outcome.tables]
    return results.frozen or RunOutcome.FROZEN.value in reasons or any(map(tells_of_freeze, reasons))


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
    # To a table that was previewed nothing was done, either.
    found[RunOutcome.NOTHING_TO_DO] += found[RunOutcome.PREVIEWED]
    return TableCounts(**{field.name: found[RunOutcome(field.name)] for field in fields(TableCounts)})


def _graph_before(results: RunResults, tables: Iterable[TableRecord]) -> Measured:
    """How the graph stood before, from a plan, else from what is known of the time after. Pure."""
    known, after = results.before.graph, results.after.graph
    said: Measured | None = next(filter(None, (plan.graph_before() for plan in results.plans.values())), None)
    if said is not None:
        known = said if known.version is None else replace(said, version=known.version)
    if known.fragments is not None or after.fragments is None:
        return known
    maintained = [t for t in tables if t.after.fragments is not None]
    # What a repair published of a table that no plan looked into was not counted by anybody.
    if said is not None and any(t.before.fragments is None and t.before.version != t.after.version for t in maintained):
        return known
    moved = sum(t.work.fragments_removed - t.work.fragments_added for t in maintained)
    return replace(known, fragments=after.fragments + moved)


def table_of(graph: Graph) -> HistoryTable:
    """The table of a graph, reached as the graph is. Pure."""
    return HistoryTable(f"{graph.storage.root}/{HISTORY_PATH}", graph.lance.storage_options)


_RUNS = "table_key IS NULL"


def read_runs(graph: Graph, *, last: int | None = None, since_us: int | None = None) -> tuple[RunRecord, ...]:
    """The runs of a graph without their tables, the newest so many or since a moment if asked. Reads."""
    return records_of(table_of(graph).read(_since(_RUNS, since_us), newest=last))


def read_run(graph: Graph, run_id: str) -> RunRecord | None:
    """One run with its tables; None when the history has none of that id. Reads."""
    found = records_of(table_of(graph).read(f"run_id = {literal(run_id)}"))
    return found[0] if found else None


def table_trend(
    graph: Graph, table_key: str, *, last: int | None = None, since_us: int | None = None
) -> tuple[TableTrendPoint, ...]:
    """The runs that looked at a table. Reads."""
    where = _since(f"table_key = {literal(table_key)}", since_us)
    return points_of(table_of(graph).read(where, newest=last))


def _since(where: str, since_us: int | None) -> str:
    return where if since_us is None else f"{where} AND started_at >= {moment_literal(since_us)}"


_DAY_US = 86_400 * 1_000_000
_NOT_KEPT = "the history could not be written, which changes nothing about the run"
_NOT_SMALL = "the run is in the history, which could not be kept small"


def append(graph: Graph, record: RunRecord) -> None:
    """Add a record, without any secret that is known; the record of an earlier attempt of the run goes. Writes.

    Raises:
        LanceFailure, StorageError: it is not in the history, or the history was not kept small.
    """
    _add(graph, record)
    _keep_small(graph, record)


def keep(graph: Graph, make: Callable[[], RunRecord], *, warn: Warn) -> tuple[RunRecord | None, bool]:
    """Make and add a record: the record wherever it could be made, and whether the history has it. Writes.

    Whatever goes wrong is said and nothing else: the run is over.
    """
    record, kept = None, False
    try:
        record = make()
        _add(graph, record)
        kept = True
        _keep_small(graph, record)
    except Exception as error:
        # Not only errors of ours: no surprise in a report may turn a run that is done into a failed one.
        first = next(iter(str(error).splitlines()), type(error).__name__)
        warn(f"{_NOT_SMALL if kept else _NOT_KEPT}: {first}")
    return record, kept


def _add(graph: Graph, record: RunRecord) -> None:
    table_of(graph).append(rows_of(redacted_record(record, redactor_of(graph.storage))))


def _keep_small(graph: Graph, record: RunRecord) -> None:
    table, kept_us = table_of(graph), graph.settings.history_days * _DAY_US
    table.drop_older_records(record.run_id, record.record_id)
    table.maintain(expired_before_us=max(0, now_us() - kept_us))

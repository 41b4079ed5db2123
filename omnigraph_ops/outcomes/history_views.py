"""What a person is shown of the history: titles, facts and tables, as text, Markdown, HTML or CSV."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from omnigraph_ops.models.history import (
    HistoryList,
    Measured,
    RunDecision,
    RunOutcome,
    RunRecord,
    TableRecord,
    TableTrend,
    TableTrendPoint,
    UnsettledRun,
    Work,
)
from omnigraph_ops.quantities import human_bytes, moment
from omnigraph_ops.views.view import Section, View, csv_table, filled

_UNKNOWN = ""


def list_view(listed: HistoryList) -> View:
    """Runs, one per line. Pure."""
    header = (
        *("Started", "Run", "Verb", "Outcome", "Took", "Tables done / failed / interrupted / left"),
        *("Fragments", "Data", "Rewritten", "Amplification", "Reclaimed", "Score"),
    )
    rows = tuple(_run_cells(run) for run in listed.runs)
    sections = (
        Section(title="Not in the history yet", lines=tuple(map(_unsettled, listed.unsettled))),
        Section(title="Runs", header=header, rows=rows),
    )
    return View(
        title=f"History of {listed.uri}",
        facts=(("Runs", str(len(listed.runs))),),
        sections=filled(sections),
    )


def run_view(run: RunRecord) -> View:
    """The whole report of one run. Pure."""
    sections = (
        Section(title="Interrupted" if run.outcome is RunOutcome.INTERRUPTED else "Failed", lines=run.errors),
        Section(title="Needs attention", lines=run.attention),
        Section(title="Done", lines=run.notes),
        Section(title="Decisions", header=_DECISION_HEADER, rows=tuple(_decision_cells(d) for d in run.decisions)),
        Section(title="Tables", header=_TABLE_HEADER, rows=tuple(_table_cells(t) for t in run.tables)),
    )
    return View(
        title=f"Maintenance of {run.header.graph}",
        facts=tuple((name, value) for name, value in _facts(run) if value),
        sections=filled(sections),
    )


def trend_view(trend: TableTrend) -> View:
    """One table over its runs. Pure."""
    header = (
        *("Started", "Run", "Verb", "Outcome", "What", "Version", "Rows", "Fragments", "Data"),
        *("Deleted", "Unindexed", "Rewritten", "Amplification", "Armed"),
    )
    rows = tuple(_point_cells(point) for point in trend.points)
    return View(
        title=f"{trend.table_key} of {trend.uri}",
        facts=(("Runs", str(len(trend.points))),),
        sections=(Section(title="Runs", header=header, rows=rows),) if rows else (),
    )


def words(token: str) -> str:
    """A token for a person. Pure."""
    return token.replace("_", " ")


def _facts(run: RunRecord) -> Iterable[tuple[str, str]]:
    header = run.header
    yield "Run", run.run_id
    yield "Verb", header.verb
    yield "Outcome", words(run.outcome)
    yield "Started", moment(header.started_at_us)
    # Nobody wrote down when a killed run ended.
    end = "Last heard of" if run.outcome is RunOutcome.INTERRUPTED else "Ended"
    yield end, f"{moment(run.ended_at_us)}, after {_seconds(run.seconds)}"
    yield "Triggered by", header.triggered_by
    yield "Logical date", _UNKNOWN if header.logical_date_us is None else moment(header.logical_date_us)
    yield "Tool", f"omnigraph-ops {header.tool_version}"
    yield "Graph version", _moved(run.before.version, run.after.version)
    yield "Fragments", _moved(run.before.fragments, run.after.fragments)
    yield "Data", _bytes(run.after.data_bytes)
    yield "Dead bytes", _bytes(run.after.dead_bytes)
    yield "Health score", _number(run.after.score)
    yield "Rewritten", _bytes(run.work.bytes_rewritten)
    yield "Write amplification", _number(run.work.write_amplification)
    yield "Reclaimed", _bytes(run.work.bytes_reclaimed)
    yield "Versions removed", _number(run.work.versions_removed or None)
    yield "Files removed", _number(run.work.files_removed or None)
    yield "Preempted", _number(run.work.preempted)


def _unsettled(run: UnsettledRun) -> str:
    header = run.header
    if not run.at_work:
        state = "interrupted; the next command that writes to the graph records it"
    elif header.dag_id:  # only Airflow knows whether it goes on, and a command of the shell cannot ask it
        state = "no report yet; if it ended without one, the next recovery check of a DAG on this graph records it"
    else:
        state = "at work"
    return f"{header.verb} of {header.triggered_by} since {moment(header.started_at_us)}: {state} ({header.run_id})"


def _run_cells(run: RunRecord) -> tuple[str, ...]:
    counts = run.counts
    return (
        moment(run.header.started_at_us),
        run.run_id,
        run.header.verb,
        words(run.outcome),
        _seconds(run.seconds),
        f"{counts.succeeded} / {counts.failed} / {counts.interrupted} / {counts.nothing_to_do}",
        _moved(run.before.fragments, run.after.fragments),
        _bytes(run.after.data_bytes),
        _bytes(run.work.bytes_rewritten),
        _number(run.work.write_amplification),
        _bytes(run.work.bytes_reclaimed),
        _number(run.after.score),
    )


_TABLE_HEADER = (
    *("Table", "Outcome", "What", "Version", "Rows", "Fragments", "Data", "Deleted", "Unindexed"),
    *("Rewritten", "Amplification", "Reclaimed", "Versions removed", "Where", "Armed"),
)


def _table_cells(table: TableRecord) -> tuple[str, ...]:
    work = table.work
    return (
        table.table_key,
        words(table.outcome),
        what(table),
        *_state_cells(table.before, table.after),
        _bytes(work.bytes_rewritten),
        _number(work.write_amplification),
        _bytes(work.bytes_reclaimed),
        _number(work.versions_removed or None),
        words(table.executor or ""),
        _seconds(table.armed_seconds),
    )


def _point_cells(point: TableTrendPoint) -> tuple[str, ...]:
    table = point.table
    return (
        moment(point.started_at_us),
        point.run_id,
        point.verb,
        words(table.outcome),
        what(table),
        *_state_cells(table.before, table.after),
        _bytes(table.work.bytes_rewritten),
        _number(table.work.write_amplification),
        _seconds(table.armed_seconds),
    )


def _state_cells(before: Measured, after: Measured) -> tuple[str, ...]:
    return (
        _moved(before.version, after.version),
        _moved(before.rows, after.rows),
        _moved(before.fragments, after.fragments),
        _bytes(after.data_bytes),
        _share(after.deleted_share),
        _share(after.unindexed_share),
    )


def what(table: TableRecord) -> str:
    """What happened to a table, or why nothing did, in a few words. Pure."""
    if table.error is not None:
        return table.error
    return ", ".join(table.stages) if table.stages else words(table.reason)


_DECISION_HEADER = ("Stage", "Answer", "By", "At", "Plan")


def _decision_cells(decision: RunDecision) -> tuple[str, ...]:
    answer = f"{decision.answer}, forced" if decision.forced else str(decision.answer)
    at = _UNKNOWN if not decision.at_us else moment(decision.at_us)
    return (decision.stage, answer, decision.by, at, decision.digest)


def _moved(before: int | None, after: int | None) -> str:
    if after is None or before is None or before == after:
        return _number(before if after is None else after)
    return f"{before:,} → {after:,}"


def _number(number: float | int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}" if isinstance(number, int) else f"{number:g}"


def _bytes(count: int | None) -> str:
    return _UNKNOWN if count is None else human_bytes(count)


def _share(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{share:.1%}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return _UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.3g} s"


Row = dict[str, object]


def runs_csv(runs: Iterable[RunRecord]) -> str:
    """A line per run. Pure."""
    return _text([_run_row(run) for run in runs])


def run_csv(run: RunRecord) -> str:
    """A line for the run, then one per table of it. Pure."""
    identity = (run.run_id, run.header.started_at_us, run.header.verb)
    return _text([_run_row(run), *(_table_row(identity, table) for table in run.tables)])


def trend_csv(trend: TableTrend) -> str:
    """A line per run of the table. Pure."""
    return _text([_table_row((p.run_id, p.started_at_us, p.verb), p.table) for p in trend.points])


def _run_row(run: RunRecord) -> Row:
    said = "; ".join((*run.errors, *run.notes))
    identity = (run.run_id, run.header.started_at_us, run.header.verb)
    return _row(identity, "", run.outcome, run.seconds, said, run.before, run.after, run.work)


def _table_row(identity: tuple[str, int, str], table: TableRecord) -> Row:
    return _row(
        *(identity, table.table_key, table.outcome, table.armed_seconds, what(table)),
        *(table.before, table.after, table.work),
    )


def _row(  # noqa: PLR0917 - the columns, in their order
    identity: tuple[str, int, str],
    table_key: str,
    outcome: str,
    seconds: float | None,
    what_happened: str,
    before: Measured,
    after: Measured,
    work: Work,
) -> Row:
    run_id, started_at_us, verb = identity
    states = (("before", before), ("after", after))
    return {
        "run_id": run_id,
        "started_at": datetime.fromtimestamp(started_at_us / 1e6, UTC).isoformat(timespec="seconds"),
        "verb": verb,
        "table_key": table_key,
        "outcome": str(outcome),
        "seconds": seconds,
        "what": what_happened,
        **{f"{name}_{when}": value for when, state in states for name, value in asdict(state).items()},
        **asdict(work),
    }


def _text(rows: list[Row]) -> str:
    return csv_table(list(rows[0]), (list(row.values()) for row in rows)) if rows else ""

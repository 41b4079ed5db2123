"""What a person is shown of the history: titles, facts and tables, as text, Markdown, HTML or CSV."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from omnigraph_ops.models.history import (
    GIVEN_UP_SECONDS,
    HistoryList,
    RunDecision,
    RunOutcome,
    RunRecord,
    TableRecord,
    TableTrend,
    TableTrendPoint,
    UnsettledRun,
)
from omnigraph_ops.quantities import human_bytes, moment, took
from omnigraph_ops.views.markdown import human_seconds
from omnigraph_ops.views.view import Section, View, csv_table

_UNKNOWN = ""
Cells = dict[str, str]
"""A row of a table by the titles of its columns."""


def list_view(listed: HistoryList) -> View:
    """Runs, one per line. Pure."""
    sections = (
        Section(title="Not in the history yet", lines=tuple(map(_unsettled, listed.unsettled))),
        _table("Runs", map(_run_cells, listed.runs)),
    )
    return View.of(f"History of {listed.uri}", *sections, facts=(("Runs", str(len(listed.runs))),))


def run_view(run: RunRecord) -> View:
    """The whole report of one run. Pure."""
    sections = (
        Section(title="Interrupted" if run.outcome is RunOutcome.INTERRUPTED else "Failed", lines=run.errors),
        Section(title="Needs attention", lines=run.attention),
        Section(title="Done", lines=run.notes),
        _table("Decisions", map(_decision_cells, run.decisions)),
        _table("Tables", map(_table_cells, run.tables)),
    )
    return View.of(
        f"Maintenance of {run.header.graph}", *sections, facts=((name, value) for name, value in _facts(run) if value)
    )


def trend_view(trend: TableTrend) -> View:
    """One table over its runs. Pure."""
    return View.of(
        f"{trend.table_key} of {trend.uri}",
        _table("Runs", map(_point_cells, trend.points)),
        facts=(("Runs", str(len(trend.points))),),
    )


def _table(title: str, rows: Iterable[Cells]) -> Section:
    """A table of which each row names its columns. Pure."""
    found = list(rows)
    header = tuple(found[0]) if found else ()
    return Section.table(title, header, (tuple(row.values()) for row in found))


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
        state = (
            "no report yet; if it ended without one, the next recovery check of a DAG on this graph records it; "
            f"if Airflow does not know the run any more, {human_seconds(GIVEN_UP_SECONDS)} after its last sign of life"
        )
    else:
        state = "at work"
    return f"{header.verb} of {header.triggered_by} since {moment(header.started_at_us)}: {state} ({header.run_id})"


def _run_cells(run: RunRecord) -> Cells:
    counts = run.counts
    return {
        "Started": moment(run.header.started_at_us),
        "Run": run.run_id,
        "Verb": run.header.verb,
        "Outcome": words(run.outcome),
        "Took": _seconds(run.seconds),
        "Tables done / failed / interrupted / left": (
            f"{counts.succeeded} / {counts.failed} / {counts.interrupted} / {counts.nothing_to_do}"
        ),
        "Fragments": _moved(run.before.fragments, run.after.fragments),
        "Data": _bytes(run.after.data_bytes),
        "Rewritten": _bytes(run.work.bytes_rewritten),
        "Amplification": _number(run.work.write_amplification),
        "Reclaimed": _bytes(run.work.bytes_reclaimed),
        "Score": _number(run.after.score),
    }


def _table_cells(table: TableRecord) -> Cells:
    return {
        "Table": table.table_key,
        **_done_cells(table),
        "Reclaimed": _bytes(table.work.bytes_reclaimed),
        "Versions removed": _number(table.work.versions_removed or None),
        "Where": words(table.executor or ""),
        "Armed": _seconds(table.armed_seconds),
    }


def _point_cells(point: TableTrendPoint) -> Cells:
    return {
        "Started": moment(point.started_at_us),
        "Run": point.run_id,
        "Verb": point.verb,
        **_done_cells(point.table),
        "Armed": _seconds(point.table.armed_seconds),
    }


def _done_cells(table: TableRecord) -> Cells:
    before, after = table.before, table.after
    return {
        "Outcome": words(table.outcome),
        "What": what(table),
        "Version": _moved(before.version, after.version),
        "Rows": _moved(before.rows, after.rows),
        "Fragments": _moved(before.fragments, after.fragments),
        "Data": _bytes(after.data_bytes),
        "Deleted": _share(after.deleted_share),
        "Unindexed": _share(after.unindexed_share),
        "Rewritten": _bytes(table.work.bytes_rewritten),
        "Amplification": _number(table.work.write_amplification),
    }


def what(table: TableRecord) -> str:
    """What happened to a table, or why nothing did, in a few words. Pure."""
    if table.error is not None:
        return table.error
    return ", ".join(table.stages) if table.stages else words(table.reason)


def _decision_cells(decision: RunDecision) -> Cells:
    answer = f"{decision.answer}, forced" if decision.forced else str(decision.answer)
    at = _UNKNOWN if not decision.at_us else moment(decision.at_us)
    return {"Stage": decision.stage, "Answer": answer, "By": decision.by, "At": at, "Plan": decision.digest}


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
    return _UNKNOWN if seconds is None else took(seconds)


Row = dict[str, object]


def runs_csv(runs: Iterable[RunRecord]) -> str:
    """A line per run. Pure."""
    return _text([_run_row(run) for run in runs])


def run_csv(run: RunRecord) -> str:
    """A line for the run, then one per table of it. Pure."""
    header = run.header
    return _text([_run_row(run), *(_table_row(run.run_id, header.started_at_us, header.verb, t) for t in run.tables)])


def trend_csv(trend: TableTrend) -> str:
    """A line per run of the table. Pure."""
    return _text([_table_row(p.run_id, p.started_at_us, p.verb, p.table) for p in trend.points])


def _run_row(run: RunRecord) -> Row:
    return {
        **_identity(run.run_id, run.header.started_at_us, run.header.verb),
        "table_key": "",
        "outcome": run.outcome.value,
        "seconds": run.seconds,
        "what": "; ".join((*run.errors, *run.notes)),
        **_figures(run),
    }


def _table_row(run_id: str, started_at_us: int, verb: str, table: TableRecord) -> Row:
    return {
        **_identity(run_id, started_at_us, verb),
        "table_key": table.table_key,
        "outcome": table.outcome.value,
        "seconds": table.armed_seconds,
        "what": what(table),
        **_figures(table),
    }


def _identity(run_id: str, started_at_us: int, verb: str) -> Row:
    started = datetime.fromtimestamp(started_at_us / 1e6, UTC).isoformat(timespec="seconds")
    return {"run_id": run_id, "started_at": started, "verb": verb}


def _figures(of: RunRecord | TableRecord) -> Row:
    states = (("before", of.before), ("after", of.after))
    measured = {f"{name}_{when}": value for when, state in states for name, value in asdict(state).items()}
    return measured | asdict(of.work)


def _text(rows: list[Row]) -> str:
    return csv_table(list(rows[0]), (list(row.values()) for row in rows)) if rows else ""

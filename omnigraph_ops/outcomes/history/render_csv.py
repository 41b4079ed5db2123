"""Records of the history as CSV, in the columns of the table where a cell can hold them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from omnigraph_ops.models.history import Measured, RunRecord, TableRecord, TableTrend, Work
from omnigraph_ops.outcomes.history.views import what
from omnigraph_ops.views import csv

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
    return csv.table(list(rows[0]), (list(row.values()) for row in rows)) if rows else ""

"""The history of a graph: one record per run in a Lance table under `__maintenance/`."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph_ops.coordination.state import HISTORY_PATH
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.lance.history_table import HistoryTable, literal, moment_literal, points_of, records_of, rows_of
from omnigraph_ops.models.history import RunRecord, TableTrendPoint
from omnigraph_ops.outcomes.results import redacted_record, redactor

_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def table_of(graph: Graph) -> HistoryTable:
    """The table of a graph, reached as the graph is. Pure."""
    return HistoryTable(f"{graph.storage.root}/{HISTORY_PATH}", graph.lance.storage_options)


def redactor_of(graph: Graph) -> Callable[[str], str]:
    """Takes out of texts what must never be part of a record or a journal. Reads the environment."""
    options = graph.lance.storage_options or {}
    return redactor([options[name] for name in _CREDENTIALS if options.get(name)])


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

Warn = Callable[[str], None]


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
    table_of(graph).append(rows_of(redacted_record(record, redactor_of(graph))))


def _keep_small(graph: Graph, record: RunRecord) -> None:
    table, kept_us = table_of(graph), graph.settings.history_days * _DAY_US
    table.drop_older_records(record.run_id, record.record_id)
    table.maintain(expired_before_us=max(0, now_us() - kept_us))

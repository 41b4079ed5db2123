"""The history of a graph: one record per run in a Lance table under `__maintenance/`."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph_ops.coordination.state import HISTORY_PATH
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import now_us
from omnigraph_ops.lance.history_table import HistoryTable, literal, moment_literal, points_of, records_of, rows_of
from omnigraph_ops.models.history import RunRecord, TableTrendPoint
from omnigraph_ops.outcomes.results import redacted_record
from omnigraph_ops.storage.store import Storage

_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def table_at(source: Graph | Storage) -> HistoryTable:
    """The table of a graph, reached as the graph is; of a bare store, as the environment says. Reads."""
    if isinstance(source, Storage):
        return HistoryTable(f"{source.root}/{HISTORY_PATH}", source.access.lance(source.root))
    return HistoryTable(f"{source.storage.root}/{HISTORY_PATH}", source.lance.storage_options)


def credentials_of(source: Graph | Storage) -> tuple[str, ...]:
    """The values that must never be part of a record. Pure."""
    options = {} if isinstance(source, Storage) else source.lance.storage_options or {}
    return tuple(options[name] for name in _CREDENTIALS if options.get(name))


_RUNS = "table_key IS NULL"


def read_runs(
    source: Graph | Storage, *, last: int | None = None, since_us: int | None = None
) -> tuple[RunRecord, ...]:
    """The runs of a graph without their tables, the newest so many or since a moment if asked. Reads."""
    return records_of(table_at(source).read(_since(_RUNS, since_us), newest=last))


def read_run(source: Graph | Storage, run_id: str) -> RunRecord | None:
    """One run with its tables; None when the history has none of that id. Reads."""
    found = records_of(table_at(source).read(f"run_id = {literal(run_id)}"))
    return found[0] if found else None


def table_trend(
    source: Graph | Storage, table_key: str, *, last: int | None = None, since_us: int | None = None
) -> tuple[TableTrendPoint, ...]:
    """The runs that looked at a table. Reads."""
    where = _since(f"table_key = {literal(table_key)}", since_us)
    return points_of(table_at(source).read(where, newest=last))


def _since(where: str, since_us: int | None) -> str:
    return where if since_us is None else f"{where} AND started_at >= {moment_literal(since_us)}"


_DAY_US = 86_400 * 1_000_000
_NOT_KEPT = "the history could not be written, which changes nothing about the run"
_NOT_SMALL = "the run is in the history, which could not be kept small"

Warn = Callable[[str], None]


def append(source: Graph | Storage, record: RunRecord, *, days: int) -> None:
    """Add a record, without any secret that is known; the record of an earlier attempt of the run goes. Writes.

    Raises:
        LanceFailure, StorageError: it is not in the history, or the history was not kept small.
    """
    table = table_at(source)
    _add(table, source, record)
    _keep_small(table, record, days=days)


def keep(
    source: Graph | Storage, make: Callable[[], RunRecord], *, days: int, warn: Warn
) -> tuple[RunRecord | None, bool]:
    """Make and add a record: the record wherever it could be made, and whether the history has it. Writes.

    Whatever goes wrong is said and nothing else: the run is over.
    """
    record, kept = None, False
    try:
        record = make()
        table = table_at(source)
        _add(table, source, record)
        kept = True
        _keep_small(table, record, days=days)
    except Exception as error:
        # Not only errors of ours: no surprise in a report may turn a run that is done into a failed one.
        first = next(iter(str(error).splitlines()), type(error).__name__)
        warn(f"{_NOT_SMALL if kept else _NOT_KEPT}: {first}")
    return record, kept


def _add(table: HistoryTable, source: Graph | Storage, record: RunRecord) -> None:
    table.append(rows_of(redacted_record(record, credentials_of(source))))


def _keep_small(table: HistoryTable, record: RunRecord, *, days: int) -> None:
    table.drop_older_records(record.run_id, record.record_id)
    table.maintain(expired_before_us=max(0, now_us() - days * _DAY_US))

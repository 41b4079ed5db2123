"""Write the history: one commit per record, retention and compaction now and then, and never a failed run."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import now_us
from omnigraph_ops.lance.history_rows import rows_of
from omnigraph_ops.lance.history_table import HistoryTable
from omnigraph_ops.models.history import RunRecord
from omnigraph_ops.outcomes.history.place import credentials_of, table_at
from omnigraph_ops.outcomes.history.redacted import redacted_record
from omnigraph_ops.storage.store import Storage

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
    source: Graph | Storage,
    make: Callable[[], RunRecord],
    *,
    days: int,
    warn: Warn,
    on_kept: Callable[[], None] = lambda: None,
) -> RunRecord | None:
    """Make and add a record; the record wherever it could be made, for whoever else tells of the run. Writes.

    Whatever goes wrong is said and nothing else: the run is over.

    Args:
        on_kept: called when the record is in the history.
    """
    record: RunRecord | None = None
    consequence = _NOT_KEPT
    try:
        record = make()
        table = table_at(source)
        _add(table, source, record)
        on_kept()
        consequence = _NOT_SMALL
        _keep_small(table, record, days=days)
    except Exception as error:
        # Not only errors of ours: no surprise in a report may turn a run that is done into a failed one.
        first = next(iter(str(error).splitlines()), type(error).__name__)
        warn(f"{consequence}: {first}")
    return record


def _add(table: HistoryTable, source: Graph | Storage, record: RunRecord) -> None:
    table.append(rows_of(redacted_record(record, credentials_of(source))))


def _keep_small(table: HistoryTable, record: RunRecord, *, days: int) -> None:
    table.drop_older_records(record.run_id, record.record_id)
    table.maintain(expired_before_us=max(0, now_us() - days * _DAY_US))

"""Read the history: runs, one run, the trend of the graph or of a table. Always newest first."""

from __future__ import annotations

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.lance.history_rows import points_of, records_of
from omnigraph_ops.lance.history_table import literal, moment_literal
from omnigraph_ops.models.history import RunRecord, TableTrendPoint
from omnigraph_ops.outcomes.history.place import table_at
from omnigraph_ops.storage.store import Storage

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

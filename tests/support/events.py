"""Dated rows for row retention: a schema of events with edges beside them, and plain datasets of times."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from omnigraph_ops.lance.text_indexer import home_of

SCHEMA = """\
node Event {
    name: String @key
    happened_at: DateTime? @index
    day: Date?
    at_ms: I64? @index
    note: String?
}
node Place {
    code: String @key
}
node Visit {
    text: String
    at: DateTime?
}
edge At: Event -> Place {
    since: Date?
    at_s: I64?
}
edge After: Event -> Event
edge Never: Place -> Event
"""
EVENT, AT, AFTER, NEVER = "node:Event", "edge:At", "edge:After", "edge:Never"


def event(number: int, age_days: float | None, *, now: datetime, note: str | None = None) -> dict[str, object]:
    """One event of that age; None leaves every date null."""
    when = None if age_days is None else now - timedelta(days=age_days)
    data = {
        "name": f"e{number}",
        "happened_at": None if when is None else f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z",
        "day": None if when is None else f"{when:%Y-%m-%d}",
        "at_ms": None if when is None else int(when.timestamp() * 1000),
        "note": note,
    }
    return {"type": "Event", "data": data}


def events(count: int, *, now: datetime, first: int = 0, newest_days: int = 0) -> list[dict[str, object]]:
    """Events one day apart, `first` the newest; each at a place and after the one before it."""
    rows: list[dict[str, object]] = [{"type": "Place", "data": {"code": f"c{n}"}} for n in range(first, first + count)]
    for n in range(first, first + count):
        age = newest_days + n - first
        rows.append(event(n, age, now=now))
        at_s = int((now - timedelta(days=age)).timestamp())
        rows.append({"edge": "At", "from": f"e{n}", "to": f"c{n}", "data": {"since": f"{now:%Y-%m-%d}", "at_s": at_s}})
        if n > first:
            rows.append({"edge": "After", "from": f"e{n}", "to": f"e{n - 1}"})
    return rows


def timed(path: Path, arrays: dict[str, pa.Array], *, rows_per_file: int = 1_000_000) -> Any:
    """A plain dataset of these columns beside an id."""
    count = len(next(iter(arrays.values())))
    table = pa.table({"id": pa.array(range(count), pa.int64()), **arrays})
    return lance.write_dataset(table, str(path), enable_stable_row_ids=True, max_rows_per_file=rows_per_file)


def utc_now() -> datetime:
    """Now, to the millisecond."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


UTC_TIME = pa.timestamp("us", "UTC")
ITEMS = "table:items"


def stamps(ages: list[int | None], kind: pa.DataType = UTC_TIME) -> pa.Array:
    """Times so many days ago; a null for None."""
    now = utc_now()
    return pa.array([None if age is None else now - timedelta(days=age) for age in ages], kind)


def items(folder: Path, ages: list[int | None], **more: Any) -> Path:
    """A folder with `items.lance`, its rows of these ages. Writes."""
    timed(folder / "items.lance", {"at": stamps(ages)}, **more)
    return folder


_FOLD = """
import sys, lance, pyarrow as pa
uri, kind, fresh = sys.argv[1:]
dataset = lance.dataset(uri)
dataset.create_scalar_index("at", kind)
dataset.merge_insert("id").when_matched_update_all().execute(pa.ipc.open_file(fresh).read_all())
dataset.optimize.optimize_indices()
"""


def updated_and_folded(
    folder: Path, ages: list[int | None], fresh: list[int], *, kind: str, nullable: bool, release: str
) -> None:
    """As `items`, with an index on the time, of which rows `fresh` are of today since; folded by that pylance. Writes.

    Before Lance 9 the index keeps the old times of those rows.
    """
    schema = pa.schema([pa.field("id", pa.int64(), nullable), pa.field("at", UTC_TIME, nullable)])
    uri, arrow = str(folder / "items.lance"), str(folder / "fresh.arrow")
    rows = pa.table([pa.array(range(len(ages)), pa.int64()), stamps(ages)], schema=schema)
    lance.write_dataset(rows, uri, enable_stable_row_ids=True)
    with pa.ipc.new_file(arrow, schema) as writer:
        writer.write_table(pa.table([pa.array(fresh, pa.int64()), stamps([0] * len(fresh))], schema=schema))
    environment = {**os.environ, "PYTHONPATH": str(home_of(None) / release)}
    subprocess.run([sys.executable, "-P", "-c", _FOLD, uri, kind, arrow], check=True, env=environment)


def ids(folder: Path) -> list[int]:
    """The rows of `items.lance` that are there."""
    return sorted(lance.dataset(str(folder / "items.lance")).to_table(columns=["id"]).column("id").to_pylist())

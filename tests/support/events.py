"""Dated rows for row retention: a schema of events with edges beside them, and plain datasets of times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

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


def ids(folder: Path) -> list[int]:
    """The rows of `items.lance` that are there."""
    return sorted(lance.dataset(str(folder / "items.lance")).to_table(columns=["id"]).column("id").to_pylist())

"""Reduce the rows of a graph manifest to a branch state: shared by both generations. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.location import GraphLocation, checked_table_path
from omnigraph_ops.graph.state import TableEntry

Row = dict[str, Any]
RowKey = Callable[[Row], Any]


def typed_rows(rows: pa.Table, schema: pa.Schema, root: str) -> list[Row]:
    """Rows as dictionaries after checking that the columns are what the engine requires. Pure."""
    for field in schema:
        index = rows.schema.get_field_index(field.name)
        if index < 0 or rows.schema.field(index).type != field.type:
            found = "missing" if index < 0 else str(rows.schema.field(index).type)
            raise CorruptGraph(
                f"{root}/__manifest column {field.name} is {found}, expected {field.type}; nothing was written"
            )
    result: list[Row] = rows.to_pylist()
    return result


def of_type(rows: Iterable[Row], object_type: str) -> list[Row]:
    """The rows of one kind; kinds this tool does not know are skipped, as the engine does. Pure."""
    return [r for r in rows if r["object_type"] == object_type]


def newest(rows: Iterable[Row], key: RowKey) -> dict[Any, Row]:
    """Per key the row with the greatest `table_version`. Pure."""
    best: dict[Any, Row] = {}
    for row in rows:
        if row["table_version"] is None:
            raise CorruptGraph(f"__manifest row {row['object_id']!r} has no table_version; nothing was written")
        held = best.get(key(row))
        if held is None or row["table_version"] > held["table_version"]:
            best[key(row)] = row
    return best


def is_live(version: Row, tombstone: Row | None) -> bool:
    """A table is live unless a tombstone at or past its newest version hides it. Pure."""
    return tombstone is None or bool(tombstone["table_version"] < version["table_version"])


def check_metadata(row: Row) -> None:
    """Refuse a version row whose metadata no engine can decode: it would break every open. Pure."""
    try:
        decoded = json.loads(row["metadata"] or "")
        valid = isinstance(decoded, dict) and isinstance(decoded.get("manifest_path"), str)
    except (ValueError, RecursionError):
        valid = False
    if not valid:
        raise CorruptGraph(f"__manifest row {row['object_id']!r} has undecodable metadata; nothing was written")


def entry_of(location: GraphLocation, table_key: str, path: str | None, row: Row, **extra: Any) -> TableEntry:
    """A live entry from its registration and its newest version row. Reads links."""
    if not path:
        raise CorruptGraph(f"__manifest registers {table_key} without a location; nothing was written")
    return TableEntry(
        table_key=table_key,
        path=checked_table_path(location, path),
        version=int(row["table_version"]),
        branch=row["table_branch"],
        row_count=row["row_count"],
        manifest_path=json.loads(row["metadata"])["manifest_path"],
        **extra,
    )


def sorted_entries(entries: Iterable[TableEntry], root: str) -> tuple[TableEntry, ...]:
    """Entries by key; two live tables with one key are corruption. Pure."""
    ordered = sorted(entries, key=lambda e: e.table_key)
    for left, right in itertools.pairwise(ordered):
        if left.table_key == right.table_key:
            raise CorruptGraph(f"{root}/__manifest has two live tables {left.table_key!r}; nothing was written")
    return tuple(ordered)

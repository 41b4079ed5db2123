"""Reduce the rows of a graph manifest to a branch state: shared by both generations. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.storage.location import GraphLocation, checked_table_path

Row = dict[str, Any]


def checked_rows(rows: pa.Table, schema: pa.Schema, root: str) -> pa.Table:
    """The rows after checking that the columns are what the engine requires. Pure."""
    for field in schema:
        index = rows.schema.get_field_index(field.name)
        if index < 0 or rows.schema.field(index).type != field.type:
            found = "missing" if index < 0 else str(rows.schema.field(index).type)
            raise CorruptGraph(
                f"{root}/__manifest column {field.name} is {found}, expected {field.type}; nothing was written"
            )
    return rows


def of_type(rows: pa.Table, object_type: str) -> pa.Table:
    """The rows of one kind; kinds this tool does not know are skipped, as the engine does. Pure."""
    return rows.filter(pc.equal(rows.column("object_type"), object_type))


def newest(rows: pa.Table, key: Sequence[str]) -> list[Row]:
    """Per key, given by its columns, the row with the greatest `table_version`. Pure.

    A graph manifest keeps a row for every version ever published: only those that count become Python values.
    """
    versions = rows.column("table_version")
    if versions.null_count:
        row = rows.filter(versions.is_null()).column("object_id")[0].as_py()
        raise CorruptGraph(f"__manifest row {row!r} has no table_version; nothing was written")
    order: list[tuple[str, str]] = [(name, "ascending") for name in key]
    ranked = rows.take(pc.sort_indices(rows, [*order, ("table_version", "descending")]))
    first = np.ones(ranked.num_rows, dtype=bool)
    if ranked.num_rows > 1:
        first[1:] = False
        for name in key:
            column = ranked.column(name)
            first[1:] |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy()
    result: list[Row] = ranked.filter(pa.array(first)).to_pylist()
    return result


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

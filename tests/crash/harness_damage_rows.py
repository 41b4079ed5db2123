"""Ways to damage the rows of a graph manifest: well-formed Lance, nonsense inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from tests.crash.harness_damage import Damage

Row = dict[str, Any]
Edit = Callable[[list[Row]], list[Row]]


def rows(edit: Edit) -> Damage:
    """Overwrite the graph manifest with edited rows, its stamp kept. Writes."""

    def damage(root: Path) -> None:
        dataset = lance.dataset(str(root / "__manifest"))
        table = dataset.to_table()
        edited = pa.Table.from_pylist(edit(table.to_pylist()), schema=table.schema)
        lance.write_dataset(edited, dataset.uri, mode="overwrite")

    return damage


def retyped(column: str, kind: pa.DataType | None) -> Damage:
    """Change a column's type, or drop it. Writes."""

    def damage(root: Path) -> None:
        dataset = lance.dataset(str(root / "__manifest"))
        table = dataset.to_table()
        index = table.schema.get_field_index(column)
        if kind is None:
            table = table.drop_columns([column])
        else:
            table = table.set_column(index, pa.field(column, kind), table.column(column).cast(kind))
        lance.write_dataset(table, dataset.uri, mode="overwrite")

    return damage


def in_versions(**cells: object) -> Damage:
    """Set cells in every version row of `node:Person`."""
    return rows(lambda data: [r | cells if _is(r, "table_version") else r for r in data])


def in_newest_version(**cells: object) -> Damage:
    """Set cells in the newest version row of `node:Person`."""

    def edit(data: list[Row]) -> list[Row]:
        newest = max((r for r in data if _is(r, "table_version")), key=lambda r: r["table_version"])
        return [r | cells if r is newest else r for r in data]

    return rows(edit)


def in_registration(**cells: object) -> Damage:
    """Set cells in the registration of `node:Person`."""
    return rows(lambda data: [r | cells if _is(r, "table") else r for r in data])


def in_commits(**cells: object) -> Damage:
    """Set cells in every lineage row."""
    return rows(lambda data: [r | cells if r["object_type"] == "graph_commit" else r for r in data])


def without_registration() -> Damage:
    """Versions of a table that nobody registered."""
    return rows(lambda data: [r for r in data if not _is(r, "table")])


def second_registration(**cells: object) -> Damage:
    """A second registration with versions of its own under the same key."""

    def edit(data: list[Row]) -> list[Row]:
        copies = [r | cells | {"object_id": f"again:{r['object_id']}"} for r in data if r["table_key"] == "node:Person"]
        return data + copies

    return rows(edit)


def tombstone(version: int | None, **cells: object) -> Damage:
    """A tombstone of `node:Person` at that version."""

    def edit(data: list[Row]) -> list[Row]:
        model = next(r for r in data if _is(r, "table_version"))
        row = model | {"object_id": "tombstone:x", "object_type": "table_tombstone", "table_version": version}
        return [*data, row | {"metadata": None} | cells]

    return rows(edit)


def extra_row(**cells: object) -> Damage:
    """One more row of a kind of its own."""

    def edit(data: list[Row]) -> list[Row]:
        model = next(r for r in data if _is(r, "table_version"))
        return [*data, model | {"object_id": "extra"} | cells]

    return rows(edit)


def doubled() -> Damage:
    """Every row twice."""
    return rows(lambda data: data + data)


def _is(row: Row, kind: str) -> bool:
    return bool(row["object_type"] == kind and row["table_key"] == "node:Person")

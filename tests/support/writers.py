"""Another writer of the graph, as the engine would be: Lance commits that are then published."""

from __future__ import annotations

from collections.abc import Callable

import lance
import pyarrow as pa

from omnigraph_ops.graph import Graph
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.state import TableEntry

Change = Callable[[lance.LanceDataset], object]


def entry_of(graph: Graph, table_key: str, branch: str | None = None) -> TableEntry:
    """The published entry; the test fails when the table is not live. Reads."""
    entry = graph.state(branch).get(table_key)
    assert entry is not None
    return entry


def write(graph: Graph, table_key: str, change: Change) -> None:
    """Commit `change` on the HEAD of a table and publish it. Writes."""
    entry = entry_of(graph, table_key)
    change(graph.open_head(entry))
    publish(graph, (table_update(graph, entry, graph.open_head(entry)),), actor=None)


def drift(graph: Graph, table_key: str, change: Change) -> None:
    """Commit `change` on the HEAD of a table without publishing it. Writes."""
    change(graph.open_head(entry_of(graph, table_key)))


def copies(prefix: str, count: int = 3) -> Change:
    """Appends copies of the first rows under new ids."""

    def change(dataset: lance.LanceDataset) -> None:
        rows = dataset.to_table(limit=count)
        ids = pa.array([f"{prefix}{n}" for n in range(rows.num_rows)], pa.string())
        for name in ("id", "slug", "name"):
            if name in rows.column_names:
                rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), ids)
        lance.write_dataset(rows, dataset, mode="append")

    return change


def delete_first(count: int = 1) -> Change:
    """Deletes the first rows in storage order."""

    def change(dataset: lance.LanceDataset) -> None:
        ids = dataset.to_table(columns=["id"], limit=count).column("id").to_pylist()
        dataset.delete(" OR ".join(f"id = '{value}'" for value in ids))

    return change

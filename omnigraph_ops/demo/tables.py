"""Write the Lance tables of a demo graph the way the engine does: local disk, plain absolute paths."""

from __future__ import annotations

import os
from typing import Any

import lance
import pyarrow as pa

from omnigraph_ops.demo.contract import DemoTable
from omnigraph_ops.demo.schema import DemoType
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.lance.text_index_process import process_of
from omnigraph_ops.lance.text_indexer import home_of, is_installed
from omnigraph_ops.progress import SILENT

Dataset = Any
"""A `lance.LanceDataset`; the package publishes no types."""


def create(uri: str, rows: pa.Table) -> Dataset:
    """Create a dataset at version 1 with the engine's parameters. Writes."""
    # Version 1 of the engine is an Overwrite as well; stable row ids and 2.2 are what its readers expect.
    return lance.write_dataset(
        rows,
        uri,
        mode="create",
        data_storage_version="2.2",
        enable_stable_row_ids=True,
        allow_external_blob_outside_bases=True,
    )


def create_table(root: str, table: DemoTable, stamp: int) -> Dataset:
    """Create the empty table of a type. Writes."""
    return create(os.path.join(root, table.path), table.type.arrow(stamp).empty_table())


def open_table(root: str, table: DemoTable) -> Dataset:
    """The main chain of a table at its Lance HEAD. Reads."""
    return lance.dataset(os.path.join(root, table.path))


def append(dataset: Dataset, rows: pa.Table) -> Dataset:
    """Append one fragment; stays on the branch of the handle. Writes."""
    return lance.write_dataset(
        rows,
        dataset,
        mode="append",
        max_rows_per_file=max(rows.num_rows, 1),
        allow_external_blob_outside_bases=True,
    )


def build_indexes(dataset: Dataset, declared: DemoType, text_release: str) -> None:
    """Build what the engine builds for the type; a vector index waits for the first vector. Writes.

    Args:
        text_release: the pylance release that builds text indexes where it is installed; else the own one does, and
            the engine does not find every word.
    """
    home = home_of(None)
    for column, kind in declared.indexes():
        if kind == "INVERTED" and is_installed(home, text_release):
            request = {"kind": "build", "column": column, "name": f"{column}_idx"}
            place = {"uri": dataset.uri, "version": None, "storage_options": None}
            process_of(home / text_release).ask(f"build index on {column}", {**place, **request}, SILENT)
            dataset.checkout_latest()
        elif kind != "IVF_FLAT":
            dataset.create_scalar_index(column, kind, replace=True)
        elif dataset.count_rows(f"{column} IS NOT NULL"):
            dataset.create_index(column, kind, metric="L2", num_partitions=1, replace=True)


def merge(dataset: Dataset, rows: pa.Table) -> None:
    """Replace existing rows by id. Writes."""
    dataset.merge_insert("id").when_matched_update_all().use_index(False).execute(rows)


def delete_ids(dataset: Dataset, columns: tuple[str, ...], ids: tuple[str, ...]) -> bool:
    """Delete rows with one of `ids` in one of `columns`; whether there were any. Writes."""
    listed = ", ".join(f"'{value}'" for value in ids)
    predicate = " OR ".join(f"{column} IN ({listed})" for column in columns)
    if not dataset.count_rows(predicate):
        return False
    dataset.delete(predicate)
    return True


def move_past_pin(dataset: Dataset, table_key: str, kind: str) -> None:
    """Advance the Lance HEAD without a publish. Writes."""
    before = dataset.version
    if kind == "compaction":
        dataset.optimize.compact_files()
    elif kind == "delete":
        first = dataset.head(1, columns=["id"]).column("id").to_pylist()
        if first:
            dataset.delete(f"id = '{first[0]}'")
    else:
        dataset.delete("id = 'no such row'")
    if lance.dataset(dataset.uri).version == before:
        raise InvalidInput(f"{table_key} has too few rows for drift by {kind}; give the demo graph more loads")

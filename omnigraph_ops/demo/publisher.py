"""The face of the two publishers of a demo graph, and what they share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import lance
import pyarrow as pa

from omnigraph_ops.demo.contract import DemoTable
from omnigraph_ops.demo.tables import Dataset
from omnigraph_ops.graph.layout import MANIFEST_DIR, STAMP_KEY, version_path
from omnigraph_ops.graph.rows import ManifestRow, VersionMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """One table version to publish."""

    table: DemoTable
    version: int
    rows: int
    branch: str | None = None


class Publisher(Protocol):
    """Writes the graph manifest and the lineage of one stamp."""

    def create(self, versions: tuple[TableVersion, ...]) -> None:
        """Create the graph manifest with the empty tables registered, and the genesis commit. Writes."""

    def publish(self, versions: tuple[TableVersion, ...], branch: str | None = None) -> None:
        """Publish table versions as one graph commit. Writes."""

    def create_branch(self, name: str) -> None:
        """Create a graph branch at the head of main. Writes."""


def table_version(table: DemoTable, dataset: Dataset, branch: str | None = None) -> TableVersion:
    """The open version of a table, ready to publish. Reads."""
    return TableVersion(table=table, version=dataset.version, rows=dataset.count_rows(), branch=branch)


def version_metadata(root: str, version: TableVersion, *, leading_slash: bool) -> str:
    """The metadata cell of a version row on local disk; the e_tag is the engine's. Reads."""
    path = os.path.join(root, version_path(version.table.path, version.version, version.branch))
    info = os.stat(path)
    return VersionMetadata(
        manifest_path=path if leading_slash else path.removeprefix("/"),
        manifest_size=info.st_size,
        e_tag=f"{info.st_ino:x}-{info.st_mtime_ns // 1000:x}-{info.st_size:x}",
        naming_scheme="V2",
    ).to_json()


def version_row(object_id: str, metadata: str, version: TableVersion) -> ManifestRow:
    """The `table_version` row of a version. Pure."""
    return ManifestRow(
        object_id=object_id,
        object_type="table_version",
        metadata=metadata,
        table_key=version.table.key,
        identity=version.table.identity,
        table_version=version.version,
        table_branch=version.branch,
        row_count=version.rows,
    )


def registration_row(object_id: str, table: DemoTable) -> ManifestRow:
    """The `table` row of a table. Pure."""
    return ManifestRow(
        object_id=object_id,
        object_type="table",
        location=table.path,
        table_key=table.key,
        identity=table.identity,
    )


def open_manifest(root: str, branch: str | None) -> Dataset:
    """The graph manifest of a branch at its latest version. Reads."""
    main = lance.dataset(os.path.join(root, MANIFEST_DIR))
    return main if branch is None else main.checkout_version((branch, None))


def stamp_manifest(manifest: Dataset, stamp: int) -> None:
    """The two commits after the creation: version management, then the stamp. Writes."""
    manifest.update_config({"table_version_management": "true"})
    manifest.update_schema_metadata({STAMP_KEY: str(stamp)})


def merge_rows(manifest: Dataset, rows: pa.Table) -> None:
    """The row-level compare-and-swap of a publish. Writes."""
    (
        manifest.merge_insert(["object_id"])
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .conflict_retries(0)
        .use_index(False)
        .execute(rows)
    )

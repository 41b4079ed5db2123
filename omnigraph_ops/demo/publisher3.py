"""Publish a demo graph of stamp 3: versions in the graph manifest, lineage in datasets of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass

import lance
import pyarrow as pa

from omnigraph_ops.demo.contract import DemoTable
from omnigraph_ops.demo.publisher import (
    TableVersion,
    merge_rows,
    open_manifest,
    registration_row,
    stamp_manifest,
    version_metadata,
    version_row,
)
from omnigraph_ops.demo.tables import Dataset, append, create
from omnigraph_ops.graph.ids import new_ulid, now_us
from omnigraph_ops.graph.layout import ACTORS_DIR, COMMITS_DIR, MANIFEST_DIR
from omnigraph_ops.graph.rows import (
    ACTORS_SCHEMA,
    COMMITS_SCHEMA,
    MANIFEST_SCHEMA_3,
    ManifestRow,
    manifest_table,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher3:
    """The publisher of stamp 3."""

    root: str

    def create(self, versions: tuple[TableVersion, ...]) -> None:
        """Create the graph manifest and the two lineage datasets. Writes."""
        rows = [row for v in versions for row in (registration_row(v.table.key, v.table), self._row(v))]
        manifest = create(os.path.join(self.root, MANIFEST_DIR), manifest_table(rows, MANIFEST_SCHEMA_3))
        stamp_manifest(manifest, 3)
        version = open_manifest(self.root, None).version
        create(os.path.join(self.root, COMMITS_DIR), _commit_row(None, version, None))
        create(os.path.join(self.root, ACTORS_DIR), ACTORS_SCHEMA.empty_table())

    def publish(self, versions: tuple[TableVersion, ...], branch: str | None = None) -> None:
        """Merge the versions, then append the graph commit. Writes."""
        rows = manifest_table([self._row(v) for v in versions], MANIFEST_SCHEMA_3)
        merge_rows(open_manifest(self.root, branch), rows)
        commits = self._commits(branch)
        manifest_version = open_manifest(self.root, branch).version
        append(commits, _commit_row(branch, manifest_version, _head(commits)))

    def create_branch(self, name: str) -> None:
        """Branch the graph manifest, then the commit graph. Writes."""
        for dataset in (open_manifest(self.root, None), self._commits(None)):
            dataset.create_branch(name, dataset.version)

    def _commits(self, branch: str | None) -> Dataset:
        main = lance.dataset(os.path.join(self.root, COMMITS_DIR))
        return main if branch is None else main.checkout_version((branch, None))

    def _row(self, version: TableVersion) -> ManifestRow:
        metadata = version_metadata(self.root, version, leading_slash=False)
        return version_row(_object_id(version.table, version.version), metadata, version)


def _object_id(table: DemoTable, version: int) -> str:
    return f"{table.key}${version:020d}"


def _head(commits: Dataset) -> str:
    rows = commits.to_table(columns=["manifest_version", "created_at", "graph_commit_id"]).to_pylist()
    newest = max(rows, key=lambda r: (r["manifest_version"], r["created_at"], r["graph_commit_id"]))
    return str(newest["graph_commit_id"])


def _commit_row(branch: str | None, manifest_version: int, parent: str | None) -> pa.Table:
    row = {
        "graph_commit_id": new_ulid(),
        "manifest_branch": branch,
        "manifest_version": manifest_version,
        "parent_commit_id": parent,
        "merged_parent_commit_id": None,
        "created_at": now_us(),
    }
    return pa.Table.from_pylist([row], schema=COMMITS_SCHEMA)

"""Publish a demo graph of stamp 6: versions and lineage in one merge on the graph manifest."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from omnigraph_ops.demo.publisher import (
    TableVersion,
    merge_rows,
    open_manifest,
    registration_row,
    stamp_manifest,
    version_metadata,
    version_row,
)
from omnigraph_ops.demo.tables import Dataset, create
from omnigraph_ops.graph.catalog import TableIdentity
from omnigraph_ops.graph.ids import new_ulid, now_us
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.rows import (
    MANIFEST_SCHEMA_6,
    ManifestRow,
    commit_metadata,
    head_metadata,
    manifest_table,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher6:
    """The publisher of stamp 6."""

    root: str

    def create(self, versions: tuple[TableVersion, ...]) -> None:
        """Create the graph manifest with its genesis commit. Writes."""
        rows = [row for v in versions for row in (self._registration(v), self._row(v))]
        rows += _lineage_rows(None, 1, None)
        manifest = create(os.path.join(self.root, MANIFEST_DIR), manifest_table(rows, MANIFEST_SCHEMA_6))
        stamp_manifest(manifest, 6)

    def publish(self, versions: tuple[TableVersion, ...], branch: str | None = None) -> None:
        """Merge versions, graph commit and head in one commit. Writes."""
        manifest = open_manifest(self.root, branch)
        rows = [self._row(v) for v in versions]
        rows += _lineage_rows(branch, manifest.version + 1, _head(manifest))
        merge_rows(manifest, manifest_table(rows, MANIFEST_SCHEMA_6))

    def create_branch(self, name: str) -> None:
        """Branch the graph manifest and nothing else. Writes."""
        manifest = open_manifest(self.root, None)
        manifest.create_branch(name, manifest.version)

    def _registration(self, version: TableVersion) -> ManifestRow:
        return registration_row(f"table:{_spelled(version.table.identity)}", version.table)

    def _row(self, version: TableVersion) -> ManifestRow:
        object_id = f"table_version:{_spelled(version.table.identity)}:{version.version:020d}"
        return version_row(object_id, version_metadata(self.root, version, leading_slash=True), version)


def _spelled(identity: TableIdentity | None) -> str:
    if identity is None:
        raise ValueError("a table of stamp 6 has an identity")
    return f"{identity.stable_table_id:016x}:{identity.table_incarnation_id:016x}"


def _head(manifest: Dataset) -> str:
    """The newest commit visible on this branch, inherited ones included. Reads."""
    columns = ["object_id", "table_version", "metadata"]
    commits = manifest.to_table(columns=columns, filter="object_type = 'graph_commit'").to_pylist()
    newest = max(commits, key=lambda r: (r["table_version"], json.loads(r["metadata"])["created_at"], r["object_id"]))
    return str(newest["object_id"])


def _lineage_rows(branch: str | None, manifest_version: int, parent: str | None) -> list[ManifestRow]:
    now = now_us()
    commit_id = new_ulid(now)
    commit = ManifestRow(
        object_id=commit_id,
        object_type="graph_commit",
        metadata=commit_metadata(parent, None, now),
        table_key="",
        table_version=manifest_version,
        table_branch=branch,
    )
    head = ManifestRow(
        object_id=f"graph_head:{branch or 'main'}",
        object_type="graph_head",
        metadata=head_metadata(commit_id, parent),
        table_key="",
    )
    return [commit, head]

"""Publish a demo graph, one publisher per stamp."""

from __future__ import annotations

import os
from dataclasses import dataclass

import lance
import pyarrow as pa

from omnigraph_ops.demo.contract import DemoTable
from omnigraph_ops.demo.tables import Dataset, append, create
from omnigraph_ops.graph import stamp3, stamp6
from omnigraph_ops.graph.layout import ACTORS_DIR, COMMITS_DIR, MANIFEST_DIR, STAMP_KEY, new_ulid, now_us, version_path
from omnigraph_ops.graph.publish import merge_rows
from omnigraph_ops.graph.schema import TableIdentity
from omnigraph_ops.graph.state import (
    ACTORS_SCHEMA,
    COMMITS_SCHEMA,
    MANIFEST_SCHEMA_3,
    MANIFEST_SCHEMA_6,
    ManifestRow,
    VersionMetadata,
    commit_metadata,
    head_metadata,
    manifest_table,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """One table version to publish."""

    table: DemoTable
    version: int
    rows: int
    branch: str | None = None


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
        head = stamp3.head_of(commits.to_table().to_pylist())
        append(commits, _commit_row(branch, manifest_version, None if head is None else head["graph_commit_id"]))

    def create_branch(self, name: str) -> None:
        """Branch the graph manifest, then the commit graph. Writes."""
        for dataset in (open_manifest(self.root, None), self._commits(None)):
            dataset.create_branch(name, dataset.version)

    def _commits(self, branch: str | None) -> Dataset:
        main = lance.dataset(os.path.join(self.root, COMMITS_DIR))
        return main if branch is None else main.checkout_version((branch, None))

    def _row(self, version: TableVersion) -> ManifestRow:
        metadata = version_metadata(self.root, version, leading_slash=False)
        return version_row(stamp3.version_object_id(version.table.key, version.version), metadata, version)


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
        head = stamp6.lineage_head(manifest.to_table(filter="object_type = 'graph_commit'"))
        rows += _lineage_rows(branch, manifest.version + 1, head)
        merge_rows(manifest, manifest_table(rows, MANIFEST_SCHEMA_6))

    def create_branch(self, name: str) -> None:
        """Branch the graph manifest and nothing else. Writes."""
        manifest = open_manifest(self.root, None)
        manifest.create_branch(name, manifest.version)

    def _registration(self, version: TableVersion) -> ManifestRow:
        identity = _identity(version.table)
        spelled = f"{identity.stable_table_id:016x}:{identity.table_incarnation_id:016x}"
        return registration_row(f"table:{spelled}", version.table)

    def _row(self, version: TableVersion) -> ManifestRow:
        object_id = stamp6.version_object_id(_identity(version.table), version.version)
        return version_row(object_id, version_metadata(self.root, version, leading_slash=True), version)


Publisher = Publisher3 | Publisher6
"""Writes the graph manifest and the lineage of one stamp."""


def _identity(table: DemoTable) -> TableIdentity:
    if table.identity is None:
        raise ValueError("a table of stamp 6 has an identity")
    return table.identity


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

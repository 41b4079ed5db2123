"""Rows of the graph manifest and of the lineage datasets: Arrow schemas and exact cell contents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from omnigraph_ops.graph.catalog import TableIdentity

_PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}
_HEAD_FIELDS = [
    pa.field("object_id", pa.string(), nullable=False, metadata=_PRIMARY_KEY),
    pa.field("object_type", pa.string(), nullable=False),
    pa.field("location", pa.string()),
    pa.field("metadata", pa.string()),
    pa.field("base_objects", pa.list_(pa.field("item", pa.string()))),
    pa.field("table_key", pa.string(), nullable=False),
]
_IDENTITY_FIELDS = [
    pa.field("stable_table_id", pa.uint64()),
    pa.field("table_incarnation_id", pa.uint64()),
]
_TAIL_FIELDS = [
    pa.field("table_version", pa.uint64()),
    pa.field("table_branch", pa.string()),
    pa.field("row_count", pa.uint64()),
]

MANIFEST_SCHEMA_3 = pa.schema(_HEAD_FIELDS + _TAIL_FIELDS)
MANIFEST_SCHEMA_6 = pa.schema(_HEAD_FIELDS + _IDENTITY_FIELDS + _TAIL_FIELDS)

COMMITS_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("manifest_branch", pa.string()),
        pa.field("manifest_version", pa.uint64(), nullable=False),
        pa.field("parent_commit_id", pa.string()),
        pa.field("merged_parent_commit_id", pa.string()),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
ACTORS_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("actor_id", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
RECOVERIES_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("operation_id", pa.string(), nullable=False),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("per_table_outcomes_json", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionMetadata:
    """The metadata cell of a `table_version` row."""

    manifest_path: str
    manifest_size: int | None
    e_tag: str | None
    naming_scheme: str | None

    def to_json(self) -> str:
        """Compact JSON with the engine's key order, nulls included. Pure."""
        return _compact(
            {
                "manifest_path": self.manifest_path,
                "manifest_size": self.manifest_size,
                "e_tag": self.e_tag,
                "naming_scheme": self.naming_scheme,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRow:
    """One row of a graph manifest, either stamp; absent cells are null."""

    object_id: str
    object_type: str
    table_key: str
    location: str | None = None
    metadata: str | None = None
    identity: TableIdentity | None = None
    table_version: int | None = None
    table_branch: str | None = None
    row_count: int | None = None


def manifest_table(rows: list[ManifestRow], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table with exactly the types the engine's readers expect. Pure."""
    columns: dict[str, list[object]] = {
        "object_id": [r.object_id for r in rows],
        "object_type": [r.object_type for r in rows],
        "location": [r.location for r in rows],
        "metadata": [r.metadata for r in rows],
        "base_objects": [None for _ in rows],
        "table_key": [r.table_key for r in rows],
        "stable_table_id": [r.identity.stable_table_id if r.identity else None for r in rows],
        "table_incarnation_id": [r.identity.table_incarnation_id if r.identity else None for r in rows],
        "table_version": [r.table_version for r in rows],
        "table_branch": [r.table_branch for r in rows],
        "row_count": [r.row_count for r in rows],
    }
    return pa.Table.from_pydict({name: columns[name] for name in schema.names}, schema=schema)


def commit_metadata(parent: str | None, actor: str | None, created_at_us: int) -> str:
    """The metadata cell of a `graph_commit` row; absent keys are omitted. Pure."""
    cells: dict[str, object] = {"parent_commit_id": parent, "actor_id": actor}
    return _compact({k: v for k, v in cells.items() if v is not None} | {"created_at": created_at_us})


def head_metadata(head: str, parent: str | None) -> str:
    """The metadata cell of a `graph_head` row. Pure."""
    return _compact({"head_commit_id": head} | ({} if parent is None else {"parent_commit_id": parent}))


def parse_commit_created_at(metadata: str | None) -> int:
    """Microseconds since the epoch of a `graph_commit` row; 0 where it cannot be told. Pure."""
    try:
        return int(json.loads(metadata or "")["created_at"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return 0


def _compact(data: Mapping[str, object]) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)

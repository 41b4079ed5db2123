"""The state of one graph branch: what its graph manifest publishes, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.graph.catalog import TableIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One live table of a branch."""

    table_key: str
    path: str
    """Graph-relative dataset path."""
    version: int
    """The pin: the published version."""
    branch: str | None
    """The Lance branch that owns the version, None for the table's main chain."""
    row_count: int | None
    identity: TableIdentity | None = None
    manifest_path: str | None = None
    """The Lance manifest file as whoever published this version spelled it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchState:
    """All live tables of one graph branch at one version of its graph manifest."""

    branch: str | None
    """None for main."""
    manifest_version: int
    entries: tuple[TableEntry, ...]
    """Sorted by key."""
    head_commit_id: str | None
    """The lineage head, where lineage lives in the graph manifest (stamp 6)."""

    def get(self, table_key: str) -> TableEntry | None:
        """The entry of that key, None when the table is not live here. Pure."""
        return next((e for e in self.entries if e.table_key == table_key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUpdate:
    """One table version to publish."""

    entry: TableEntry
    """The entry it replaces; its version is the expectation."""
    version: int
    row_count: int
    metadata_json: str

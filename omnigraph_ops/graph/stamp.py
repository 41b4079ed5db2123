"""The interface between the stages and a graph generation: one implementation per stamp, no stage asks which."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from omnigraph_ops.graph.catalog import Catalog
from omnigraph_ops.graph.state import BranchState, TableEntry, TableUpdate
from omnigraph_ops.graph.text_indexes import TextWriter
from omnigraph_ops.lance.gateway import LanceGateway
from omnigraph_ops.storage.location import GraphLocation
from omnigraph_ops.storage.options import StoreAccess
from omnigraph_ops.storage.store import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The graph commit of one logical publish, minted once before its first attempt."""

    commit_id: str
    created_at_us: int
    actor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphContext:
    """What a stamp implementation needs to touch its graph."""

    location: GraphLocation
    storage: Storage
    lance: LanceGateway
    access: StoreAccess
    """How its store is reached, and other places that it is copied to."""


class StampFormat(Protocol):
    """Everything that differs between graph generations."""

    stamp: int
    publishes: bool
    """Whether a graph manifest says which version of which table is read. Without one a table's HEAD is,
    and its branches and configuration are its owner's."""
    text_writer: TextWriter | None
    """How text indexes are written; None where whoever wrote an index decides."""
    compacts_blobs: bool
    sidecar_version: int
    """The newest sidecar schema version this generation reads."""
    compares_sidecar_paths: bool
    inline_deletes_by: str | None
    """Writer of the manifests of an engine that deletes rows before it arms, as it begins; None where none does."""
    """Whether the engine refuses a sidecar whose table path is not spelled under its own root."""

    def read_catalog(self, storage: Storage) -> Catalog:
        """The accepted catalog; raises `ContractError`. Reads."""

    def check_catalog(self, catalog: Catalog, state: BranchState, root: str) -> None:
        """Refuse a main branch whose tables are not those of the accepted schema; raises `CorruptGraph`. Pure."""

    def about(self, rows: pa.Table, tables: Collection[str]) -> pa.Table:
        """Those rows of a graph manifest that say what it publishes of some tables, and its lineage. Pure."""

    def decode(self, context: GraphContext, rows: pa.Table, branch: str | None, manifest_version: int) -> BranchState:
        """The branch state from all rows of its graph manifest; raises `CorruptGraph`. Pure but for links."""

    def publish_rows(self, state: BranchState, updates: tuple[TableUpdate, ...], lineage: Lineage) -> pa.Table | None:
        """The rows to merge into the graph manifest, None when lineage lives elsewhere and nothing moves. Pure."""

    def append_lineage(
        self, context: GraphContext, branch: str | None, manifest_version: int, lineage: Lineage
    ) -> None:
        """Append lineage where it is a dataset of its own, after a look for the id. Writes."""

    def lineage_forks(self, context: GraphContext, branch: str | None) -> dict[str, str]:
        """The parents, by commit, that would make one line of a lineage of which two commits name one parent. Reads."""

    def relink_lineage(self, context: GraphContext, branch: str | None, parents: Mapping[str, str]) -> None:
        """Let these commits of a branch's lineage name these parents. Writes."""

    def has_published(self, rows: pa.Table, updates: tuple[TableUpdate, ...], lineage: Lineage) -> bool:
        """Whether the rows of a graph manifest hold exactly this publish. Pure."""

    def manifest_path(self, context: GraphContext, relative: str) -> str:
        """A Lance manifest file as this generation spells it in version metadata. Pure."""

    def recorded_local_root(self, root: str) -> str:
        """The root of a recorded local manifest path as the engine that wrote it opened it. Pure."""

    def sidecar(self, entry: TableEntry, table_uri: str, operation_id: str, started_at_us: int) -> dict[str, Any]:
        """The single-pin Optimize sidecar document of this generation. Pure."""

    def internal_tables(self, context: GraphContext) -> tuple[tuple[str, str], ...]:
        """(table key, graph-relative path) of internal tables that optimize compacts, in order. Reads."""

    def branched_internal_tables(self, context: GraphContext) -> tuple[tuple[str, str], ...]:
        """Internal tables whose Lance branches shadow graph branches and can be orphaned. Reads."""

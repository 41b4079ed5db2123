"""What plain Lance has in place of a stamp and a schema: nothing to decode, nothing to publish, no declared index."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from omnigraph_ops.errors import NotAGraph
from omnigraph_ops.graph.catalog import Catalog, Property, TableSpec
from omnigraph_ops.graph.stamp import GraphContext, Lineage
from omnigraph_ops.graph.state import BranchState, TableEntry, TableUpdate
from omnigraph_ops.graph.text_indexes import TextWriter
from omnigraph_ops.models import IndexBuild
from omnigraph_ops.storage.store import Storage

PLAIN_STAMP = 0
"""In plans and reports: no generation of a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSpec(TableSpec):
    """A dataset: its owner decides which indexes it has."""

    def declared_indexes(self) -> tuple[IndexBuild, ...]:
        """None. Pure."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCatalog(Catalog):
    """The datasets that were seen so far; there is no schema that would name them."""

    specs: dict[str, TableSpec]

    @classmethod
    def empty(cls) -> PlainCatalog:
        """Nothing seen yet. Pure."""
        return cls(tables=(), schema_ir_hash="", specs={})

    def note(self, spec: TableSpec) -> None:
        """Remember a dataset as it was just seen."""
        self.specs[spec.table_key] = spec

    def get(self, table_key: str) -> TableSpec | None:
        """The dataset of that key as it was last seen, None when it never was. Pure."""
        return self.specs.get(table_key)


class PlainFormat:
    """The stamp of what has no stamp; whatever only a graph manifest could answer is refused."""

    stamp = PLAIN_STAMP
    publishes = False
    text_writer: TextWriter | None = None
    compacts_blobs = True
    sidecar_version = 0
    compares_sidecar_paths = False
    inline_deletes_by: str | None = None

    def __init__(self, catalog: PlainCatalog) -> None:
        self._catalog = catalog

    def read_catalog(self, storage: Storage) -> Catalog:
        return self._catalog

    def check_catalog(self, catalog: Catalog, state: BranchState, root: str) -> None:
        """Nothing to compare."""

    def about(self, rows: pa.Table, tables: Collection[str]) -> pa.Table:
        _refuse()

    def decode(self, context: GraphContext, rows: pa.Table, branch: str | None, manifest_version: int) -> BranchState:
        _refuse()

    def publish_rows(self, state: BranchState, updates: tuple[TableUpdate, ...], lineage: Lineage) -> pa.Table | None:
        _refuse()

    def append_lineage(
        self, context: GraphContext, branch: str | None, manifest_version: int, lineage: Lineage
    ) -> None:
        _refuse()

    def lineage_forks(self, context: GraphContext, branch: str | None) -> dict[str, str]:
        return {}

    def relink_lineage(self, context: GraphContext, branch: str | None, parents: Mapping[str, str]) -> None:
        _refuse()

    def has_published(self, rows: pa.Table, updates: tuple[TableUpdate, ...], lineage: Lineage) -> bool:
        _refuse()

    def manifest_path(self, context: GraphContext, relative: str) -> str:
        _refuse()

    def recorded_local_root(self, root: str) -> str:
        _refuse()

    def sidecar(self, entry: TableEntry, table_uri: str, operation_id: str, started_at_us: int) -> dict[str, Any]:
        _refuse()

    def internal_tables(self, context: GraphContext) -> tuple[tuple[str, str], ...]:
        return ()

    def branched_internal_tables(self, context: GraphContext) -> tuple[tuple[str, str], ...]:
        return ()


def table_key_of(path: str) -> str:
    """How a dataset is named on the command line and in reports, as in `table:items`. Pure."""
    return f"table:{path.removesuffix('.lance')}"


def spec_of_schema(table_key: str, path: str, schema: pa.Schema | None) -> TableSpec:
    """What maintenance needs to know of a dataset's columns; None for one that cannot be opened. Pure."""
    blobs = [field.name for field in schema or () if _is_blob(field)]
    columns = tuple(Property(name=name, scalar="Blob", is_list=False, is_enum=False) for name in blobs)
    return PlainSpec(table_key=table_key, path=path, properties=columns, indexed=())


def _is_blob(field: pa.Field) -> bool:
    metadata = field.metadata or {}
    extension = metadata.get(b"ARROW:extension:name", b"").decode() or getattr(field.type, "extension_name", "")
    return metadata.get(b"lance-encoding:blob") == b"true" or str(extension).startswith("lance.blob")


def _refuse() -> NoReturn:
    raise NotAGraph("plain Lance has no graph manifest; nothing was written")

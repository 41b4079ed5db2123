"""What differs between the generations of a graph: their one interface, and the text indexes that each accepts.

Full-text indexes as a Lance manifest records them: which analyser wrote the words of each, and who accepts it. Of
InvertedIndexDetails, Lance 9 was the first to write field 12 and Lance 11 the first to write field 15; seen with
pylance 8.0.1, 9.0.0, 10.0.0, 11.0.0 and 13.0.0, in builds and folds alike.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.lance_manifest import index_segments, read_manifest, stored_versions, writer_of
from omnigraph_ops.graph.layout import MANIFEST_DIR, STAMP_KEY
from omnigraph_ops.graph.schema import Catalog, TableIdentity
from omnigraph_ops.graph.state import BranchState, GraphCommit, TableEntry, TableUpdate
from omnigraph_ops.lance.fragment_rows import FragmentRows
from omnigraph_ops.lance.gateway import SYSTEM_PREFIX, Dataset, LanceGateway, message_fields
from omnigraph_ops.storage.store import Storage

CERTIFICATE = "omnigraph_fts_compat.json"
"""File of a segment by which the engine from 0.10 on accepts it."""
_SINCE_9, _SINCE_11 = 12, 15
_OWN_WRITER, _CERTIFYING_WRITER = "lance 13.", "lance 11."
_LOOK_BACK = 64


class Analyser(StrEnum):
    """How words become the terms of an index; equal for all releases of one member."""

    LANCE_8 = "Lance 8 or older"
    """rust-stemmers, 33 English stop words."""
    LANCE_10 = "Lance 9 or 10"
    """rust-stemmers, 198 English stop words."""
    LANCE_11 = "Lance 11 or newer"
    """frostem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWriter:
    """How the text indexes of a graph generation are written."""

    release: str
    """The pylance release that writes them."""
    reads: frozenset[Analyser]
    """Analysers whose terms the engine finds."""
    folds: bool
    """Whether that release may fold; else it builds the index anew."""
    cure: str = ""
    """What is at stake for readers while the index lags."""
    certifies: bool = False
    """Whether a later engine of the stamp accepts only what it certified itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextIndex:
    """One full-text index by name, over its segments."""

    analysers: frozenset[Analyser]
    certified: bool


def stamp_text(manifest: Dataset) -> str | None:
    """What an open graph manifest says of its generation, None where it says nothing. Pure."""
    found: bytes | None = (manifest.schema.metadata or {}).get(STAMP_KEY.encode())
    return None if found is None else found.decode(errors="replace")


def text_indexes(storage: Storage, table_path: str, version: int) -> Mapping[str, TextIndex]:
    """The full-text indexes of a version of a main chain, by name. Reads.

    Raises:
        CorruptGraph: the manifest cannot be read.
    """
    found: dict[str, TextIndex] = {}
    manifest = read_manifest(storage, table_path, version)
    for segment in index_segments(manifest.content, manifest.name):
        name, details = segment.name, segment.index_details
        if name.startswith(SYSTEM_PREFIX) or not details.type_url.endswith(".InvertedIndexDetails"):
            continue
        certified = any(file.path == CERTIFICATE for file in segment.files)
        before = found.get(name)
        found[name] = TextIndex(
            analysers=frozenset({analyser_of(details.value)}) | (before.analysers if before else frozenset()),
            certified=certified or (before is not None and before.certified),
        )
    return found


def older_texts(storage: Storage, table_path: str, version: int) -> tuple[str, ...]:
    """The full-text indexes with words of an analyser that this pylance does not have. Reads."""
    found = text_indexes(storage, table_path, version)
    return tuple(name for name, index in found.items() if index.analysers != {Analyser.LANCE_11})


def analyser_of(details: bytes) -> Analyser:
    """The analyser of a segment from its InvertedIndexDetails. Pure."""
    numbers = {field.field_number for field in message_fields(details)}
    if _SINCE_11 in numbers:
        return Analyser.LANCE_11
    return Analyser.LANCE_10 if _SINCE_9 in numbers else Analyser.LANCE_8


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The graph commit of one logical publish, minted once before its first attempt."""

    commit_id: str
    created_at_us: int
    actor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphContext:
    """What a stamp implementation needs to touch its graph."""

    storage: Storage
    lance: LanceGateway
    manifest_rows: FragmentRows = field(default_factory=FragmentRows)
    """The graph manifest as this process reads it."""
    decoded: dict[tuple[str | None, frozenset[str] | None], tuple[weakref.ref[pa.Table], BranchState]] = field(
        default_factory=dict
    )
    """Each branch, or some of its tables, as it was read last, with the rows that said so."""
    bases: list[tuple[tuple[BranchState, ...], tuple[BranchState, ...]]] = field(default_factory=list)
    """The branches whose merges were looked into last, and what those start from; at most one entry."""
    writers: dict[tuple[str, int], str | None] = field(default_factory=dict)
    """Who wrote a version of a dataset: each table of a graph asks it of the same versions of the graph manifest."""

    def open_at(self, path: str, *, branch: str | None = None, version: int | None = None) -> Dataset:
        """The dataset at a path below the root, at its newest version unless one is given. Reads."""
        return self.lance.open(self.storage.uri(path), branch=branch, version=version)


def certifying_engine(context: GraphContext, table_path: str, version: int) -> str | None:
    """The sign that an engine wrote here that certifies its text indexes; None when there is none. Reads."""
    for path, newest in ((table_path, version), (MANIFEST_DIR, None)):
        _, writer = newest_foreign(context, path, newest)
        if writer is not None and writer.startswith(_CERTIFYING_WRITER):
            return f"{path} was written by {writer}"
    return None


def newest_foreign(context: GraphContext, path: str, newest: int | None = None) -> tuple[int | None, str | None]:
    """The newest version that is not ours and who wrote it, as `lance 9.0.0`; within a bound. Reads."""
    numbers = sorted(stored_versions(context.storage, path), reverse=True)
    for number in [n for n in numbers if newest is None or n <= newest][:_LOOK_BACK]:
        if (path, number) not in context.writers:
            try:
                context.writers[path, number] = writer_of(read_manifest(context.storage, path, number))
            except CorruptGraph:
                continue
        writer = context.writers[path, number]
        if writer is not None and not writer.startswith(_OWN_WRITER):
            return number, writer
    return None, None


class StampFormat:
    """Everything that differs between graph generations.

    What one does not say of itself holds where there is no graph manifest.
    """

    stamp: int
    publishes = True
    """Whether a graph manifest says which version of which table is read. Without one a table's HEAD is,
    and its branches and configuration are its owner's."""
    text_writer: TextWriter | None = None
    """How text indexes are written; None where whoever wrote an index decides."""
    compacts_blobs = True
    compares_blobs = False
    """Whether a merge of the engine compares rows by where their blobs lie, which a rewrite changes."""
    promotes_half_staged = False
    """Whether the engine puts the staging files of a killed schema apply in place although the last one is missing, and
    then refuses to open the graph."""
    leaves_stale_entries = False
    """Whether the Lance of the engine leaves entries of updated rows in the indexes that it folds."""
    searches_uncovered = True
    """Whether searches of the engine are right where a text or vector index does not cover some rows."""
    limits_text_search = False
    """Whether readers leave the limit of a text search to Lance; the engine has it find every row, and takes some."""
    sidecar_version = 0
    """The newest sidecar schema version this generation reads."""
    compares_sidecar_paths = False
    """Whether the engine refuses a sidecar whose table path is not spelled under its own root."""
    paths_by_name = False
    """Whether the path of a table follows from its name. The engine then tells by the dataset of a dropped table that
    the name was used, and refuses it for a new one before it writes anything."""
    compares_heads = False
    """Whether any two publishes to a branch conflict. Where they do not, those of two versions of a table do not
    either, and readers see the higher one: who puts a version over those that somebody may yet publish has to publish
    these as well."""
    engines_lance = ""
    """Writer of the manifests of the engine, as it begins; empty where no engine writes."""
    lineage_datasets: tuple[str, ...] = ()
    """Where the lineage is, if not in the graph manifest; graph-relative."""
    announces_transactions = True
    """Whether the sidecars of loads, mutations and merges name the transactions that they are about to commit."""
    deletes_inline = False
    """Whether the engine deletes rows before it arms."""
    reads_by_bytes = False
    """Whether the engine asks for batches by their bytes, of which the first has as many rows as short texts allow."""

    def is_of_engine(self, writer: str | None) -> bool:
        """Whether a manifest with this writer is one of the engine. Pure."""
        return bool(self.engines_lance) and (writer or "").startswith(self.engines_lance)

    def read_catalog(self, storage: Storage) -> Catalog:
        """The accepted catalog; raises `ContractError`. Reads."""
        raise NotImplementedError

    def check_catalog(self, catalog: Catalog, state: BranchState, root: str) -> None:
        """Refuse a main branch whose tables are not those of the accepted schema; raises `CorruptGraph`. Pure."""

    def about(self, rows: pa.Table, tables: Collection[str]) -> pa.Table:
        """Those rows of a graph manifest that say what it publishes of some tables, and its lineage. Pure."""
        raise NotImplementedError

    def was_called(self, rows: pa.Table, identity: TableIdentity, table_key: str) -> bool:
        """Whether a graph manifest published a version of the table under that key, before a rename. Pure."""
        return False

    def published_versions(self, rows: pa.Table, identity: TableIdentity) -> dict[int, tuple[str | None, str]]:
        """The Lance branch and metadata of every version of a table that a graph manifest ever published. Pure."""
        return {}

    def decode(self, context: GraphContext, rows: pa.Table, branch: str | None, manifest_version: int) -> BranchState:
        """The branch state from all rows of its graph manifest; raises `CorruptGraph`. Pure but for links."""
        raise NotImplementedError

    def publish_rows(self, state: BranchState, updates: tuple[TableUpdate, ...], lineage: Lineage) -> pa.Table | None:
        """The rows to merge into the graph manifest, None when lineage lives elsewhere and nothing moves. Pure."""
        raise NotImplementedError

    def append_lineage(
        self, context: GraphContext, branch: str | None, manifest_version: int, lineage: Lineage
    ) -> None:
        """Append lineage where it is a dataset of its own, after a look for the id. Writes."""

    def lineage_forks(self, context: GraphContext, branch: str | None) -> dict[str, str]:
        """The parents, by commit, that would make one line of a lineage of which two commits name one parent. Reads."""
        return {}

    def relink_lineage(self, context: GraphContext, branch: str | None, parents: Mapping[str, str]) -> None:
        """Let these commits of a branch's lineage name these parents. Writes."""

    def commits(self, context: GraphContext, branch: str | None) -> tuple[GraphCommit, ...]:
        """Every commit that a branch knows, its own and those from before it forked; its head comes last. Reads."""
        return ()

    def has_published(self, rows: pa.Table, updates: tuple[TableUpdate, ...], lineage: Lineage) -> bool:
        """Whether the rows of a graph manifest hold exactly this publish. Pure."""
        raise NotImplementedError

    def manifest_path(self, context: GraphContext, relative: str) -> str:
        """A Lance manifest file as this generation spells it in version metadata; on S3 without the bucket. Pure."""
        storage = context.storage
        return storage.uri(relative) if storage.is_local else storage.object_key(relative)

    def recorded_local_root(self, root: str) -> str:
        """The root of a recorded local manifest path as the engine that wrote it opened it. Pure."""
        return root

    def sidecar(self, entry: TableEntry, table_uri: str, operation_id: str, started_at_us: int) -> dict[str, Any]:
        """The single-pin Optimize sidecar document of this generation. Pure."""
        pin = {
            "table_key": entry.table_key,
            "table_path": table_uri,
            "expected_version": entry.version,
            "post_commit_pin": entry.version + 1,
        }
        return {
            "schema_version": self.sidecar_version,
            "operation_id": operation_id,
            "started_at": str(started_at_us),
            "branch": None,
            "actor_id": None,
            "writer_kind": "Optimize",
            "tables": [pin],
        }

    def internal_tables(self, context: GraphContext) -> tuple[tuple[str, str], ...]:
        """(table key, graph-relative path) of internal tables that optimize compacts, in order. Reads."""
        return ()

    def branched_internal_tables(self, context: GraphContext) -> tuple[tuple[str, str], ...]:
        """Internal tables whose Lance branches shadow graph branches and can be orphaned. Reads."""
        return ()

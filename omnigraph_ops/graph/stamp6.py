"""Stamp 6 (engine 0.9.0 and its successor): identities, lineage inside the graph manifest."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.schema import Catalog, TableIdentity, TableSpec, parse_properties, read_catalog
from omnigraph_ops.graph.stamp import Analyser, GraphContext, Lineage, StampFormat, TextWriter
from omnigraph_ops.graph.state import (
    MANIFEST_SCHEMA_6,
    BranchState,
    GraphCommit,
    ManifestRow,
    Row,
    TableEntry,
    TableUpdate,
    check_metadata,
    checked_rows,
    commit_metadata,
    entry_of,
    head_metadata,
    is_live,
    manifest_table,
    newest,
    of_type,
    parse_commit_created_at,
    parse_commit_parents,
    sorted_entries,
)
from omnigraph_ops.lance.gateway import lance_errors
from omnigraph_ops.storage.store import Storage

_IDENTITY = ("stable_table_id", "table_incarnation_id")


def table_folder(kind: str, identity: TableIdentity) -> str:
    """The canonical path of a table lifetime; a name never decides it. Pure."""
    return f"{kind}s/{identity.stable_table_id:016x}-{identity.table_incarnation_id:016x}"


def version_object_id(identity: TableIdentity, version: int) -> str:
    """The merge key of a `table_version` row. Pure."""
    return f"table_version:{identity.stable_table_id:016x}:{identity.table_incarnation_id:016x}:{version:020d}"


class Stamp6(StampFormat):
    """The format of generation 6."""

    stamp = 6
    text_writer = TextWriter(
        release="10.0.0", reads=frozenset({Analyser.LANCE_8, Analyser.LANCE_10}), folds=True, certifies=True
    )
    sidecar_version = 9
    compares_blobs = True
    compares_sidecar_paths = True
    compares_heads = True
    reads_by_bytes = True
    engines_lance = "lance 9."

    def read_catalog(self, storage: Storage) -> Catalog:
        return read_catalog(storage, format_version=2, ir_version=2, spec=_spec)

    def check_catalog(self, catalog: Catalog, state: BranchState, root: str) -> None:
        apart = catalog.identities ^ state.identities
        if apart:
            key = min(key for key, _ in apart)
            raise CorruptGraph(
                f"{root}: the accepted schema and __manifest disagree about {key!r}; nothing was written; "
                "open the graph with omnigraph for its diagnosis"
            )

    def about(self, rows: pa.Table, tables: Collection[str]) -> pa.Table:
        # A version names its table by identity: its key may be the one before a rename.
        registrations = of_type(rows, "table")
        named = registrations.filter(pc.is_in(registrations.column("table_key"), pa.array(tables, pa.string())))
        identities = named.column("stable_table_id").combine_chunks()
        lineage = pc.is_in(rows.column("object_type"), pa.array(["graph_commit", "graph_head"]))
        return rows.filter(pc.or_(pc.is_in(rows.column("stable_table_id"), identities), lineage))

    def was_called(self, rows: pa.Table, identity: TableIdentity, table_key: str) -> bool:
        named = _identified(rows.filter(pc.equal(rows.column("table_key"), table_key)), "table_version")
        return any(_identity(row) == identity for row in named.select(["object_id", *_IDENTITY]).to_pylist())

    def published_versions(self, rows: pa.Table, identity: TableIdentity) -> dict[int, tuple[str | None, str]]:
        versions = _identified(rows, "table_version").select(["table_version", "table_branch", "metadata", *_IDENTITY])
        return {
            row["table_version"]: (row["table_branch"], row["metadata"])
            for row in versions.to_pylist()
            if _identity(row) == identity
        }

    def decode(self, context: GraphContext, rows: pa.Table, branch: str | None, manifest_version: int) -> BranchState:
        root = context.storage.root
        data = checked_rows(rows, MANIFEST_SCHEMA_6, root)
        registrations = {_identity(r): r for r in of_type(data, "table").to_pylist()}
        tombstones = {_identity(r): r for r in newest(_identified(data, "table_tombstone"), _IDENTITY)}
        entries = []
        for row in newest(_identified(data, "table_version"), _IDENTITY):
            check_metadata(row)
            identity = _identity(row)
            registration = registrations.get(identity)
            if registration is None:
                raise CorruptGraph(f"{root}/__manifest has versions of an unregistered table {row['table_key']!r}")
            if is_live(row, tombstones.get(identity)):
                entries.append(_entry(context, registration, row, identity))
        return BranchState(
            branch=branch,
            manifest_version=manifest_version,
            entries=sorted_entries(entries, root),
            head_commit_id=lineage_head(of_type(data, "graph_commit")),
            dropped=frozenset(tombstones.keys() - {entry.identity for entry in entries}),
        )

    def publish_rows(self, state: BranchState, updates: tuple[TableUpdate, ...], lineage: Lineage) -> pa.Table | None:
        rows = [_version_row(update) for update in updates]
        rows.append(
            ManifestRow(
                object_id=lineage.commit_id,
                object_type="graph_commit",
                table_key="",
                metadata=commit_metadata(state.head_commit_id, lineage.actor, lineage.created_at_us),
                table_version=state.manifest_version + 1,
                table_branch=state.branch,
            )
        )
        rows.append(
            ManifestRow(
                object_id=f"graph_head:{state.branch or 'main'}",
                object_type="graph_head",
                table_key="",
                metadata=head_metadata(lineage.commit_id, state.head_commit_id),
            )
        )
        return manifest_table(rows, MANIFEST_SCHEMA_6)

    def commits(self, context: GraphContext, branch: str | None) -> tuple[GraphCommit, ...]:
        manifest = context.open_at(MANIFEST_DIR, branch=branch)
        with lance_errors("read the commits of the graph manifest"):
            rows = of_type(context.manifest_rows.of(manifest, branch), "graph_commit").to_pylist()
        return tuple(
            GraphCommit(
                commit_id=row["object_id"],
                branch=row["table_branch"],
                manifest_version=row["table_version"] or 0,
                parents=parse_commit_parents(row["metadata"]),
            )
            for row in sorted(rows, key=_rank)
        )

    def has_published(self, rows: pa.Table, updates: tuple[TableUpdate, ...], lineage: Lineage) -> bool:
        return lineage.commit_id in rows.column("object_id").to_pylist()

    def sidecar(self, entry: TableEntry, table_uri: str, operation_id: str, started_at_us: int) -> dict[str, Any]:
        document = super().sidecar(entry, table_uri, operation_id, started_at_us)
        (pin,) = document["tables"]
        return document | {
            "tables": [{"identity": asdict(_required(entry)), **pin}],
            "schema_apply_manifest_published": False,
        }

    def internal_tables(self, context: GraphContext) -> tuple[tuple[str, str], ...]:
        return (("__manifest", MANIFEST_DIR),)


def _spec(kind: str, raw: dict[str, Any]) -> TableSpec:
    identity = TableIdentity(stable_table_id=int(raw["type_id"]), table_incarnation_id=int(raw["table_incarnation_id"]))
    table_key = f"{kind}:{raw['name']}"
    return TableSpec(
        table_key=table_key,
        path=table_folder(kind, identity),
        properties=parse_properties(table_key, raw),
        indexed=tuple(_single_columns(raw["constraints"])),
        identity=identity,
    )


def _single_columns(constraints: list[dict[str, Any]]) -> list[str]:
    columns = []
    for constraint in constraints:
        fields = constraint.get("fields", ())
        if constraint["kind"] in {"key", "index"} and len(fields) == 1 and fields[0]["kind"] == "property":
            columns.append(str(fields[0]["property_name"]))
    return columns


def _identified(rows: pa.Table, object_type: str) -> pa.Table:
    """The rows of one kind; all of them name a table lifetime. Pure."""
    found = of_type(rows, object_type)
    for name in _IDENTITY:
        known = pc.greater(found.column(name), 0).fill_null(False)
        if not pc.all(known, min_count=0).as_py():
            raise _unidentified(found.filter(pc.invert(known)).column("object_id")[0].as_py())
    return found


def _identity(row: Row) -> TableIdentity:
    if not row["stable_table_id"] or not row["table_incarnation_id"]:
        raise _unidentified(row["object_id"])
    return TableIdentity(stable_table_id=row["stable_table_id"], table_incarnation_id=row["table_incarnation_id"])


def _unidentified(object_id: str) -> CorruptGraph:
    return CorruptGraph(f"__manifest row {object_id!r} has no table identity; nothing was written")


def _entry(context: GraphContext, registration: Row, row: Row, identity: TableIdentity) -> TableEntry:
    kind = str(registration["table_key"]).partition(":")[0]
    if registration["location"] != table_folder(kind, identity):
        raise CorruptGraph(
            f"{context.storage.root}/__manifest places {registration['table_key']!r} at "
            f"{registration['location']!r} instead of {table_folder(kind, identity)!r}; nothing was written"
        )
    return entry_of(context.storage, registration["table_key"], registration["location"], row, identity=identity)


def lineage_head(commits: pa.Table) -> str | None:
    """The head commit: greatest (manifest version, time, id) over the commits this branch can see. Pure."""
    versions = commits.column("table_version").fill_null(0)
    latest = commits.filter(pc.equal(versions, pc.max(versions))).to_pylist()
    return max(latest, key=_rank)["object_id"] if latest else None


def _rank(commit: Row) -> tuple[int, int, str]:
    return commit["table_version"] or 0, parse_commit_created_at(commit["metadata"]), commit["object_id"]


def _version_row(update: TableUpdate) -> ManifestRow:
    identity = _required(update.entry)
    return ManifestRow(
        object_id=version_object_id(identity, update.version),
        object_type="table_version",
        table_key=update.entry.table_key,
        metadata=update.metadata_json,
        identity=identity,
        table_version=update.version,
        table_branch=update.entry.branch,
        row_count=update.row_count,
    )


def _required(entry: TableEntry) -> TableIdentity:
    if entry.identity is None:
        raise CorruptGraph(f"{entry.table_key} has no identity in the graph manifest")
    return entry.identity

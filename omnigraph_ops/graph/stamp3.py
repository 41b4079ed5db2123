"""Stamp 3 (engine 0.6.2-0.7.x): tables named by hash, lineage in datasets of its own."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_ops.errors import CorruptGraph, PublishConflict
from omnigraph_ops.graph.lance_manifest import name_after, read_manifest
from omnigraph_ops.graph.layout import ACTORS_DIR, COMMITS_DIR, MANIFEST_DIR, fnv1a64
from omnigraph_ops.graph.schema import Catalog, TableSpec, parse_properties, read_catalog
from omnigraph_ops.graph.stamp import Analyser, GraphContext, Lineage, StampFormat, TextWriter
from omnigraph_ops.graph.state import (
    ACTORS_SCHEMA,
    COMMITS_SCHEMA,
    MANIFEST_SCHEMA_3,
    BranchState,
    GraphCommit,
    ManifestRow,
    TableUpdate,
    check_metadata,
    checked_rows,
    entry_of,
    is_live,
    manifest_table,
    newest,
    of_type,
    sorted_entries,
)
from omnigraph_ops.lance.commits import appended_rows, drafted
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing, lance_errors
from omnigraph_ops.storage.store import Storage

Row = Mapping[str, Any]


def head_of(rows: Iterable[Row]) -> Row | None:
    """The newest commit, as every reader ranks them. Pure."""
    return max(rows, key=_rank, default=None)


def above(head: Row | None, manifest_version: int, created: datetime) -> dict[str, Any]:
    """What makes a row the head after `head`. Pure.

    Its publish may be older than that of its parent, by a writer that was faster to append, and so may its clock: the
    next writer would take the parent for the head and fork the lineage.
    """
    if head is None:
        return {"parent_commit_id": None, "manifest_version": manifest_version, "created_at": created}
    return {
        "parent_commit_id": head["graph_commit_id"],
        "manifest_version": max(manifest_version, head["manifest_version"]),
        "created_at": max(created, head["created_at"] + timedelta(microseconds=1)),
    }


def straightened(rows: Iterable[Row]) -> dict[str, str]:
    """The parents, by commit id, that rows of a forked lineage get so that it is one line. Pure.

    Of the lines that begin at one commit, each goes on where the one before it ends, the oldest first.
    """
    children: dict[str, list[Row]] = {}
    by_id = {row["graph_commit_id"]: row for row in rows}
    for row in sorted(by_id.values(), key=_rank):
        if row["parent_commit_id"] in by_id:
            children.setdefault(row["parent_commit_id"], []).append(row)
    moved: dict[str, str] = {}
    # From the newest fork down: what follows a fork is a line by then.
    for parent in sorted((p for p, found in children.items() if len(found) > 1), key=lambda p: _rank(by_id[p]))[::-1]:
        lines = sorted(((_end(row, children), row) for row in children[parent]), key=lambda line: _rank(line[0]))
        for (end, _), (_, first) in itertools.pairwise(lines):
            moved[first["graph_commit_id"]] = end["graph_commit_id"]
            children[end["graph_commit_id"]] = [first]
        children[parent] = [lines[0][1]]
    return moved


def _end(row: Row, children: Mapping[str, list[Row]]) -> Row:
    while row["graph_commit_id"] in children:
        (row,) = children[row["graph_commit_id"]]
    return row


def _rank(row: Row) -> tuple[Any, ...]:
    return row["manifest_version"], row["created_at"], row["graph_commit_id"]


def version_object_id(table_key: str, version: int) -> str:
    """The merge key of a `table_version` row. Pure."""
    return f"{table_key}${version:020d}"


_KEY = ("table_key",)
_LINEAGE_ATTEMPTS = 20


class Stamp3(StampFormat):
    """The format of generation 3."""

    stamp = 3
    text_writer = TextWriter(
        release="8.0.1",
        reads=frozenset({Analyser.LANCE_8}),
        folds=False,
        cure=(
            'until then 0.7.2 may answer a search of a half-covered table with "all columns in a record batch must '
            'have the same length", which folding cures'
        ),
    )
    compacts_blobs = False
    promotes_half_staged = True
    leaves_stale_entries = True
    searches_uncovered = False
    sidecar_version = 2
    paths_by_name = True
    engines_lance = "lance 7."
    announces_transactions = False
    deletes_inline = True
    lineage_datasets = (COMMITS_DIR, ACTORS_DIR)

    def read_catalog(self, storage: Storage) -> Catalog:
        return read_catalog(storage, format_version=1, ir_version=1, spec=_spec)

    def about(self, rows: pa.Table, tables: Collection[str]) -> pa.Table:
        return rows.filter(pc.is_in(rows.column("table_key"), pa.array(tables, pa.string())))

    def decode(self, context: GraphContext, rows: pa.Table, branch: str | None, manifest_version: int) -> BranchState:
        root = context.storage.root
        data = checked_rows(rows, MANIFEST_SCHEMA_3, root)
        locations = {r["table_key"]: r["location"] for r in of_type(data, "table").to_pylist()}
        tombstones = {r["table_key"]: r for r in newest(of_type(data, "table_tombstone"), _KEY)}
        entries = []
        for row in newest(of_type(data, "table_version"), _KEY):
            check_metadata(row)
            key = row["table_key"]
            if key not in locations:
                raise CorruptGraph(f"{root}/__manifest has versions of an unregistered table {key!r}")
            if is_live(row, tombstones.get(key)):
                entries.append(entry_of(context.storage, key, locations[key], row))
        return BranchState(
            branch=branch,
            manifest_version=manifest_version,
            entries=sorted_entries(entries, root),
            head_commit_id=None,
            dropped=frozenset(tombstones.keys() - {entry.table_key for entry in entries}),
        )

    def publish_rows(self, state: BranchState, updates: tuple[TableUpdate, ...], lineage: Lineage) -> pa.Table | None:
        rows = [
            ManifestRow(
                object_id=version_object_id(update.entry.table_key, update.version),
                object_type="table_version",
                table_key=update.entry.table_key,
                metadata=update.metadata_json,
                table_version=update.version,
                table_branch=update.entry.branch,
                row_count=update.row_count,
            )
            for update in updates
        ]
        return manifest_table(rows, MANIFEST_SCHEMA_3) if rows else None

    def append_lineage(
        self, context: GraphContext, branch: str | None, manifest_version: int, lineage: Lineage
    ) -> None:
        """Append the commit row, then the actor row, each after a look for its id. Writes.

        The commit row names the head that it was read after, or is written anew. Graphs older than the commit graph
        have neither dataset; the engine does without, so do we.
        """
        created = datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(microseconds=lineage.created_at_us)
        for _ in range(_LINEAGE_ATTEMPTS):
            commits = _open_optional(context, COMMITS_DIR, branch)
            if commits is None:
                return
            with lance_errors("read the commit graph"):
                known = commits.to_table().to_pylist()
            if any(row["graph_commit_id"] == lineage.commit_id for row in known):
                break
            row = above(head_of(known), manifest_version, created) | {
                "graph_commit_id": lineage.commit_id,
                "manifest_branch": branch,
                "merged_parent_commit_id": None,
            }
            if branch is None:
                _append_next(context, COMMITS_DIR, commits, row)
            else:  # only tests and the demo publish to a branch, beside nobody
                _append(context, commits, row, COMMITS_SCHEMA)
        else:
            raise PublishConflict(
                f"the commit graph of {context.storage.root} kept moving; version {manifest_version} of the graph is "
                "published without its commit row, which no reader needs; run `omnigraph-ops check`"
            )
        if lineage.actor is None:
            return
        actors = _open_optional(context, ACTORS_DIR, None)
        if actors is not None and not _has_commit_id(actors, lineage.commit_id):
            actor = {"graph_commit_id": lineage.commit_id, "actor_id": lineage.actor, "created_at": created}
            _append(context, actors, actor, ACTORS_SCHEMA)

    def lineage_forks(self, context: GraphContext, branch: str | None) -> dict[str, str]:
        """Engine 0.7 appends its rows without comparing the parent that they name with the head."""
        commits = _open_optional(context, COMMITS_DIR, branch)
        if commits is None:
            return {}
        with lance_errors("read the commit graph"):
            return straightened(commits.to_table().to_pylist())

    def relink_lineage(self, context: GraphContext, branch: str | None, parents: Mapping[str, str]) -> None:
        commits = context.open_at(COMMITS_DIR, branch=branch)
        context.lance.strip_auto_cleanup(commits)
        for commit_id, parent in parents.items():
            row = f"graph_commit_id = '{commit_id}'"
            context.lance.update(commits, {"parent_commit_id": f"'{parent}'"}, where=row)

    def commits(self, context: GraphContext, branch: str | None) -> tuple[GraphCommit, ...]:
        dataset = _open_optional(context, COMMITS_DIR, branch)
        if dataset is None:
            return ()
        with lance_errors("read the commit graph"):
            rows = sorted(dataset.to_table().to_pylist(), key=_rank)
        return tuple(
            GraphCommit(
                commit_id=row["graph_commit_id"],
                branch=row["manifest_branch"],
                manifest_version=row["manifest_version"],
                parents=tuple(filter(None, (row["parent_commit_id"], row["merged_parent_commit_id"]))),
            )
            for row in rows
        )

    def has_published(self, rows: pa.Table, updates: tuple[TableUpdate, ...], lineage: Lineage) -> bool:
        """Stamp 3 rows carry no commit id: the exact version rows decide. Pure."""
        found = {(r["object_id"], r["metadata"]) for r in rows.select(["object_id", "metadata"]).to_pylist()}
        return all((version_object_id(u.entry.table_key, u.version), u.metadata_json) in found for u in updates)

    def manifest_path(self, context: GraphContext, relative: str) -> str:
        return super().manifest_path(context, relative).lstrip("/")

    def recorded_local_root(self, root: str) -> str:
        # Object-store paths are absolute without their slash; a relative root leaves no trace here.
        return f"/{root}"

    def internal_tables(self, context: GraphContext) -> tuple[tuple[str, str], ...]:
        optional = (("_graph_commits", COMMITS_DIR), ("_graph_commit_actors", ACTORS_DIR))
        present = tuple((key, path) for key, path in optional if _open_optional(context, path, None) is not None)
        return (("__manifest", MANIFEST_DIR), *present)

    def branched_internal_tables(self, context: GraphContext) -> tuple[tuple[str, str], ...]:
        if _open_optional(context, COMMITS_DIR, None) is None:
            return ()
        return (("_graph_commits", COMMITS_DIR),)


def _spec(kind: str, raw: dict[str, Any]) -> TableSpec:
    table_key = f"{kind}:{raw['name']}"
    indexed = []
    for constraint in raw["constraints"]:
        ((tag, columns),) = constraint.items()
        if tag in {"Key", "Index"} and len(columns) == 1:
            indexed.append(str(columns[0]))
    return TableSpec(
        table_key=table_key,
        path=f"{kind}s/{fnv1a64(str(raw['name']))}",
        properties=parse_properties(table_key, raw),
        indexed=tuple(indexed),
    )


def _open_optional(context: GraphContext, path: str, branch: str | None) -> Dataset | None:
    try:
        return context.open_at(path, branch=branch)
    except DatasetMissing:
        return None


def _append_next(context: GraphContext, folder: str, commits: Dataset, row: Mapping[str, object]) -> None:
    """Append a row as the version after the open one, or not at all where another writer made that version. Writes."""
    table = pa.Table.from_pylist([row], schema=COMMITS_SCHEMA)
    newest = read_manifest(context.storage, folder, int(commits.version))
    operation, files = appended_rows(commits, table, context.lance.storage_options)
    with drafted(newest, name_after(newest), operation, mark=str(row["graph_commit_id"])) as made:
        files.append(f"_transactions/{made.transaction_name}")
        context.storage.write(f"{folder}/{files[-1]}", made.transaction)
        path = f"{folder}/_versions/{made.manifest.name}"
        with context.storage.prepared(path, made.manifest.content) as commit:
            if commit():
                return
    for name in files:
        context.storage.delete(f"{folder}/{name}")


def _append(context: GraphContext, dataset: Dataset, row: Mapping[str, object], schema: pa.Schema) -> None:
    context.lance.strip_auto_cleanup(dataset)
    context.lance.append(dataset, pa.Table.from_pylist([row], schema=schema))


def _has_commit_id(actors: Dataset, commit_id: str) -> bool:
    with lance_errors("read the commit actors"):
        return commit_id in actors.to_table(columns=["graph_commit_id"]).column(0).to_pylist()

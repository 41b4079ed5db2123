"""The state of a graph branch: the rows of its graph manifest, what they reduce to, and its commits."""

from __future__ import annotations

import itertools
import json
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.schema import TableIdentity
from omnigraph_ops.storage.location import checked_table_path
from omnigraph_ops.storage.store import Storage

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
    """The metadata cell of a `table_version` row, its keys in the order of the engine."""

    manifest_path: str
    manifest_size: int | None
    e_tag: str | None
    naming_scheme: str | None

    def to_json(self) -> str:
        """Compact JSON, nulls included. Pure."""
        return _compact(asdict(self))


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
    cells = [asdict(row) | (asdict(row.identity) if row.identity is not None else {}) for row in rows]
    return pa.Table.from_pylist(cells, schema=schema)


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


def parse_commit_parents(metadata: str | None) -> tuple[str, ...]:
    """The parents of a `graph_commit` row, the one that was merged last; raises `CorruptGraph`. Pure."""
    try:
        cells = json.loads(metadata or "")
        found = (cells.get("parent_commit_id"), cells.get("merged_parent_commit_id"))
    except (ValueError, AttributeError, RecursionError):
        message = f"a commit of __manifest has unreadable metadata {metadata!r}; nothing was written"
        raise CorruptGraph(message) from None
    return tuple(str(parent) for parent in found if parent)


def _compact(data: Mapping[str, object]) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


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


@dataclass(frozen=True, kw_only=True)
class BranchState:
    """All live tables of one graph branch at one version of its graph manifest."""

    branch: str | None
    """None for main."""
    manifest_version: int
    entries: tuple[TableEntry, ...]
    """Sorted by key."""
    head_commit_id: str | None
    """The lineage head, where lineage lives in the graph manifest (stamp 6)."""
    dropped: frozenset[TableIdentity | str] = frozenset()
    """Tables that a schema apply dropped, by identity, or by key where they have none."""

    @property
    def identities(self) -> frozenset[tuple[str, TableIdentity | None]]:
        """Which tables are live, by key and identity, whatever their versions. Pure."""
        return frozenset((e.table_key, e.identity) for e in self.entries)

    def get(self, table_key: str) -> TableEntry | None:
        """The entry of that key, None when the table is not live here. Pure."""
        return next((e for e in self.entries if e.table_key == table_key), None)

    def at(self, path: str) -> Sequence[TableEntry]:
        """The entry of the dataset there, empty when it is not live here. Pure."""
        return self._by_path.get(path, ())

    @cached_property
    def _by_path(self) -> Mapping[str, Sequence[TableEntry]]:
        # Whoever judges one table after the other asks every branch for each of them.
        found: dict[str, list[TableEntry]] = {}
        for entry in self.entries:
            found.setdefault(entry.path, []).append(entry)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUpdate:
    """One table version to publish."""

    entry: TableEntry
    """The entry it replaces; its version is the expectation."""
    version: int
    row_count: int
    metadata_json: str

    def made(self) -> TableEntry:
        """The entry that it makes once it is published. Pure."""
        manifest_path = json.loads(self.metadata_json)["manifest_path"]
        return replace(self.entry, version=self.version, row_count=self.row_count, manifest_path=manifest_path)


Row = dict[str, Any]


def checked_rows(rows: pa.Table, schema: pa.Schema, root: str) -> pa.Table:
    """The rows after checking that the columns are what the engine requires. Pure."""
    for field in schema:
        index = rows.schema.get_field_index(field.name)
        if index < 0 or rows.schema.field(index).type != field.type:
            found = "missing" if index < 0 else str(rows.schema.field(index).type)
            raise CorruptGraph(
                f"{root}/__manifest column {field.name} is {found}, expected {field.type}; nothing was written"
            )
    return rows


def of_type(rows: pa.Table, object_type: str) -> pa.Table:
    """The rows of one kind; kinds this tool does not know are skipped, as the engine does. Pure."""
    return rows.filter(pc.equal(rows.column("object_type"), object_type))


def newest(rows: pa.Table, key: Sequence[str]) -> list[Row]:
    """Per key, given by its columns, the row with the greatest `table_version`. Pure.

    A graph manifest keeps a row for every version ever published: only those that count become Python values.
    """
    versions = rows.column("table_version")
    if versions.null_count:
        row = rows.filter(versions.is_null()).column("object_id")[0].as_py()
        raise CorruptGraph(f"__manifest row {row!r} has no table_version; nothing was written")
    order: list[tuple[str, str]] = [(name, "ascending") for name in key]
    ranked = rows.take(pc.sort_indices(rows, [*order, ("table_version", "descending")]))
    first = np.ones(ranked.num_rows, dtype=bool)
    if ranked.num_rows > 1:
        first[1:] = False
        for name in key:
            column = ranked.column(name)
            first[1:] |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy()
    result: list[Row] = ranked.filter(pa.array(first)).to_pylist()
    return result


def is_live(version: Row, tombstone: Row | None) -> bool:
    """A table is live unless a tombstone at or past its newest version hides it. Pure."""
    return tombstone is None or bool(tombstone["table_version"] < version["table_version"])


def check_metadata(row: Row) -> None:
    """Refuse a version row whose metadata no engine can decode: it would break every open. Pure."""
    try:
        decoded = json.loads(row["metadata"] or "")
        valid = isinstance(decoded, dict) and isinstance(decoded.get("manifest_path"), str)
    except (ValueError, RecursionError):
        valid = False
    if not valid:
        raise CorruptGraph(f"__manifest row {row['object_id']!r} has undecodable metadata; nothing was written")


def entry_of(storage: Storage, table_key: str, path: str | None, row: Row, **extra: Any) -> TableEntry:
    """A live entry from its registration and its newest version row. Reads links."""
    if not path:
        raise CorruptGraph(f"__manifest registers {table_key} without a location; nothing was written")
    return TableEntry(
        table_key=table_key,
        path=checked_table_path(storage.root, path),
        version=int(row["table_version"]),
        branch=row["table_branch"],
        row_count=row["row_count"],
        manifest_path=json.loads(row["metadata"])["manifest_path"],
        **extra,
    )


def sorted_entries(entries: Iterable[TableEntry], root: str) -> tuple[TableEntry, ...]:
    """Entries by key; two live tables with one key are corruption. Pure."""
    ordered = sorted(entries, key=lambda e: e.table_key)
    for left, right in itertools.pairwise(ordered):
        if left.table_key == right.table_key:
            raise CorruptGraph(f"{root}/__manifest has two live tables {left.table_key!r}; nothing was written")
    return tuple(ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCommit:
    """One commit as a branch of the graph records it."""

    commit_id: str
    branch: str | None
    """The graph branch that it was made on, None for main."""
    manifest_version: int
    """The version of that branch's graph manifest that a reader of the commit opens."""
    parents: tuple[str, ...]


def merge_bases(lineages: Sequence[Sequence[GraphCommit]]) -> frozenset[GraphCommit]:
    """The commits that a merge between any two of these branches reads as its base. Pure.

    The engine takes the common ancestor with the fewest steps to both heads, and knows only what the two branches
    record: a commit of a third one is no base, however near. Where several are equally near all of them are returned:
    which one it takes depends on the release.

    Args:
        lineages: the commits that each branch records, its head last.
    """
    by_head = {lineage[-1].commit_id: by_id((lineage,)) for lineage in lineages if lineage}
    found: set[GraphCommit] = set()
    for one, other in combinations(sorted(by_head), 2):
        commits = ChainMap(by_head[one], by_head[other])
        found |= {commits[commit] for commit in _nearest(commits, one, other)}
    return frozenset(found)


def by_id(lineages: Iterable[Sequence[GraphCommit]]) -> dict[str, GraphCommit]:
    """All commits of several branches by their id: branches share those from before they forked. Pure."""
    return {commit.commit_id: commit for lineage in lineages for commit in lineage}


def _nearest(commits: Mapping[str, GraphCommit], one: str, other: str) -> set[str]:
    """The common ancestors of two heads, themselves included, with the fewest steps to both. Pure."""
    left, right = {one: 0}, {other: 0}
    ahead: tuple[list[str], list[str]] = [one], [other]
    fewest, depth = inf, 0
    # None that is nearer to both lies further from either; most of a long history is not looked at.
    while any(ahead) and depth < fewest:
        depth += 1
        ahead = _next(commits, ahead[0], left, depth), _next(commits, ahead[1], right, depth)
        met = [c for c in chain(*ahead, (one, other)) if c in left and c in right]
        fewest = min([fewest, *(left[c] + right[c] for c in met)])
    return {c for c, steps in left.items() if c in right and steps + right[c] == fewest}


def _next(commits: Mapping[str, GraphCommit], ahead: list[str], steps: dict[str, int], depth: int) -> list[str]:
    """The parents of these commits that were not met yet, with their depth put into `steps`."""
    found = {p: depth for c in ahead for p in commits[c].parents if p in commits and p not in steps}
    steps.update(found)
    return list(found)

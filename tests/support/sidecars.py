"""Sidecars as a crashed writer leaves them, and what recovery writes about them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import version_record
from omnigraph_ops.graph.layout import (
    ACTORS_DIR,
    COMMITS_DIR,
    MANIFEST_DIR,
    RECOVERIES_DIR,
    chain_folder,
    made_at_us,
    new_ulid,
    now_us,
)
from omnigraph_ops.graph.sidecars import ROLLED_BACK, append_audit, list_sidecars, sidecar_path
from omnigraph_ops.lance.gateway import DatasetMissing
from tests.support.writers import copies, entry_of, write

Document = dict[str, Any]
TABLE = "node:Person"
OTHER = "node:Doc"
EDGE = "edge:Knows"


def arm(
    graph: Graph,
    table_key: str = TABLE,
    *,
    age_seconds: float = 3600,
    change: Callable[[Document], None] = lambda _document: None,
) -> str:
    """Write a foreign Optimize sidecar for the table as it is pinned now; its operation id. Writes."""
    at = now_us() - int(age_seconds * 1e6)
    operation_id = new_ulid(at)
    entry = entry_of(graph, table_key)
    document = graph.format.sidecar(entry, f"{graph.uri}/{entry.path}", operation_id, at)
    change(document)
    graph.storage.write(sidecar_path(operation_id), json.dumps(document).encode())
    return operation_id


def make_branch(graph: Graph, name: str) -> None:
    """Branch main as the engine does, in every internal dataset that has the branches of the graph. Writes."""
    for path in (MANIFEST_DIR, *(path for path in graph.format.lineage_datasets if path == COMMITS_DIR)):
        dataset = graph.lance.open(graph.storage.uri(path))
        dataset.create_branch(name, dataset.version)


def on_branch(name: str) -> Callable[[Document], None]:
    """Makes it the sidecar of a mutation by the engine on a branch where its tables are forked."""

    def change(document: Document) -> None:
        document |= {"branch": name, "writer_kind": "Mutation"}
        for pin in document["tables"]:
            pin["table_branch"] = name

    return change


def take_back(
    graph: Graph,
    table_key: str = TABLE,
    *,
    restores: bool = True,
    change: Callable[[Document], None] = lambda _document: None,
) -> str:
    """A load that is published, its sidecar as armed, and its table restored: what two engines left. Writes.

    Args:
        restores: whether the process that takes the writer for dead came to restore the table.
        change: of the sidecar.

    Returns:
        The operation id.
    """
    began = entry_of(graph, table_key).version
    write(graph, table_key, copies("loaded-"))
    head = graph.open_head(entry_of(graph, table_key))
    commit_id = commit_rows(graph)[-1]["graph_commit_id"]

    def unconfirmed(document: Document) -> None:
        document["writer_kind"] = "Load"
        document["protocol_v3"] = {
            "lineage": {"graph_commit_id": commit_id},
            "rollback_graph_commit_id": new_ulid(),
            "effect_phase": "Armed",
        }
        document["tables"][0] |= {"expected_version": began, "post_commit_pin": began + 1}
        change(document)

    operation_id = arm(graph, table_key, change=unconfirmed)
    _age(graph, operation_id)
    if restores:
        head.checkout_version(began).restore()  # type: ignore[no-untyped-call]
    return operation_id


def cross(graph: Graph, branch: str | None = None, tables: tuple[str, ...] = (TABLE, EDGE)) -> None:
    """Two loads, each committed on top of the other in one of two tables, and none published. Writes."""
    planned = dict[str, list[str]](first=[], second=[])
    for table_key, order in zip(tables, (("first", "second"), ("second", "first")), strict=False):
        entry = entry_of(graph, table_key, branch)
        for writer in order:
            copies(f"{writer}-")(graph.lance.open(graph.table_uri(entry), branch=branch))
            head = graph.lance.open(graph.table_uri(entry), branch=branch).version
            planned[writer].append(
                str(version_record(graph.storage, chain_folder(entry.path, branch), head).transaction_id)
            )
    pins = [pin_of(graph, table_key, branch) for table_key in tables]
    for transactions in planned.values():
        write_of = {
            "lineage": {"graph_commit_id": new_ulid()},
            "rollback_graph_commit_id": new_ulid(),
            "effect_phase": "Armed",
            "effects": [{"planned_transaction": {"read_version": 1, "uuid": one}} for one in transactions],
        }
        fields = {"branch": branch, "writer_kind": "Load", "tables": pins, "protocol_v3": write_of}
        _age(graph, arm(graph, change=lambda d, fields=fields: d.update(fields)))  # type: ignore[misc]


def _age(graph: Graph, operation_id: str) -> None:
    """Let a sidecar be as old as it says. Writes."""
    old = time.time() - 3600
    os.utime(Path(graph.uri, sidecar_path(operation_id)), (old, old))


def pin_of(graph: Graph, table_key: str, branch: str | None = None) -> Document:
    """The pin that a sidecar would carry for a table. Reads."""
    entry = entry_of(graph, table_key, branch)
    pin: Document = graph.format.sidecar(entry, f"{graph.uri}/{entry.path}", "", 0)["tables"][0]
    return pin | {"table_branch": branch}


def judge(graph: Graph, *, writer: str, kind: str = ROLLED_BACK, hours_ago: float = 0, lay_seconds: float = 60) -> int:
    """The audit of what another process made of a write, whose sidecar it removed; when that was armed. Writes.

    Args:
        lay_seconds: for how long the sidecar was there.
    """
    age = lay_seconds + hours_ago * 3600
    operation_id = arm(graph, age_seconds=age, change=lambda document: document.update(writer_kind=writer))
    (file,) = list_sidecars(graph.storage, graph.format.sidecar_version)
    assert file.sidecar is not None
    at = now_us() - int(hours_ago * 3_600_000_000)
    append_audit(graph, file.sidecar, commit_id=new_ulid(), kind=kind, outcomes=(), created_at_us=at)
    graph.storage.delete(file.path)
    return made_at_us(operation_id)


def move(graph: Graph, table_key: str = TABLE) -> int:
    """Compact the table without a publish; its new HEAD. Writes."""
    dataset = graph.open_head(entry_of(graph, table_key))
    dataset.optimize.compact_files()
    head: int = graph.open_head(entry_of(graph, table_key)).version
    return head


def append_foreign_row(graph: Graph, table_key: str = TABLE) -> None:
    """Another writer's row lands on the HEAD, unpublished. Writes."""
    dataset = graph.open_head(entry_of(graph, table_key))
    row = dataset.to_table(limit=1)
    named = row.set_column(row.schema.get_field_index("id"), row.schema.field("id"), [["somebody-new"]])
    graph.lance.append(dataset, named)


def publish_head(graph: Graph, table_key: str = TABLE) -> None:
    """Publish the HEAD as the writer of the sidecar did before it died. Writes."""
    write(graph, table_key, lambda _head: None)


def audit_rows(graph: Graph) -> list[Document]:
    """The recovery audit. Reads."""
    try:
        dataset = graph.lance.open(graph.storage.uri(RECOVERIES_DIR))
    except DatasetMissing:
        return []
    rows: list[Document] = dataset.to_table().to_pylist()
    return rows


def commit_rows(graph: Graph) -> list[Document]:
    """Graph commits of main with their actor, oldest first, in one shape for both stamps. Reads."""
    commits = commits_in(graph, None, manifest_rows(graph))
    if graph.stamp == 6:
        return commits
    actors = graph.lance.open(graph.storage.uri(ACTORS_DIR)).to_table().to_pylist()
    by_id = {r["graph_commit_id"]: r["actor_id"] for r in actors}
    return [{**r, "actor_id": by_id.get(r["graph_commit_id"])} for r in commits]


def manifest_rows(graph: Graph, branch: str | None = None) -> list[Document]:
    """Every row of the graph manifest of a branch. Reads."""
    rows: list[Document] = graph.manifest(branch).to_table().to_pylist()
    return rows


def commits_in(graph: Graph, branch: str | None, manifest: list[Document]) -> list[Document]:
    """Graph commits of a branch whose graph manifest has these rows, oldest first. Reads."""
    if graph.stamp == 6:
        found = [_commit_6(row) for row in manifest if row["object_type"] == "graph_commit"]
    else:
        found = graph.lance.open(graph.storage.uri(COMMITS_DIR), branch=branch).to_table().to_pylist()
    return sorted(found, key=lambda r: (r["manifest_version"], r["created_at"]))


def _commit_6(row: Document) -> Document:
    cell = json.loads(row["metadata"])
    return {
        "graph_commit_id": row["object_id"],
        "manifest_branch": row["table_branch"],
        "manifest_version": row["table_version"],
        "parent_commit_id": cell.get("parent_commit_id"),
        "merged_parent_commit_id": cell.get("merged_parent_commit_id"),
        "created_at": cell["created_at"],
        "actor_id": cell.get("actor_id"),
    }

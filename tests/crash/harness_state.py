"""What must hold of a graph after any kill: rows, pins, lineage, and that maintenance converges."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from omnigraph_ops.edges.inventory import below_folder, folders_in
from omnigraph_ops.graph.graph import Graph, open_graph
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lease import LEASE_PATH, lease_is_alive, read_lease
from omnigraph_ops.models import CheckStatus
from omnigraph_ops.optimize import optimize_all, plan_optimize
from omnigraph_ops.recovery import check, recover
from omnigraph_ops.rewrites.journal import REWRITES_DIR
from omnigraph_ops.settings import Settings

Rows = dict[tuple[str | None, str], str]
QUICK = Settings(concurrency=1, lease_ttl_seconds=30, lease_wait_seconds=2, recovery_grace_seconds=0)


def observed_rows(graph: Graph) -> Rows:
    """Per branch and table a digest of all rows with their stable row ids, in order. Reads."""
    found: Rows = {}
    for branch in (None, *graph.branches()):
        for entry in graph.state(branch).entries:
            rows = graph.open_pinned(entry).scanner(with_row_id=True).to_table()
            text = json.dumps(rows.to_pylist(), default=str)
            found[branch, entry.table_key] = hashlib.sha256(text.encode()).hexdigest()
    return found


def check_readable(root: str, expected: Rows) -> None:
    """Every pin of every branch opens and scans to the rows it had; ids and lineage are sound. Reads."""
    graph = open_graph(root, QUICK)
    assert observed_rows(graph) == expected
    for branch in (None, *graph.branches()):
        check_object_ids(graph, branch)
        check_lineage(graph, branch)


def check_object_ids(graph: Graph, branch: str | None) -> None:
    """No `object_id` of the graph manifest occurs twice. Reads."""
    ids = graph.manifest(branch).to_table(columns=["object_id"]).column(0).to_pylist()
    assert [i for i, n in Counter(ids).items() if n > 1] == []


def check_lineage(graph: Graph, branch: str | None) -> None:
    """Graph commits are one chain: every parent exists, no fork, one head. Reads."""
    commits = _commits_3(graph, branch) if graph.stamp == 3 else _commits_6(graph, branch)
    ids = [c["id"] for c in commits]
    assert len(set(ids)) == len(ids), "a graph commit is listed twice"
    parents = [c["parent"] for c in commits if c["parent"] is not None]
    assert set(parents) <= set(ids), "a parent commit does not exist"
    assert [p for p, n in Counter(parents).items() if n > 1] == [], "two commits have one parent"
    assert len(commits) - len(parents) == 1, "there is not exactly one genesis"
    heads = set(ids) - set(parents)
    assert len(heads) == 1, f"{len(heads)} heads"
    versions = [c["version"] for c in sorted(commits, key=lambda c: (c["version"], c["at"]))]
    assert max(versions) <= graph.manifest(branch).version
    if graph.stamp == 6:
        assert _recorded_head(graph, branch) in (heads | {None})


def expire_lease(graph: Graph) -> None:
    """Age the leases of the killed run past their time to live. Writes."""
    tables = [f"{folder}/lease.json" for folder in folders_in(graph.storage, REWRITES_DIR)]
    for path in (LEASE_PATH, *tables):
        if graph.storage.exists(path):
            assert read_lease(graph.storage, path) is not None, "a kill left an unreadable lease"
            aged = json.loads(graph.storage.read(path)) | {"expires_at": 1.0}
            graph.storage.write(path, json.dumps(aged).encode())


def converge(root: str, again: Callable[[Graph], object] = lambda _graph: None) -> None:
    """A recover and a second optimize, as the next night runs them; `again` in between. Writes."""
    graph = open_graph(root, QUICK)
    expire_lease(graph)
    report = recover(graph, grace_seconds=0)
    assert {o.action for o in report.outcomes} <= {"rolled_forward", "rolled_back", "stale"}, report
    again(graph)
    failed = optimize_all(graph).failed
    assert not failed, failed


def check_converged(root: str) -> None:
    """Nothing pending, every pin is its head, nothing left to optimize. Reads."""
    graph = open_graph(root, QUICK)
    assert not sidecar_names(graph.storage)
    report = check(graph)
    assert report.status is CheckStatus.CLEAN, report
    assert report.drift == ()
    assert plan_optimize(graph).productive() == ()
    assert not lease_is_alive(read_lease(graph.storage))
    assert [f for f in below_folder(graph.storage, REWRITES_DIR) if not (f.is_folder or f.path.endswith(".tmp"))] == []


def _commits_3(graph: Graph, branch: str | None) -> list[dict[str, Any]]:
    dataset = graph.lance.open(graph.context.location.uri(COMMITS_DIR), branch=branch)
    return [
        {
            "id": r["graph_commit_id"],
            "parent": r["parent_commit_id"],
            "version": r["manifest_version"],
            "at": r["created_at"].timestamp(),
        }
        for r in dataset.to_table().to_pylist()
    ]


def _commits_6(graph: Graph, branch: str | None) -> list[dict[str, Any]]:
    dataset = graph.lance.open(graph.context.location.uri(MANIFEST_DIR), branch=branch)
    rows = dataset.to_table(filter="object_type = 'graph_commit'").to_pylist()
    cells = [json.loads(r["metadata"]) for r in rows]
    return [
        {
            "id": row["object_id"],
            "parent": cell.get("parent_commit_id"),
            "version": row["table_version"],
            "at": cell["created_at"],
        }
        for row, cell in zip(rows, cells, strict=True)
    ]


def _recorded_head(graph: Graph, branch: str | None) -> str | None:
    rows = graph.manifest(branch).to_table(filter=f"object_id = 'graph_head:{branch or 'main'}'").to_pylist()
    return json.loads(rows[0]["metadata"])["head_commit_id"] if rows else None

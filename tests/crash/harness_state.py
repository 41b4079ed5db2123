"""What must hold of a graph after any kill: rows, pins, lineage, and that maintenance converges."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.lease import working_holder
from omnigraph_ops.coordination.state import REWRITES_DIR
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.storage.inventory import below_folder
from tests.support.leases import bury_holders, is_lease
from tests.support.rows import Rows, rows_everywhere
from tests.support.sidecars import Document, commits_in, manifest_rows

QUICK = Settings(
    concurrency=1,
    lease_ttl_seconds=30,
    lease_wait_seconds=2,
    recovery_grace_seconds=0,
    # No window gives way to the writers of the scenario: then every run makes the same calls.
    window_share=1,
)


def check_readable(root: str, expected: dict[str | None, Rows], *, in_order: bool = True) -> None:
    """Every pin of every branch opens and scans to the rows it had; ids and lineage are sound. Reads."""
    graph = open_graph(root, QUICK)
    assert rows_everywhere(graph, in_order=in_order) == expected
    for branch in expected:
        check_lineage(graph, branch)


def check_lineage(graph: Graph, branch: str | None) -> None:
    """No `object_id` occurs twice; graph commits are one chain: every parent exists, no fork, one head. Reads."""
    manifest = manifest_rows(graph, branch)
    assert _twice(row["object_id"] for row in manifest) == []
    commits = commits_in(graph, branch, manifest)
    ids = [c["graph_commit_id"] for c in commits]
    assert _twice(ids) == [], "a graph commit is listed twice"
    parents = [c["parent_commit_id"] for c in commits if c["parent_commit_id"] is not None]
    assert set(parents) <= set(ids), "a parent commit does not exist"
    assert _twice(parents) == [], "two commits have one parent"
    assert len(commits) - len(parents) == 1, "there is not exactly one genesis"
    heads = set(ids) - set(parents)
    assert len(heads) == 1, f"{len(heads)} heads"
    assert max(c["manifest_version"] for c in commits) <= graph.manifest(branch).version
    if graph.stamp == 6:
        assert set(_recorded_heads(manifest, branch)) <= heads


def expire_lease(graph: Graph) -> None:
    """Let the leases of the killed run be those of a dead process. Writes."""
    bury_holders(graph.storage)


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
    assert working_holder(graph.storage) is None
    left = [f.path for f in below_folder(graph.storage, REWRITES_DIR) if not f.is_folder]
    assert [f for f in left if not (is_lease(f) or f.endswith(".tmp"))] == []


def _twice(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def _recorded_heads(manifest: list[Document], branch: str | None) -> list[str]:
    rows = [row for row in manifest if row["object_id"] == f"graph_head:{branch or 'main'}"]
    return [json.loads(row["metadata"])["head_commit_id"] for row in rows]

"""What merges of the branches of a graph start from, as the graph manifest has it."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph_ops.errors import CorruptGraph, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.lineage import GraphCommit, merge_bases
from omnigraph_ops.graph.state import BranchState
from omnigraph_ops.lance.gateway import DatasetMissing, lance_errors


def base_states(graph: Graph, branches: Iterable[str]) -> tuple[BranchState, ...]:
    """What each commit published that a merge between main and these branches, or any two of them, starts from. Reads.

    A commit whose version or branch is gone is left out: no merge can read it any more.

    Raises:
        CorruptGraph: one is there and cannot be read, so what it pins is unknown.
    """
    names = tuple(branches)
    if not names or not graph.format.publishes:
        return ()
    lineages = [graph.format.commits(graph.context, name) for name in (None, *names)]
    chains = sorted({(c.branch or "", c.manifest_version): c for c in merge_bases(lineages)}.items())
    return tuple(state for _, commit in chains if (state := _state_at(graph, commit)) is not None)


def _state_at(graph: Graph, commit: GraphCommit) -> BranchState | None:
    uri, branch = graph.context.location.uri(MANIFEST_DIR), commit.branch
    try:
        manifest = graph.lance.open(uri, branch=branch, version=commit.manifest_version)
        with lance_errors(f"read commit {commit.commit_id}"):
            rows = graph.context.manifest_rows.of(manifest, branch)
        # Not by `Graph.decode`, which keeps the newest state of each branch.
        return graph.format.decode(graph.context, rows, branch, commit.manifest_version)
    except DatasetMissing:
        return None
    except OpsError as error:
        raise CorruptGraph(f"commit {commit.commit_id}, from which merges start, cannot be read: {error}") from error

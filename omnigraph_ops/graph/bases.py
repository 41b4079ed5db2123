"""What merges of the branches of a graph start from, as the graph manifest has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import is_

from omnigraph_ops.errors import CorruptGraph, OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import MANIFEST_DIR
from omnigraph_ops.graph.lineage import GraphCommit, merge_bases
from omnigraph_ops.graph.state import BranchState
from omnigraph_ops.lance.fragment_rows import FragmentRows
from omnigraph_ops.lance.gateway import DatasetMissing, lance_errors


def base_states(graph: Graph, states: Sequence[BranchState]) -> tuple[BranchState, ...]:
    """What the commits published that merges start from, but for what these branches publish now. Reads.

    Of merges between any two of them, and with a branch that is made of one: those start from the commit that is its
    head now, which a reader opens at an older version once the graph manifest was compacted. A commit whose version or
    branch is gone is left out: no merge can read it any more.

    Args:
        states: of main and of the branches.

    Raises:
        CorruptGraph, StorageError: one is there and cannot be read, so what it pins is unknown.
    """
    if not graph.format.publishes:
        return ()
    # Whoever works on one table after the other asks for each of them, and a lineage may be long.
    for known, bases in tuple(graph.context.bases):
        if len(known) == len(states) and all(map(is_, known, states)):
            return bases
    bases = tuple(_read(graph, states))
    graph.context.bases[:] = [(tuple(states), bases)]
    return bases


def _read(graph: Graph, states: Sequence[BranchState]) -> Iterator[BranchState]:
    lineages = [graph.format.commits(graph.context, state.branch) for state in states]
    heads = {lineage[-1] for lineage in lineages if lineage}
    found = {(c.branch or "", c.manifest_version): c for c in merge_bases(lineages) | heads}
    for state in states:
        found.pop((state.branch or "", state.manifest_version), None)
    read = (_state_at(graph, commit, alone=len(states) == 1) for _, commit in sorted(found.items()))
    yield from (state for state in read if state is not None)


def _state_at(graph: Graph, commit: GraphCommit, *, alone: bool) -> BranchState | None:
    uri, branch = graph.context.location.uri(MANIFEST_DIR), commit.branch
    try:
        manifest = graph.lance.open(uri, branch=branch, version=commit.manifest_version)
        with lance_errors(f"read commit {commit.commit_id}"):
            # Not by `Graph.decode`, nor with its rows, which are kept of the newest state of each branch.
            rows = FragmentRows().of(manifest)
        return graph.format.decode(graph.context, rows, branch, commit.manifest_version)
    except DatasetMissing:
        return None
    except OpsError as error:
        # What the store fails to give now it may give to the next attempt.
        kind = StorageError if isinstance(error, StorageError) else CorruptGraph
        or_else = "" if alone else ", or delete the branches that share that commit"
        raise kind(
            f"version {commit.manifest_version} of the graph manifest of {branch or 'main'} cannot be read, and merges "
            f"start from its commit {commit.commit_id}, so what they need is unknown: {error}; nothing was changed; if "
            f"it stays so, restore {MANIFEST_DIR} as of that version from a backup{or_else}"
        ) from error

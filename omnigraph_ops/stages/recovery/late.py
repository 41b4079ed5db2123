"""Commits of an engine's writers that went on after another process had removed their sidecar.

A merge of engine 0.9.0 that another of its processes took for dead may go on with its next table. If its publish is
refused, its sidecar is gone, and a repair by force would publish half of the merge. The transactions of a merge have
ids of the time when it was planned, which is after it read the head of its branch:

- Where the process that took it for dead rolled back a table, the audit has a row of that.
- Where no table had moved yet, that process only removed the sidecar. The publish of a merge asks for the very head
  that it read, so it is refused once the branch has a graph commit that was begun after the plan. Without one the merge
  may be alive, and be acknowledged in the end: its commits are left to a person.

A load or mutation of 0.9.0 that was rolled back goes on in the same way, and is refused at the end: nobody was told
that it is done. Its transactions do not tell whose they are, but which Lance wrote them, and when. One of stamp 3 is
left to a person: its publish may be no conflict with ours.

An optimize of any release that was rolled back goes on, too. The engine does not take an index build for maintenance,
so neither its repair nor ours publishes that without force. Every row of it is published already, so it is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import CONTENT_PRESERVING, VersionRecord
from omnigraph_ops.graph.layout import is_ulid, made_at_us
from omnigraph_ops.graph.sidecars import rolled_back
from omnigraph_ops.models.repair import MERGE_TRANSACTION

_ONE_WRITE_US = 60_000_000
"""From the plan of a merge, with the ids of its transactions, to its sidecar, with its operation id; and from the
rollback of a load to the last of its commits."""
_ONE_OPTIMIZE_US = 3_600_000_000
"""How long an optimize may go on after it was rolled back: it builds the indexes of its last tables."""
_WRITES = frozenset({"Append", "Update", "Delete", "Overwrite"})


def late_versions(graph: Graph, branch: str | None, commits: Sequence[VersionRecord]) -> frozenset[int]:
    """Those of the commits past a pin of that branch that nobody will publish, by version. Reads."""
    merges = _of_dead_merges(graph, branch, commits)
    return merges | _of_dead_optimizes(graph, commits) | _of_dead_loads(graph, commits)


def _of_dead_merges(graph: Graph, branch: str | None, commits: Sequence[VersionRecord]) -> frozenset[int]:
    """The versions of merges that can be published no more, with the index builds on top of them. Reads."""
    planned = {c.version: made_at_us(ulid) for c in commits if (ulid := _merge_of(c))}
    if not planned:
        return frozenset()
    head = graph.state(branch).head_commit_id or ""
    refused_before = made_at_us(head) if is_ulid(head) else 0
    dead = [merge.armed_at_us for merge in rolled_back(graph, "BranchMerge")]
    if not all(
        at < refused_before or any(0 <= armed - at <= _ONE_WRITE_US for armed in dead) for at in planned.values()
    ):
        return frozenset()
    first = min(planned)
    return frozenset(
        c.version for c in commits if c.version in planned or (c.version > first and c.operation in CONTENT_PRESERVING)
    )


def _merge_of(commit: VersionRecord) -> str | None:
    """The ULID in the id of a transaction that a merge planned; None for any other. Pure."""
    name = commit.transaction_id or ""
    ulid = name.removeprefix(MERGE_TRANSACTION)
    return ulid if name.startswith(MERGE_TRANSACTION) and is_ulid(ulid) else None


def _of_dead_optimizes(graph: Graph, commits: Sequence[VersionRecord]) -> frozenset[int]:
    """The engine's versions that changed no row and may be of an optimize that was rolled back. Reads."""
    kept = [c for c in commits if c.operation in CONTENT_PRESERVING and graph.format.is_of_engine(c.writer)]
    return _made_while(graph, kept, ("Optimize",), _ONE_OPTIMIZE_US)


def _of_dead_loads(graph: Graph, commits: Sequence[VersionRecord]) -> frozenset[int]:
    """The engine's versions that changed rows while a load or mutation that was rolled back may have gone on. Reads."""
    if not graph.format.compares_heads:
        return frozenset()  # it may be alive, and be acknowledged all the same
    written = [c for c in commits if c.operation in _WRITES and graph.format.is_of_engine(c.writer)]
    return _made_while(graph, written, ("Load", "Mutation"), _ONE_WRITE_US)


def _made_while(
    graph: Graph, commits: Sequence[VersionRecord], kinds: Sequence[str], at_most_us: int
) -> frozenset[int]:
    """Those of the versions that were made within a minute before a write was rolled back, or so long after. Reads."""
    dead = rolled_back(graph, *kinds) if commits else ()
    spans = [(max(one.armed_at_us, one.judged_at_us - _ONE_WRITE_US), one.judged_at_us + at_most_us) for one in dead]
    return frozenset(
        c.version
        for c in commits
        if c.committed_at_us is not None and any(begin <= c.committed_at_us <= end for begin, end in spans)
    )

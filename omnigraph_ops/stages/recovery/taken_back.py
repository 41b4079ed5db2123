"""Published writes of an engine that another process of it took back.

A process of engine 0.9.0 that finds the sidecar of another one before its commits are confirmed takes that writer for
dead. It writes the sidecar anew, with its plan of a rollback, and restores the tables. The writer may be alive,
publish meanwhile, and be acknowledged. What is left then is a sidecar that calls a published write unconfirmed: no
open of the engine settles it, and all its writes fail with "its manifest delta differs".

A publish is one commit of the graph manifest, so the graph commit that the sidecar names proves the whole of it. Its
rows are those that readers see. `recover` commits them on top of the restore, publishes that, and removes the sidecar.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import commits_after
from omnigraph_ops.graph.layout import MANIFEST_DIR, chain_folder
from omnigraph_ops.graph.publish import Published
from omnigraph_ops.graph.sidecars import AuditOutcome, Sidecar, SidecarPin
from omnigraph_ops.graph.state import BranchState, GraphCommit, TableEntry
from omnigraph_ops.stages.recovery.put_back import Overlaid, is_put_back, undoes


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """A published write whose sidecar no open of the engine settles."""

    published: Published
    outcomes: tuple[AuditOutcome, ...]
    """What it published."""
    tables: tuple[Overlaid, ...]
    """Those on which a restore lies."""


def taken_back(graph: Graph, sidecar: Sidecar) -> TakenBack | None:
    """The published write of a sidecar that calls it unconfirmed; None unless all of it is proven. Reads."""
    try:
        commit = _commit_of(graph, sidecar)
        return None if commit is None else _proven(graph, sidecar, commit)
    except OpsError:
        return None


def _commit_of(graph: Graph, sidecar: Sidecar) -> GraphCommit | None:
    """The visible graph commit of a write that its sidecar calls unconfirmed. Reads."""
    write = sidecar.exact_write
    if write is None or not write.is_unconfirmed or not sidecar.tables or sidecar.names_a_table_twice:
        return None
    commits = {commit.commit_id: commit for commit in graph.format.commits(graph.context, sidecar.branch)}
    if write.rollback_graph_commit_id in commits:
        return None  # the rollback is published, too: which of the two counts is for a person
    return commits.get(write.lineage.graph_commit_id)


def _proven(graph: Graph, sidecar: Sidecar, commit: GraphCommit) -> TakenBack | None:
    """What that commit published, if it is what is published, and only restores lie on top of it. Reads."""
    branch, uri = sidecar.branch, graph.context.location.uri(MANIFEST_DIR)
    then = graph.decode(graph.lance.open(uri, branch=branch, version=commit.manifest_version), branch)
    now = graph.state(branch)
    outcomes, restored = list[AuditOutcome](), list[Overlaid]()
    for pin in sidecar.tables:
        made, entry = _entry(then, pin), _entry(now, pin)
        if made is None or entry is None:
            return None
        table = Overlaid.at(graph, entry)
        if not _is_known(graph, pin, made, table):
            return None
        outcomes.append(
            AuditOutcome(table_key=pin.table_key, from_version=pin.expected_version, to_version=made.version)
        )
        restored += [table] if table.is_ahead else []
    published = Published(manifest_version=commit.manifest_version, commit_id=commit.commit_id)
    return TakenBack(published=published, outcomes=tuple(outcomes), tables=tuple(restored))


def _entry(state: BranchState, pin: SidecarPin) -> TableEntry | None:
    """What a state publishes of a table of a sidecar, on the chain and past what the writer began from. Pure."""
    entry = state.get(pin.table_key)
    is_past = entry is not None and entry.version > pin.expected_version
    where = (pin.identity, state.branch)
    return entry if entry is not None and is_past and (entry.identity, entry.branch) == where else None


def _is_known(graph: Graph, pin: SidecarPin, made: TableEntry, table: Overlaid) -> bool:
    """Whether all commits after what the write published are restores, the engine's or ours. Reads."""
    since = commits_after(graph.storage, chain_folder(made.path, made.branch), made.version, table.head)
    if not all(is_put_back(record) or undoes(graph, made, pin.expected_version, record) for record in since):
        return False
    # What an earlier attempt of ours published ends with what it put on top.
    published = table.entry.version - made.version
    return published == 0 or (table.head >= table.entry.version and is_put_back(since[published - 1]))

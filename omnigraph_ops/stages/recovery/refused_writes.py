"""Writes of engine 0.9.0 that nobody published, and that no open of it can publish or undo.

A merge that publishes a version of a table that is published already. Where a table of the source differs by its
version alone, as after a load of rows that were there, the engine plans to publish the version of the target again. Its
graph manifest has that version, so the publish is refused. The sidecar stays, every later open tries the same, and the
graph can be neither written nor exported.

A merge that met a publish of another process to one of its tables, and committed on top of it. Every later open finds
another published version than the sidecar names, and refuses to go on.

Any write that another process took for dead and rolled back after its last commit. It goes on, confirms its commits,
and so writes its sidecar again, without what the rollback noted there. Every later open sees the rollback, misses
these notes, and fails with "no durable rollback audit outcomes".

Nobody was told that such a write is done. Its transactions are in the sidecar, so `recover` rolls it back, and the
graph is as without it.
"""

from __future__ import annotations

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import CONTENT_PRESERVING, VersionRecord, commits_after
from omnigraph_ops.graph.sidecars import ExactWrite, Sidecar, SidecarFile, SidecarPin
from omnigraph_ops.graph.state import BranchState
from omnigraph_ops.stages.recovery.put_back import Overlaid, Unpublishable, is_put_back, undoes


def refused_write(graph: Graph, file: SidecarFile) -> Unpublishable | None:
    """The write that a sidecar is about, if every open refuses it; None unless all of it is proven. Reads."""
    sidecar = file.sidecar
    if sidecar is None or sidecar.exact_write is None or sidecar.names_a_table_twice:
        return None
    try:
        return _proven(graph, file, sidecar, sidecar.exact_write)
    except OpsError:
        return None


def _proven(graph: Graph, file: SidecarFile, sidecar: Sidecar, write: ExactWrite) -> Unpublishable | None:
    """What the write committed, if only that lies on what is published. Reads."""
    state = graph.state(sidecar.branch)
    visible = {commit.commit_id for commit in graph.format.commits(graph.context, sidecar.branch)}
    if write.lineage.graph_commit_id in visible:
        return None
    why = _why_refused(sidecar, write, state, is_rolled_back=write.rollback_graph_commit_id in visible)
    if why is None:
        return None
    tables = list[Overlaid]()
    for pin in sidecar.tables:
        table = Overlaid.of_pin(graph, state, pin)
        if table is None or not _is_known(graph, table, pin, write):
            return None
        tables += [table] if table.is_ahead else []
    return Unpublishable(tables=tuple(tables), files=(file,), why=why)


def _why_refused(sidecar: Sidecar, write: ExactWrite, state: BranchState, *, is_rolled_back: bool) -> str | None:
    """Why every open refuses a write that is not published, to begin a sentence; None where one settles it. Pure."""
    if is_rolled_back:
        # With these an open completes the rollback.
        is_noted = write.rollback_audit_outcomes is not None
        return None if is_noted else "another process of the engine rolled it back, and its writer went on"
    if sidecar.protocol_v4 is None:
        return None
    return published_again(write, state) or overtaken(sidecar, state)


def published_again(write: ExactWrite, state: BranchState) -> str | None:
    """Why a write is refused that publishes a table at the version that is published already. Pure."""
    for slot in write.intended_delta.table_updates:
        entry = state.get(slot.table_key)
        if entry is None or slot.confirmed is None or entry.identity != slot.identity:
            continue
        if (entry.version, entry.branch) == (slot.confirmed.table_version, slot.confirmed.table_branch):
            return f"it publishes version {entry.version} of {entry.table_key} again, which the graph manifest refuses"
    return None


def overtaken(sidecar: Sidecar, state: BranchState) -> str | None:
    """Why a write is refused of which a table was published by another one since. Pure."""
    for pin in sidecar.tables:
        entry = state.get(pin.table_key)
        if entry is not None and entry.identity == pin.identity and entry.version > pin.expected_version:
            return f"nothing of it is published, and another write of {pin.table_key} was published since it began"
    return None


def _is_known(graph: Graph, table: Overlaid, pin: SidecarPin, write: ExactWrite) -> bool:
    """Whether all that lies on a table is announced, an index build on top of that, or a restore. Reads."""
    commits = commits_after(graph.storage, table.chain, table.entry.version, table.head)
    own = [commit.version for commit in commits if commit.transaction_id in write.transactions]

    def known(commit: VersionRecord) -> bool:
        is_index_work = bool(own) and commit.version > own[0] and commit.operation in CONTENT_PRESERVING
        is_restore = is_put_back(commit) or undoes(graph, table.entry, pin.expected_version, commit)
        return commit.version in own or is_index_work or is_restore

    return all(map(known, commits))

"""Writes of several processes of the engine that crossed: each committed to tables of the other, none is published.

The engine sees in the sidecar of each the commits of the other, refuses "a restore that could discard another writer",
and from then on every write. No writer was acknowledged: its graph commit would be there. The commits are known by the
transactions that the sidecars announce, so `recover` rolls all of them back.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import VersionRecord, commits_after
from omnigraph_ops.graph.sidecars import Sidecar, SidecarFile, SidecarPin, list_sidecars
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.stages.recovery.put_back import Overlaid, Unpublishable, is_put_back, undoes

_WHY = "nothing of it is published, and its commits crossed with those of another write"


def crossed(graph: Graph, sidecar: Sidecar, beside: Sequence[SidecarFile] | None) -> Unpublishable | None:
    """The load or mutation that a sidecar is about, if the engine can neither finish nor undo it. Reads.

    None where anything of that is not proven.
    """
    if sidecar.protocol_v3 is None or sidecar.names_a_table_twice:
        return None
    try:
        listed = list_sidecars(graph.storage, graph.format.sidecar_version) if beside is None else beside
        files = _unpublished(graph, sidecar.branch, listed)
        return _proven(graph, sidecar, files) if sidecar in [file.sidecar for file in files] else None
    except OpsError:
        return None


def _unpublished(graph: Graph, branch: str | None, listed: Sequence[SidecarFile]) -> tuple[SidecarFile, ...]:
    """The sidecars of loads and mutations of a branch of which neither a publish nor a rollback is visible. Reads."""
    visible = {commit.commit_id for commit in graph.format.commits(graph.context, branch)}
    return tuple(
        file
        for file in listed
        if file.sidecar is not None and file.sidecar.branch == branch
        if (write := file.sidecar.protocol_v3) is not None
        if visible.isdisjoint({write.lineage.graph_commit_id, write.rollback_graph_commit_id})
    )


def _proven(graph: Graph, sidecar: Sidecar, files: tuple[SidecarFile, ...]) -> Unpublishable | None:
    """The tables of a sidecar, if only known commits lie on them and one of its own is covered by another. Reads."""
    writes = [w for w in (sidecar, *(f.sidecar for f in files)) if w is not None]
    its, *planned_by = (w.protocol_v3.transactions for w in writes if w.protocol_v3 is not None)
    planned = frozenset[str]().union(*planned_by)
    state, tables, is_covered = graph.state(sidecar.branch), list[Overlaid](), False
    for pin in sidecar.tables:
        table = Overlaid.of_pin(graph, state, pin)
        if table is None:
            return None
        commits = commits_after(graph.storage, table.chain, pin.expected_version, table.head)
        own = [commit.version for commit in commits if commit.transaction_id in its]
        if not _is_off(commits, own, table.entry) or not _is_known(graph, table, pin, commits, planned):
            return None
        is_covered |= any(version < table.head for version in own)
        tables += [table] if table.is_ahead else []
    return Unpublishable(tables=tuple(tables), files=files, why=_WHY) if is_covered else None


def _is_off(commits: Sequence[VersionRecord], own: Sequence[int], entry: TableEntry) -> bool:
    """Whether nothing that a writer committed is in the published version. Pure.

    Where its commit is below, a restore took it off again: ours of an earlier attempt, or the engine's.
    """
    restores = [c.version for c in commits if c.operation == "Restore" and c.version <= entry.version]
    return all(version > entry.version or any(version < restore for restore in restores) for version in own)


def _is_known(
    graph: Graph, table: Overlaid, pin: SidecarPin, commits: Sequence[VersionRecord], planned: Set[str]
) -> bool:
    """Whether every commit above the published version is announced or a restore of what was there before. Reads."""
    began = (pin.expected_version, table.entry.version)
    return all(
        commit.transaction_id in planned
        or is_put_back(commit)
        or any(undoes(graph, table.entry, version, commit) for version in began)
        for commit in commits
        if commit.version > table.entry.version
    )

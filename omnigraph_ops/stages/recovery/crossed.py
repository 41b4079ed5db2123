"""Writes of several processes of the engine that crossed: each committed to tables of the other, none is published.

The engine sees in the sidecar of each the commits of the other, refuses "a restore that could discard another writer",
and from then on every write. No writer was acknowledged: its graph commit would be there. The commits are known by the
transactions that the sidecars announce, so `recover` rolls all of them back.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import commits_after
from omnigraph_ops.graph.sidecars import Sidecar, SidecarFile, SidecarPin, list_sidecars
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.stages.recovery.put_back import Overlaid, is_put_back, undoes


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """A write that nobody published and that crossed with others."""

    tables: tuple[Overlaid, ...]
    """Its tables that are ahead of what is published."""
    files: tuple[SidecarFile, ...]
    """The sidecars of all of them."""


def crossed(graph: Graph, sidecar: Sidecar) -> Crossed | None:
    """What an unpublished write to main crossed with, None where anything of that is not proven. Reads."""
    if sidecar.protocol_v3 is None or not sidecar.protocol_v3.is_unconfirmed or sidecar.branch is not None:
        return None
    try:
        files = _unpublished(graph)
        return _proven(graph, sidecar, files) if sidecar in [file.sidecar for file in files] else None
    except OpsError:
        return None


def _unpublished(graph: Graph) -> tuple[SidecarFile, ...]:
    """The sidecars of loads and mutations of main of which neither a publish nor a rollback is visible. Reads."""
    visible = {commit.commit_id for commit in graph.format.commits(graph.context, None)}
    return tuple(
        file
        for file in list_sidecars(graph.storage, graph.format.sidecar_version)
        if file.sidecar is not None and file.sidecar.branch is None
        if (write := file.sidecar.protocol_v3) is not None and write.is_unconfirmed
        if visible.isdisjoint({write.lineage.graph_commit_id, write.rollback_graph_commit_id})
    )


def _planned(sidecar: Sidecar | None) -> frozenset[str]:
    """The transactions that a sidecar announces. Pure."""
    write = sidecar.protocol_v3 if sidecar is not None else None
    effects = write.effects if write is not None else ()
    return frozenset(e.planned_transaction.uuid for e in effects if e.planned_transaction is not None)


def _proven(graph: Graph, sidecar: Sidecar, files: tuple[SidecarFile, ...]) -> Crossed | None:
    """The tables of a sidecar, if only known commits lie on them and some are of another sidecar. Reads."""
    planned = frozenset[str]().union(*(_planned(file.sidecar) for file in files))
    state, tables, others = graph.state(), list[Overlaid](), False
    for pin in sidecar.tables:
        entry = state.get(pin.table_key)
        if entry is None or (entry.identity, entry.branch) != (pin.identity, None):
            return None
        head = int(graph.open_head(entry).version)
        if entry.version != pin.expected_version:
            # Put back together with a sidecar that is gone already.
            if head != entry.version or not _is_put_back(graph, entry, pin):
                return None
            others = True
            continue
        found = _transactions(graph, entry, pin, head, planned)
        if found is None:
            return None
        others |= bool(found - _planned(sidecar))
        if head > entry.version:
            tables.append(Overlaid(entry=entry, head=head))
    return Crossed(tables=tuple(tables), files=files) if others else None


def _transactions(
    graph: Graph, entry: TableEntry, pin: SidecarPin, head: int, planned: Set[str]
) -> frozenset[str] | None:
    """The announced transactions above the published version; None where there is anything but them. Reads."""
    found = set[str]()
    for record in commits_after(graph.storage, entry.path, entry.version, head):
        if record.transaction_id in planned and record.transaction_id is not None:
            found.add(record.transaction_id)
        elif not (is_put_back(record) or undoes(graph, entry, pin.expected_version, record)):
            return None
    return frozenset(found)


def _is_put_back(graph: Graph, entry: TableEntry, pin: SidecarPin) -> bool:
    """Whether what is published is what we put there, with the rows that the writer began from. Reads."""
    (record,) = commits_after(graph.storage, entry.path, entry.version - 1, entry.version)
    return is_put_back(record) and undoes(graph, entry, pin.expected_version, record)

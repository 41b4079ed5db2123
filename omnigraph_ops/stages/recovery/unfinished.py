"""Loads, mutations and merges of stamp 3 that stopped before they were done with all of their tables. Reads only.

The next open of the engine rolls such a write back: it restores what is published of the tables that moved. A running
server does not open the graph again. It refuses every write to these tables ("a pending recovery sidecar requires
rollback") until it is restarted, so `recover` does what an open does. A write that moved all of its tables, or that is
published, is finished by the server itself.

Nobody was told that it is done: that comes after its publish, which asks for the versions that it began from. A writer
that is alive all the same is refused there, because the versions that it would publish are published by the rollback.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import commits_after
from omnigraph_ops.graph.sidecars import Sidecar, SidecarFile, SidecarPin
from omnigraph_ops.graph.state import BranchState
from omnigraph_ops.stages.recovery.proofs import Unpublishable
from omnigraph_ops.stages.recovery.unpublished import Overlaid, is_put_back

_MERGE = "BranchMerge"
_KINDS = frozenset({"Load", "Mutation", _MERGE})


def proof_of_unfinished(graph: Graph, file: SidecarFile) -> Unpublishable | None:
    """A write that only an open of the engine rolls back; None where a server settles it. Reads."""
    sidecar = file.sidecar
    if sidecar is None or graph.format.announces_transactions or sidecar.writer_kind not in _KINDS:
        return None
    if sidecar.names_a_table_twice:
        return None
    try:
        tables = _tables(graph, sidecar, graph.state(sidecar.branch))
    except OpsError:
        return None
    if tables is None or _settles_itself(sidecar, tables):
        return None
    moved = tuple(table for table in tables if table.is_ahead)
    why = "it was not done with all of its tables, and a running server of the engine does not roll it back"
    return Unpublishable(tables=moved, files=(file,), why=why)


def _tables(graph: Graph, sidecar: Sidecar, state: BranchState) -> tuple[Overlaid, ...] | None:
    """The tables of a write, if what lies on what is published is the engine's or an earlier rollback. Reads."""
    found = list[Overlaid]()
    for pin in sidecar.tables:
        table = Overlaid.of_pin(graph, state, pin)
        if table is None or table.head < table.base or pin.table_branch != table.entry.branch:
            return None
        above = commits_after(graph.storage, table.chain, table.base, table.head)
        if not all(is_put_back(c) or graph.format.is_of_engine(c.writer) for c in above):
            return None
        found.append(table)
    return tuple(found)


def _settles_itself(sidecar: Sidecar, tables: Sequence[Overlaid]) -> bool:
    """Whether a running server finishes it: all tables moved as announced, or it was published. Pure."""
    at = list(zip(sidecar.tables, tables, strict=True))
    is_published = not any(t.is_ahead for t in tables) and any(t.base > pin.expected_version for pin, t in at)
    return is_published or all(_is_moved(sidecar, pin, table) for pin, table in at)


def _is_moved(sidecar: Sidecar, pin: SidecarPin, table: Overlaid) -> bool:
    """Whether a table was committed to as the sidecar announces it. Pure."""
    if table.base != pin.expected_version:
        return False
    if sidecar.writer_kind != _MERGE:
        return table.head == table.base + 1 == pin.post_commit_pin
    # Since schema version 2 a merge says when it is done with all of its tables.
    return table.is_ahead and (sidecar.schema_version < 2 or table.head == pin.confirmed_version)

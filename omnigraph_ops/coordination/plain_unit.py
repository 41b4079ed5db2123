"""A unit of work on plain Lance: the lease, the effects, a look at what they left.

Nothing is armed. A sidecar would tell a reader of the graph manifest which commits are ours to publish; here
Lance's own commit is atomic and is the publish, so a kill at any point leaves the last commit and perhaps
files that nothing refers to, which the journal of the rewrite or `orphans` reclaims.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from omnigraph_ops.coordination.frozen import refuse_frozen
from omnigraph_ops.coordination.lease import committer_turn
from omnigraph_ops.coordination.window import LandedUnit
from omnigraph_ops.errors import CorruptGraph, StalePlan
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.history import history
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.content import wrong_content
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.models import UnitWindow

Guard = Callable[[], None]
"""Raises when another run took over: asked right before every commit."""
Effects = Callable[[Dataset, Guard], None]


def run_plain_unit(graph: Graph, entry: TableEntry, *, unit: str, effects: Effects) -> LandedUnit:
    """Run content-preserving `effects` on the version that was planned with. Writes.

    Other writers commit whenever they like. Lance compares our commit with theirs since the version that is
    open, which therefore is the planned one and not a newer HEAD that nobody compared with the results.

    Raises:
        StalePlan: the dataset or the planned version is gone.
        GraphFrozen: somebody froze the dataset; nothing was written.
        LeaseHeld: another maintenance run took over; what was committed before stays.
        CorruptGraph: rows were lost or gained; readers see that version already, the one before can be restored.
        Whatever `effects` raises; what it committed before stays.
    """
    with committer_turn(graph, f"optimize {entry.table_key} ({unit})") as keeper:
        refuse_frozen(graph, entry.table_key)
        dataset = graph.open_head(entry)
        started = time.monotonic()
        # A run that lost the lease, stopped for long perhaps, may find its new files removed by `orphans`.
        effects(dataset, keeper.assert_held)
        window = UnitWindow(unit=unit, seconds=round(time.monotonic() - started, 4))
        committed = int(dataset.version) != entry.version
        if committed:
            _check_content(graph, entry, dataset)
    now = graph.state_of(entry.table_key).get(entry.table_key)
    if now is None:
        raise StalePlan(f"{entry.table_key} was dropped while it was maintained")
    return LandedUnit(entry=now, window=window if committed else None)


def _check_content(graph: Graph, entry: TableEntry, after: Dataset) -> None:
    """Compare with the planned version, where every commit since is known to change no row. Reads."""
    chain = history(graph.storage, entry.path, after=entry.version, upto=int(after.version))
    if not chain.preserves_content:
        return
    problem = wrong_content(graph.open_pinned(entry), after)
    if problem is not None:
        raise CorruptGraph(
            f"{entry.table_key} {problem}; stop its writers, restore version {entry.version} with Lance and report this"
        )

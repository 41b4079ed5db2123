"""The one sentence with which our stages leave a frozen graph alone, and where they ask for it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from omnigraph_ops.coordination.holds import Hold, freezes, is_active
from omnigraph_ops.durations import age, moment
from omnigraph_ops.errors import GraphFrozen
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.storage.store import Storage


def refuse_frozen(graph: Graph, table_key: str | None = None) -> None:
    """Raise `GraphFrozen` if the whole graph is frozen, or this table. Reads."""
    hold = next((h for h in active_freezes(graph.storage) if covers(h, table_key)), None)
    if hold is not None:
        raise GraphFrozen(frozen_text(graph.target, hold))


def refuse_any_freeze(graph: Graph) -> None:
    """Raise `GraphFrozen` if anything of the graph is frozen. Reads."""
    for hold in active_freezes(graph.storage):
        raise GraphFrozen(frozen_text(graph.target, hold))


def why_frozen(graph: Graph, holds: Iterable[Hold], table_key: str) -> str | None:
    """The sentence for one table, from holds that are known to count; None when it is not frozen. Pure."""
    hold = next((h for h in holds if h.freeze is not None and covers(h, table_key)), None)
    return frozen_text(graph.target, hold) if hold is not None else None


def active_freezes(storage: Storage) -> tuple[Hold, ...]:
    """Every freeze that counts now, one that is being taken included. Reads.

    A damaged record is not asked here: its tags keep the cut, and nothing is deleted beside it.
    """
    return tuple(h for h in freezes(storage) if is_active(h))


def covers(hold: Hold, table_key: str | None) -> bool:
    """Whether a freeze is about the whole graph or about that table. Pure."""
    return hold.freeze is not None and (not hold.freeze.tables or table_key in hold.freeze.tables)


def frozen_text(target: str, hold: Hold) -> str:
    """Who froze what, why, since when, until when, and how to end it. Reads the clock."""
    tables = hold.freeze.tables if hold.freeze is not None else ()
    what = f"{', '.join(tables)} of {target}" if tables else target
    why = f" ({hold.reason})" if hold.reason else ""
    return (
        f"{what} is frozen by {hold.owner}{why} since {age(time.time() - hold.created_at)}, "
        f"until {moment(int(hold.expires_at * 1e6))}; nothing was written; "
        f"`omnigraph-ops unfreeze {target} {hold.hold_id}` ends it"
    )

"""Deal tables onto processes: what is big gets one of its own, many small ones share.

A process costs seconds before its first table (an interpreter, `import lance`), which a small table does not
take itself; and a scheduler maps one task over a limited number of things (Airflow: 1,024).
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph_ops.models import TablePlan

Lot = tuple[str, ...]
"""Table keys that one process does, one after the other."""
SHARED_LOTS = 32
"""Few tables get a process each, so that each shows as itself; more than these share so many processes."""
MOST_LOTS = 512
"""However many tables are big; half of what Airflow maps by default."""


def lots_of(tables: Sequence[TablePlan], *, small_bytes: int) -> tuple[Lot, ...]:
    """The lots of tables that are in the order of their turn, each lot in that order, too. Pure.

    Args:
        small_bytes: a table that writes less than this shares its process.
    """
    turn = {table.table_key: number for number, table in enumerate(tables)}
    big = [t.table_key for t in tables if t.cost_bytes >= small_bytes][: MOST_LOTS - SHARED_LOTS]
    alone = frozenset(big)
    shared = deal([key for key in turn if key not in alone])
    return tuple(sorted((*((key,) for key in big), *shared), key=lambda lot: turn[lot[0]]))


def deal(keys: Sequence[str], *, lots: int = SHARED_LOTS) -> tuple[Lot, ...]:
    """The keys dealt out in turn, so that the first ones come first everywhere. Pure."""
    return tuple(tuple(keys[n::lots]) for n in range(min(len(keys), lots)))

"""Who rewrites a table: one run at a time, known to be alive by a lease that it renews."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from omnigraph_ops.coordination.lease import LeaseKeeper, LeasePlace, committer_lease
from omnigraph_ops.coordination.rewrites.journal import table_folder
from omnigraph_ops.graph.graph import Graph


@contextlib.contextmanager
def rewrite_lease(graph: Graph, table_path: str, *, wait_seconds: float | None = None) -> Iterator[LeaseKeeper]:
    """Be the one run that rewrites a table for the block. Writes under `__maintenance/`.

    By default waits just long enough to tell a dead holder, whose lease runs out, from a live one.

    Raises:
        LeaseHeld: a live run rewrites the table.
    """
    settings = graph.settings
    patience = min(settings.lease_wait_seconds, settings.lease_ttl_seconds + 1)
    with committer_lease(
        graph.storage,
        purpose=f"rewrite of {table_path}",
        ttl_seconds=settings.lease_ttl_seconds,
        wait_seconds=patience if wait_seconds is None else wait_seconds,
        place=lease_place(table_path),
        pause=graph.run.pause,
    ) as keeper:
        yield keeper


def lease_place(table_path: str) -> LeasePlace:
    """Where the rewrite lease of a table is. Pure."""
    return LeasePlace(path=f"{table_folder(table_path)}/lease", name=f"the rewrite lease of {table_path}")

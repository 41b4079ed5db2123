"""What was left of a table by our last run, so that the next one can tell what others added since.

Kept under `__maintenance/ingest/`. Losing it harms nothing: what was ingested is then unknown for one run,
and a table that had to wait starts waiting anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from omnigraph_ops.coordination.records import Records
from omnigraph_ops.coordination.state import INGEST_DIR
from omnigraph_ops.errors import StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.ids import now_us
from omnigraph_ops.graph.lance_manifest import UnreadableTransaction, operation_of
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.lance.tables import FragmentFacts, fragment_facts

_MOST_VERSIONS = 2000
"""Beyond so many versions since the last run nobody looks into each of them."""
# After these, and only these, every fragment with a new id is data that somebody added.
_COUNTABLE = frozenset({"Append", "Update", "Delete", "CreateIndex", "UpdateConfig", "ReserveFragments", "Project"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """One table as our last run left it."""

    table_key: str
    path: str
    version: int | None = None
    """The version it published, None when it never did."""
    newest_fragment: int = -1
    """Lance gives every new fragment a higher id."""
    maintained_at_us: int | None = None
    deferred: int = 0
    """How many runs in a row had no budget for it."""


_LAST_RUNS = Records(LastRun)


def last_run(graph: Graph, entry: TableEntry) -> LastRun | None:
    """What is recorded of a table; None when nothing is, or it is damaged or about another dataset. Reads."""
    with contextlib.suppress(StorageError):
        found = _LAST_RUNS.read(graph.storage, _path(entry.table_key))
        if found is not None and (found.table_key, found.path) == (entry.table_key, entry.path):
            return found
    return None


def bytes_since(graph: Graph, entry: TableEntry, fragments: Sequence[FragmentFacts]) -> int | None:
    """Data bytes that others added between our last run and the version of `entry`. Reads.

    None when that cannot be told: no record, or something other than loading and deleting happened since.
    """
    last = last_run(graph, entry)
    if last is None or last.version is None:
        return None
    since = range(last.version + 1, entry.version + 1)
    if last.version > entry.version or len(since) > _MOST_VERSIONS:
        return None
    try:
        operations = {operation_of(graph.storage, entry.path, version) for version in since}
    except (UnreadableTransaction, StorageError):
        return None
    if operations - _COUNTABLE:
        return None
    return sum(f.data_bytes for f in fragments if f.fragment_id > last.newest_fragment)


def record_run(graph: Graph, entry: TableEntry, dataset: Dataset, *, waiting: bool = False) -> None:
    """Note what a run published. Writes under `__maintenance/`; a store that refuses costs only the figure.

    Args:
        waiting: the rewrite found no budget: what it waited for so far still counts.
    """
    before = last_run(graph, entry) if waiting else None
    newest = max((f.fragment_id for f in fragment_facts(dataset)), default=-1)
    _keep(
        graph,
        LastRun(
            table_key=entry.table_key,
            path=entry.path,
            version=dataset.version,
            newest_fragment=newest,
            maintained_at_us=now_us(),
            deferred=before.deferred if before is not None else 0,
        ),
    )


def record_deferral(graph: Graph, entry: TableEntry) -> None:
    """Note that a run had no budget for a table. Writes under `__maintenance/`."""
    found = last_run(graph, entry) or LastRun(table_key=entry.table_key, path=entry.path)
    _keep(graph, replace(found, deferred=found.deferred + 1))


def _keep(graph: Graph, run: LastRun) -> None:
    with contextlib.suppress(StorageError):
        _LAST_RUNS.write(graph.storage, _path(run.table_key), run)


def _path(table_key: str) -> str:
    return f"{INGEST_DIR}/{table_key.replace(':', '.')}.json"

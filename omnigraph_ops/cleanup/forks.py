"""Orphaned forks: Lance branches of tables that no graph branch places there any more."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph_ops.cleanup.view import GraphView
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.models import OrphanedFork


def find_orphaned_forks(graph: Graph, entries: Iterable[TableEntry], view: GraphView) -> tuple[OrphanedFork, ...]:
    """Forks to reclaim, longest name first within a table, so that children go before parents. Reads."""
    found = [fork for entry in entries for fork in _of_table(graph, entry, view)]
    for key, path in graph.format.branched_internal_tables(graph.context):
        dataset = graph.lance.open(graph.context.location.uri(path))
        names = [b.name for b in graph.lance.branches(dataset) if b.name not in view.live_names]
        found += [OrphanedFork(table_key=key, table_path=path, branch=n) for n in removal_order(names)]
    return tuple(found)


def is_orphaned(graph: Graph, fork: OrphanedFork, view: GraphView) -> bool:
    """Decide again, from fresh state, right before the deletion. Pure.

    A branch that cannot be read is never called an orphan.
    """
    if fork.branch in {name for name, _ in view.unreadable} or _is_internal(fork.branch):
        return False
    if fork.table_key.startswith("_"):
        return fork.branch not in view.live_names
    entry = next((e for e in view.main.entries if e.path == fork.table_path), None)
    return entry is not None and not view.places(entry, fork.branch)


def removal_order(names: Iterable[str]) -> list[str]:
    """Longest name first, then alphabetical: Lance refuses to delete a referenced parent. Pure."""
    return sorted(names, key=lambda name: (-len(name), name))


def _of_table(graph: Graph, entry: TableEntry, view: GraphView) -> list[OrphanedFork]:
    try:
        dataset = graph.open_head(entry)
    except OpsError:
        # Its own row of the plan says why it cannot be read; the other tables go on.
        return []
    forks = [
        OrphanedFork(table_key=entry.table_key, table_path=entry.path, branch=name)
        for name in removal_order(b.name for b in graph.lance.branches(dataset))
    ]
    return [fork for fork in forks if is_orphaned(graph, fork, view)]


def _is_internal(branch: str) -> bool:
    return branch == "main" or branch.lstrip("/") == SCHEMA_APPLY_LOCK

"""Orphaned forks: Lance branches of tables that no graph branch places there any more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph_ops.coordination.graph_view import GraphView
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import SCHEMA_APPLY_LOCK
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.cleanup import files_of_branch
from omnigraph_ops.lance.gateway import BranchRef, Dataset
from omnigraph_ops.models import OrphanedFork, PlannedFile


def find_orphaned_forks(graph: Graph, entries: Iterable[TableEntry], view: GraphView) -> tuple[OrphanedFork, ...]:
    """Orphaned forks in the order of their removal: within a table, those made from others first. Reads.

    One that a tag or a hold keeps carries the reason as its `error`; the others carry their files.
    """
    found = [fork for entry in entries for fork in _of_table(graph, entry, view)]
    for key, path in graph.format.branched_internal_tables(graph.context):
        dataset = graph.lance.open(graph.context.location.uri(path))
        found += _described(graph, dataset, key, path, view)
    return tuple(found)


def is_orphaned(graph: Graph, fork: OrphanedFork, view: GraphView) -> bool:
    """Decide again, from fresh state, right before the deletion. Pure.

    A branch that cannot be read is never called an orphan, nor is one that no graph manifest could place.
    """
    if not graph.format.publishes:
        return False
    if fork.branch in {name for name, _ in view.unreadable} or _is_internal(fork.branch):
        return False
    if fork.table_key.startswith("_"):
        return fork.branch not in view.live_names
    entry = next((e for e in view.main.entries if e.path == fork.table_path), None)
    return entry is not None and not view.places(entry, fork.branch)


def removal_order(refs: Iterable[BranchRef]) -> list[BranchRef]:
    """Those made from others first, whatever their names: Lance refuses to delete a referenced parent. Pure."""
    return sorted(refs, key=lambda ref: (-len(ref.identifier), -len(ref.name), ref.name))


def why_kept(
    graph: Graph, dataset: Dataset, fork: OrphanedFork, view: GraphView, others: Iterable[BranchRef]
) -> str | None:
    """What keeps an orphaned fork: a tag, a hold or a branch made from it; None when nothing does. Reads."""
    tags = [name for name, branch, _ in graph.lance.tags(dataset) if branch == fork.branch]
    if tags:
        return f"tag {tags[0]!r} keeps it"
    children = [ref.name for ref in others if ref.parent_branch == fork.branch]
    if children:
        return f"Lance branch {children[0]!r} forks from it"
    held = view.held(fork.table_path, fork.branch)
    return held[0][1] if held else None


def fork_files(dataset: Dataset, fork: OrphanedFork, others: Iterable[BranchRef]) -> tuple[PlannedFile, ...]:
    """Everything that deleting the fork deletes while the others exist, by path. Reads."""
    return tuple(
        PlannedFile(path=f"{fork.table_path}/{f.path}", size=f.size, kind=f.kind)
        for f in files_of_branch(dataset, fork.branch, {ref.name for ref in others})
    )


def _of_table(graph: Graph, entry: TableEntry, view: GraphView) -> list[OrphanedFork]:
    try:
        return _described(graph, graph.open_head(entry), entry.table_key, entry.path, view)
    except OpsError:
        # Its own row of the plan says why it cannot be read; the other tables go on.
        return []


def _described(graph: Graph, dataset: Dataset, key: str, path: str, view: GraphView) -> list[OrphanedFork]:
    found = []
    order = removal_order(graph.lance.branches(dataset))
    staying = set(order)
    for ref in order:
        fork = OrphanedFork(table_key=key, table_path=path, branch=ref.name)
        if is_orphaned(graph, fork, view):
            kept = why_kept(graph, dataset, fork, view, staying)
            if kept is not None:
                found.append(replace(fork, error=kept))
                continue
            staying.remove(ref)
            found.append(replace(fork, files=fork_files(dataset, fork, staying)))
    return found


def _is_internal(branch: str) -> bool:
    return branch == "main" or branch.lstrip("/") == SCHEMA_APPLY_LOCK

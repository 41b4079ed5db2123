"""Branches that a killed engine 0.7.2 made or deleted by half, and commit graphs of branches that cannot be read.

That engine makes a branch in the graph manifest first and in the commit graph then, and Lance makes its files first and
the reference to them then. Killed between the former two, it leaves a branch that is listed and can be neither exported
nor written nor deleted. Killed between the latter two, or between the same steps of a delete, it leaves files without
a reference: no branch of that name can be made again, and where it is the schema-apply lock, no schema is applied.
Nobody was told that such a branch was made, and nobody wrote to it. Engine 0.9.0 settles all of this by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR, chain_folder
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.gateway import LanceFailure
from omnigraph_ops.models.health import BranchFinding, RecoveryOutcome
from omnigraph_ops.storage.inventory import Stored, below_folder, folders_in

_BARE = ("/_versions/", "/_transactions/")
"""A branch to which nothing was written has files in these folders alone, so no other branch reads any of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMade:
    """What is left of one branch in one internal dataset."""

    branch: str
    dataset: str
    changed_at: float
    """In seconds since the epoch."""
    has_reference: bool
    """Whether it is listed; else it is files that nothing refers to."""


def half_made(graph: Graph) -> tuple[HalfMade, ...]:
    """Branches that were made or deleted by half. Reads: a few listings, none where the engine settles this itself."""
    if not _has_commit_graph(graph) or sidecar_names(graph.storage):
        return ()  # one that a sidecar names was written to
    loose = (half for path in (MANIFEST_DIR, COMMITS_DIR) for half in _without_reference(graph, path))
    return (*_without_commits(graph), *loose)


def _has_commit_graph(graph: Graph) -> bool:
    return COMMITS_DIR in graph.format.lineage_datasets and bool(graph.storage.list(f"{COMMITS_DIR}/_versions"))


def _without_commits(graph: Graph) -> Iterator[HalfMade]:
    """Branches that the commit graph does not have, and to which nothing was published. Reads."""
    known, names = graph.stored_branches(COMMITS_DIR), graph.branches()
    for branch in names:
        # With its files there, the engine reads and deletes it by them. Those of `a/b` are below those of `a`.
        is_above = any(name.startswith(f"{branch}/") for name in names)
        if branch in known or is_above or stored_versions(graph.storage, chain_folder(COMMITS_DIR, branch)):
            continue
        ref = next((ref for ref in graph.lance_branches() if ref.name == branch), None)
        chain = chain_folder(MANIFEST_DIR, branch)
        if ref is not None and stored_versions(graph.storage, chain) == {ref.parent_version}:
            changed_at = _changed_at(_files(graph, chain))
            yield HalfMade(branch=branch, dataset=MANIFEST_DIR, changed_at=changed_at, has_reference=True)


def _without_reference(graph: Graph, dataset: str) -> Iterator[HalfMade]:
    """Files of branches of a dataset that has no such branch, where nobody wrote to it. Reads."""
    folders = folders_in(graph.storage, f"{dataset}/tree")
    known = graph.stored_branches(dataset) | graph.stored_branches(MANIFEST_DIR) if folders else frozenset()
    for folder in folders:
        name = folder.rpartition("/")[2]
        if any(branch == name or branch.startswith(f"{name}/") for branch in known):
            continue
        files = _files(graph, folder)
        if files and all(any(part in file.path for part in _BARE) for file in files):
            yield HalfMade(branch=name, dataset=dataset, changed_at=_changed_at(files), has_reference=False)


def _files(graph: Graph, folder: str) -> tuple[Stored, ...]:
    return tuple(file for file in below_folder(graph.storage, folder) if not file.is_folder)


def _changed_at(files: Sequence[Stored]) -> float:
    return max((file.modified_at or 0.0 for file in files), default=0.0)


def commit_graph_findings(graph: Graph) -> tuple[BranchFinding, ...]:
    """Branches that were made or deleted by half, and others whose commit graph cannot be read. Reads."""
    halves = half_made(graph)
    found = [_finding(half.branch, half.dataset, recoverable=True) for half in halves]
    whole = sorted(set(graph.branches()) - {half.branch for half in halves}) if _has_commit_graph(graph) else ()
    for branch in whole:
        try:
            graph.lance.open(graph.context.location.uri(COMMITS_DIR), branch=branch)
        except LanceFailure:
            if branch in graph.branches():  # else it was deleted meanwhile
                found.append(_finding(branch, COMMITS_DIR, recoverable=False))
    return tuple(found)


def _finding(branch: str, table_key: str, *, recoverable: bool) -> BranchFinding:
    return BranchFinding(
        branch=branch, table_key=table_key, manifest_version=0, lance_head_version=None, recoverable=recoverable
    )


def drop_half_made(graph: Graph, grace: float) -> tuple[RecoveryOutcome, ...]:
    """Delete what is left of branches that were made or deleted by half. Destroys files that nothing refers to.

    Args:
        grace: in seconds; what changed later may be of an engine that is at work.
    """
    halves = half_made(graph)
    young = [half for half in halves if half.changed_at > time.time() - grace]
    if not halves or young:
        return tuple(_outcome(half, "deferred", _YOUNG.format(grace=grace)) for half in young)
    with committer_turn(graph, "recover half-made branches", wait_seconds=0) as keeper:
        refuse_frozen(graph)
        listed = {half.branch for half in halves if half.has_reference}
        first = tuple(_drop(graph, keeper, lambda half: half.has_reference and half in halves))
        # The files in the commit graph of a branch that went are without a reference now, too.
        then = _drop(graph, keeper, lambda half: not half.has_reference and (half in halves or half.branch in listed))
        return (*first, *then)


_YOUNG = "it changed less than {grace:.0f} s ago, and an engine may be at work on it; deferred"


def _drop(graph: Graph, keeper: LeaseKeeper, is_meant: Callable[[HalfMade], bool]) -> Iterator[RecoveryOutcome]:
    """Delete what is still there of those that are meant. Destroys."""
    for half in filter(is_meant, half_made(graph)):
        keeper.assert_held()
        if half.has_reference:
            graph.lance.delete_branch(graph.manifest(), half.branch)
            what = "it was in the graph manifest alone"
        else:
            graph.storage.delete_tree(f"{half.dataset}/tree/{half.branch}")
            what = f"it had files in {half.dataset} without a reference"
        yield _outcome(half, "rolled_back", f"{what}; it is deleted")


def _outcome(half: HalfMade, action: str, what: str) -> RecoveryOutcome:
    detail = f"branch {half.branch!r} was made or deleted by half: {what}"
    return RecoveryOutcome(operation_id="", table_key="", action=action, detail=detail)

"""Branches that a killed engine 0.7.2 made or deleted by half, and commit graphs of branches that cannot be read.

That engine makes a branch in the graph manifest first and in the commit graph then, and Lance makes its files first and
the reference to them then. Killed between the former two, it leaves a branch that is listed and can be neither exported
nor written nor deleted. Killed between the latter two, or between the same steps of a delete, it leaves files without
a reference: no branch of that name can be made again. Where it is the schema-apply lock, no schema is applied. Where it
is one of a table, that table cannot be written on the graph branch of that name. What is deleted here was never written
to: nobody was told that it was made, or somebody was at work to delete it. What was written to is left to `orphans`,
which knows whether others read it. Engine 0.9.0 settles all of this by itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import (
    COMMITS_DIR,
    MANIFEST_DIR,
    branch_reference,
    chain_folder,
    is_schema_apply_lock,
)
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.gateway import LanceFailure
from omnigraph_ops.models.health import BranchFinding, RecoveryOutcome
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.storage.inventory import Stored, below_folder, folders_in, look_again, remove_files, remove_folder

_BARE = ("/_versions/", "/_transactions/")
"""A branch to which nothing was written has files in these folders alone, so no other branch reads any of it."""
_SETTLE_SECONDS = 1.0
"""How long it must stay as it is: an engine that makes or deletes a branch is at this point for milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMade:
    """What is left of one branch in one dataset."""

    branch: str
    table_key: str
    """Or the folder of an internal dataset."""
    folder: str
    files: tuple[Stored, ...]
    """In the folder; of a reference without any, the reference itself."""
    has_reference: bool
    """Whether it is listed; else it is files that nothing refers to."""

    @property
    def changed_at(self) -> float:
        """When its versions were written, in seconds since the epoch: a retry adds a transaction. Pure."""
        versions = [file for file in self.files if "/_versions/" in file.path]
        return max(file.modified_at for file in versions or self.files)


def half_made(graph: Graph) -> tuple[HalfMade, ...]:
    """Branches that were made or deleted by half. Reads: a listing for each dataset, none for engine 0.9.0."""
    if not _has_commit_graph(graph) or sidecar_names(graph.storage):
        return ()  # one that a sidecar names was written to
    datasets = [(MANIFEST_DIR, MANIFEST_DIR), (COMMITS_DIR, COMMITS_DIR)]
    datasets += [(entry.table_key, entry.path) for entry in graph.state().entries]
    loose = in_parallel(lambda at: _without_reference(graph, *at), datasets, workers=graph.settings.concurrency)
    return (*_without_commits(graph), *(half for found in loose for half in found))


def _has_commit_graph(graph: Graph) -> bool:
    return COMMITS_DIR in graph.format.lineage_datasets and bool(graph.storage.list(f"{COMMITS_DIR}/_versions"))


def _without_commits(graph: Graph) -> Iterator[HalfMade]:
    """Branches that the commit graph does not have, and to which nothing was published. Reads."""
    known, refs = graph.stored_branches(COMMITS_DIR), graph.lance_branches()
    for ref in refs:
        # Those of `a/b` are below those of `a`.
        is_above = any(other.name.startswith(f"{ref.name}/") for other in refs)
        if ref.name in known or is_above or is_schema_apply_lock(ref.name):
            continue
        # With its files in the commit graph the engine reads and deletes a branch by them.
        chain, its_commits = chain_folder(MANIFEST_DIR, ref.name), chain_folder(COMMITS_DIR, ref.name)
        is_written = not stored_versions(graph.storage, chain) <= {ref.parent_version}
        files = _files(graph, chain) or _reference(graph, ref.name)
        if files and not is_written and not stored_versions(graph.storage, its_commits):
            yield HalfMade(branch=ref.name, table_key=MANIFEST_DIR, folder=chain, files=files, has_reference=True)


def _reference(graph: Graph, branch: str) -> tuple[Stored, ...]:
    found = look_again(graph.storage, [branch_reference(MANIFEST_DIR, branch)])
    return tuple(file for file in found if isinstance(file, Stored))


def _without_reference(graph: Graph, table_key: str, path: str) -> list[HalfMade]:
    """Files of branches of a dataset that has no such branch, where nobody wrote to it. Reads."""
    folders = folders_in(graph.storage, f"{path}/tree")
    known = graph.stored_branches(path) if folders else frozenset()
    if path == COMMITS_DIR and folders:
        known |= graph.stored_branches(MANIFEST_DIR)
    found = []
    for folder in folders:
        name = folder.rpartition("/")[2]
        if any(branch == name or branch.startswith(f"{name}/") for branch in known):
            continue
        files = _files(graph, folder)
        is_bare = bool(files) and all(not f.is_special and any(part in f.path for part in _BARE) for f in files)
        if is_bare and not _is_published(graph, path, name):
            half = HalfMade(branch=name, table_key=table_key, folder=folder, files=files, has_reference=False)
            found.append(half)
    return found


def _is_published(graph: Graph, path: str, name: str) -> bool:
    """Whether a graph branch publishes a table from that Lance branch, or may. Reads: the engine needs only files."""
    if path in {MANIFEST_DIR, COMMITS_DIR}:
        return False
    try:
        states = [graph.state(branch) for branch in (None, *graph.branches())]
    except OpsError:
        return True
    return any(entry.path == path and entry.branch == name for state in states for entry in state.entries)


def _files(graph: Graph, folder: str) -> tuple[Stored, ...]:
    return tuple(file for file in below_folder(graph.storage, folder) if not file.is_folder)


def commit_graph_findings(graph: Graph) -> tuple[BranchFinding, ...]:
    """Branches that were made or deleted by half, and others whose commit graph cannot be read. Reads."""
    if not _has_commit_graph(graph):
        return ()
    halves = half_made(graph)
    found = [_finding(half.branch, half.table_key, recoverable=True) for half in halves]
    half_listed = {half.branch for half in halves if half.has_reference}
    for branch in sorted(set(graph.branches()) - half_listed):
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
        grace: in seconds; what was made later may be of an engine that is at work.
    """
    latest = time.time() - grace
    halves = half_made(graph)
    waiting = tuple(_outcome(half, "deferred", _YOUNG) for half in halves if half.changed_at > latest)
    old = [half for half in halves if half.changed_at <= latest]
    if not old:
        return waiting
    with committer_turn(graph, "recover half-made branches", wait_seconds=0) as keeper:
        refuse_frozen(graph)
        graph.run.pause(_SETTLE_SECONDS)
        dropped = tuple(_drop(graph, keeper, [half for half in half_made(graph) if half in old], latest))
        # The files in the commit graph of a branch that went are without a reference now, too.
        gone = {half.branch for half in old if half.has_reference}
        rest = [half for half in half_made(graph) if half.branch in gone and half.changed_at <= latest]
        return (*dropped, *_drop(graph, keeper, rest, latest), *waiting)


_YOUNG = "it was made within the grace period, and an engine may be at work on it; deferred"


def _drop(graph: Graph, keeper: LeaseKeeper, halves: Iterable[HalfMade], latest: float) -> Iterator[RecoveryOutcome]:
    """Delete exactly what was judged, but for what somebody wrote since. Destroys."""
    for half in halves:
        keeper.assert_held()
        what = "it was in the graph manifest alone"
        try:
            if half.has_reference:
                graph.lance.delete_branch(graph.manifest(), half.branch)
            else:
                what = f"it had files in {half.table_key} without a reference"
                _remove(graph, half, latest)
        except StorageError as error:
            yield _outcome(half, "deferred", f"{error}; it stays, and the next run tries again")
        else:
            yield _outcome(half, "rolled_back", f"{what}; it is deleted")


def _remove(graph: Graph, half: HalfMade, latest: float) -> None:
    if _files(graph, half.folder) != half.files:
        raise StorageError(f"{half.folder} changed while it was looked at")
    paths = [file.path for file in half.files if file.modified_at <= latest]
    for fault in remove_files(graph.storage, paths)[:1]:
        raise StorageError(f"cannot remove {fault.path}: {fault.reason}")
    for folder in (*(f"{half.folder}{part.rstrip('/')}" for part in _BARE), half.folder):
        remove_folder(graph.storage, folder)


def _outcome(half: HalfMade, action: str, what: str) -> RecoveryOutcome:
    detail = f"branch {half.branch!r} was made or deleted by half: {what}"
    return RecoveryOutcome(operation_id="", table_key="", action=action, detail=detail)

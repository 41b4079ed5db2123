"""Branches that a killed engine 0.7.2 made or deleted by half, and commit graphs of branches that cannot be read.

That engine makes a branch in the graph manifest first and in the commit graph then, and Lance makes its files first and
the reference to them then. Killed between the former two, it leaves a branch that is listed and can be neither exported
nor written nor deleted. Killed between the latter two, or between the same steps of a delete, it leaves files without a
reference. In the commit graph of a branch that is listed, the engine works on with them, but Lance does not know what
they need: the reference is written, unless they are of an earlier branch of that name, which was deleted by half.
Elsewhere no branch of that name can be made again. Where it is the schema-apply lock, no schema is applied. Where it is
one of a table, that table cannot be written on the graph branch of that name. What is deleted here was never written
to: nobody was told that it was made, or somebody was at work to delete it. What was written to is left to `orphans`,
which knows whether others read it. Engine 0.9.0 settles all of this by itself.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from omnigraph_ops.coordination.environment import clock_problem
from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn
from omnigraph_ops.errors import OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import committed_at_us, stored_versions
from omnigraph_ops.graph.layout import (
    COMMITS_DIR,
    EXPIRY_BRANCH_PREFIX,
    MANIFEST_DIR,
    any_version_of,
    branch_contents,
    branch_reference,
    chain_folder,
    is_schema_apply_lock,
    version_path,
)
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.gateway import BranchRef, LanceFailure, is_below_main
from omnigraph_ops.models.health import BranchFinding, RecoveryOutcome
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.recovery.unhealed import unreadable
from omnigraph_ops.storage.inventory import Stored, below_folder, folders_in, look_again, remove_files, remove_folder

_BARE = ("/_versions/", "/_transactions/")
"""A branch to which nothing was written has files in these folders alone, so no other branch reads any of it."""
SETTLE_SECONDS = 1.0
"""How long it must stay as it is: an engine that makes or deletes a branch is at this point for milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains(ABC):
    """What is left of one branch in one dataset."""

    branch: str
    table_key: str
    """Or the folder of an internal dataset."""

    @property
    @abstractmethod
    def changed_at(self) -> float:
        """When its maker last worked on it, in seconds since the epoch. Pure."""

    @property
    def is_of_row_expiry(self) -> bool:
        """Whether only a run of this tool makes a branch of that name, with the lease. Pure."""
        return self.branch.startswith(EXPIRY_BRANCH_PREFIX)

    def is_left(self, changed_at: float, latest: float) -> bool:
        """Whether what changed then is of no writer that is at work, which may have written after `latest`. Pure."""
        return self.is_of_row_expiry or changed_at <= latest


_AnyRemains = TypeVar("_AnyRemains", bound=Remains)


def left_behind(
    graph: Graph, remains: Sequence[_AnyRemains], latest: float, grace: float
) -> tuple[list[_AnyRemains], list[tuple[_AnyRemains, str]]]:
    """Those that no writer at work has, and the others, each with the clock that may hide its age, if any. Reads.

    Args:
        latest: in seconds since the epoch; what changed later may be of an engine that is at work. What is of row
            expiry does not wait: a run that is at work has the lease.
        grace: how long before now that is.
    """
    left = [one for one in remains if one.is_left(one.changed_at, latest)]
    ours = [one for one in left if one.is_of_row_expiry]
    # Without a grace period no age is told.
    problem = clock_problem(graph.storage) if left != ours and grace > 0 else None
    ready = left if problem is None else ours
    return ready, [(one, problem or "" if one in left else "") for one in remains if one not in ready]


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMade(Remains):
    """What is left of a branch that was made or deleted by half."""

    folder: str
    files: tuple[Stored, ...]
    """In the folder; of a reference without any, the reference itself."""
    has_reference: bool
    """Whether it is listed; else it is files that nothing refers to."""
    is_read: bool = False
    """Whether it is the commit graph, without a reference, of a branch that the engine works on with."""
    is_written: bool = False
    """Whether somebody wrote to it."""

    @property
    def changed_at(self) -> float:
        """When its versions were written, in seconds since the epoch: a retry adds a transaction. Pure."""
        versions = [file for file in self.files if "/_versions/" in file.path]
        return max(file.modified_at for file in versions or self.files)


def half_made(graph: Graph) -> tuple[HalfMade, ...]:
    """Branches that were made or deleted by half, the written ones too. Reads: a listing for each dataset of 0.7.2."""
    if not _has_commit_graph(graph) or sidecar_names(graph.storage):
        return ()  # one that a sidecar names was written to
    datasets = [(MANIFEST_DIR, MANIFEST_DIR), (COMMITS_DIR, COMMITS_DIR)]
    datasets += [(entry.table_key, entry.path) for entry in graph.state().entries]
    loose = in_parallel(lambda at: _without_reference(graph, *at), datasets, workers=graph.settings.concurrency)
    return (*_of_commit_graphs(graph), *(half for found in loose for half in found))


def _unsettled(graph: Graph) -> list[HalfMade]:
    return [half for half in half_made(graph) if not half.is_written]


def remains_advice(remains: Sequence[HalfMade]) -> Iterator[str]:
    """What to do about files of branches that were deleted by half after somebody wrote to them. Pure."""
    for branch in sorted({half.branch for half in remains if half.is_read}):
        yield (
            f"branch {branch!r} goes on with the history of an earlier branch of that name that was deleted by half: a "
            "merge of it may bring back deleted rows; export its rows with omnigraph if they are wanted, then delete it"
        )
    gone = [half for half in remains if not half.is_read]
    for branch in sorted({half.branch for half in gone}):
        where = ", ".join(sorted(half.table_key for half in gone if half.branch == branch))
        yield (
            f"branch {branch!r} was deleted by half after it was written to, and has files left in {where}: the engine "
            "makes no branch of that name, or writes nothing to it, until `omnigraph-ops orphans` has removed them; "
            "where the engine can still export it and its rows are wanted, merge it before that"
        )


def deletion_advice(graph: Graph) -> Iterator[str]:
    """What nobody may do with a branch of the graph. Reads."""
    for branch in filter(is_below_main, sorted(graph.stored_branches(MANIFEST_DIR))):
        yield (
            f"do not delete branch {branch!r} with omnigraph or Lance: they take `main` in its name for the graph "
            f"itself, and delete all of {MANIFEST_DIR}; leave the branch, and take a backup"
        )


def _has_commit_graph(graph: Graph) -> bool:
    return COMMITS_DIR in graph.format.lineage_datasets and bool(graph.storage.list(f"{COMMITS_DIR}/_versions"))


def _of_commit_graphs(graph: Graph) -> Iterator[HalfMade]:
    """Branches that the commit graph does not have, and to which nothing was published, or does not list. Reads."""
    known, refs = graph.stored_branches(COMMITS_DIR), graph.lance_branches()
    for ref in refs:
        if ref.name in known or is_schema_apply_lock(ref.name):
            continue
        # With its files in the commit graph the engine reads and deletes a branch by them.
        versions = stored_versions(graph.storage, chain_folder(COMMITS_DIR, ref.name))
        if versions and not _is_of_earlier(graph, ref, min(versions)):
            yield from _unlisted(graph, ref.name, min(versions), is_written=False)
            continue
        # Those of `a/b` are below those of `a`.
        is_above = any(other.name.startswith(f"{ref.name}/") for other in refs)
        chain = chain_folder(MANIFEST_DIR, ref.name)
        is_written = not stored_versions(graph.storage, chain) <= {ref.parent_version}
        files = _files(graph, chain) or _stored(graph, branch_reference(MANIFEST_DIR, ref.name))
        if files and not is_above and not is_written:
            yield HalfMade(branch=ref.name, table_key=MANIFEST_DIR, folder=chain, files=files, has_reference=True)
        elif versions:
            yield from _unlisted(graph, ref.name, min(versions), is_written=True)


def _is_of_earlier(graph: Graph, ref: BranchRef, first: int) -> bool:
    """Whether the files in the commit graph are of a branch that had the name before, deleted by half. Reads.

    With its history a merge may bring back rows that were deleted, or keep those that the branch deletes. The engine
    makes a branch in the graph manifest first.

    Args:
        first: the first version in the commit graph.
    """
    made = committed_at_us(graph.storage, chain_folder(MANIFEST_DIR, ref.name), ref.parent_version)
    in_commits = committed_at_us(graph.storage, chain_folder(COMMITS_DIR, ref.name), first)
    return made is not None and (in_commits is None or in_commits < made)


def _unlisted(graph: Graph, branch: str, first: int, *, is_written: bool) -> Iterator[HalfMade]:
    """That the files of a branch in the commit graph lack their reference, since the first version was made. Reads."""
    chain, files = chain_folder(COMMITS_DIR, branch), _stored(graph, version_path(COMMITS_DIR, first, branch))
    if files:
        half = HalfMade(branch=branch, table_key=COMMITS_DIR, folder=chain, files=files, has_reference=False)
        yield replace(half, is_read=True, is_written=is_written)


def _stored(graph: Graph, path: str) -> tuple[Stored, ...]:
    return tuple(file for file in look_again(graph.storage, [path]) if isinstance(file, Stored))


def _without_reference(graph: Graph, table_key: str, path: str) -> list[HalfMade]:
    """Files of branches of a dataset that has no such branch and no graph branch publishes. Reads."""
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
        is_written = any(f.is_special or not any(part in f.path for part in _BARE) for f in files)
        if files and not _is_published(graph, path, name):
            half = HalfMade(branch=name, table_key=table_key, folder=folder, files=files, has_reference=False)
            found.append(replace(half, is_written=is_written))
    return found


def _is_published(graph: Graph, path: str, name: str) -> bool:
    """Whether a graph branch publishes a table from that Lance branch, or may. Reads: the engine needs only files."""
    if path in {MANIFEST_DIR, COMMITS_DIR}:
        return False
    try:
        states = [graph.state(branch) for branch in (None, *graph.branches())]
    except OpsError:
        return True
    # Those of `a/b` are below those of `a`.
    return any(f"{entry.branch or ''}/".startswith(f"{name}/") for state in states for entry in state.at(path))


def _files(graph: Graph, folder: str) -> tuple[Stored, ...]:
    return tuple(file for file in below_folder(graph.storage, folder) if not file.is_folder)


def commit_graph_findings(graph: Graph, halves: Sequence[HalfMade]) -> tuple[BranchFinding, ...]:
    """Branches that were made or deleted by half, and others whose commit graph cannot be read. Reads.

    Args:
        halves: those that nobody wrote to.
    """
    if not _has_commit_graph(graph):
        return ()
    found = [unreadable(half.branch, half.table_key, recoverable=True) for half in halves]
    half_listed = {half.branch for half in halves if half.has_reference}
    for branch in sorted(set(graph.branches()) - half_listed):
        try:
            graph.open_at(COMMITS_DIR, branch=branch)
        except LanceFailure:
            if branch in graph.branches():  # else it was deleted meanwhile
                found.append(unreadable(branch, COMMITS_DIR))
    return tuple(found)


def settle_half_made(graph: Graph, grace: float) -> Iterator[RecoveryOutcome]:
    """Delete what is left of branches that were made or deleted by half. Destroys files that nothing refers to.

    Where such a branch is read, the reference to its commit graph is written.

    Args:
        grace: in seconds; what was made later may be of an engine that is at work.
    """
    latest = time.time() - grace
    ready, waiting = left_behind(graph, _unsettled(graph), latest, grace)
    if ready:
        with committer_turn(graph, "recover half-made branches", wait_seconds=0) as keeper:
            refuse_frozen(graph)
            graph.run.pause(SETTLE_SECONDS)
            yield from _settle(graph, [half for half in _unsettled(graph) if half in ready], latest, keeper)
            # The files in the commit graph of a branch that went are without a reference now, too.
            gone = {half.branch for half in ready if half.has_reference}
            again = (half for half in _unsettled(graph) if half.branch in gone)
            rest = [half for half in again if half.is_left(half.changed_at, latest)]
            yield from _settle(graph, rest, latest, keeper)
    for half, problem in waiting:
        yield _outcome(half, "deferred", f"{problem}; {_SET_CLOCK}" if problem else _YOUNG)


def remove_half_made_of(graph: Graph, branch: str) -> None:
    """Delete what is there by half of a branch of row expiry, whose process is gone. Destroys these files."""
    for _ in _settle(graph, [half for half in _unsettled(graph) if half.branch == branch], latest=0.0):
        continue  # what stays `check` names


_SET_CLOCK = "an engine may be at work on it; deferred; set the clock that is wrong, then run again"
_YOUNG = "it was made within the grace period, and an engine may be at work on it; deferred"


def _settle(
    graph: Graph, halves: Iterable[HalfMade], latest: float, keeper: LeaseKeeper | None = None
) -> Iterator[RecoveryOutcome]:
    """Delete exactly what was judged, but for what somebody wrote since; refer to what is read. Destroys."""
    for half in halves:
        if keeper is not None:
            keeper.assert_held()
        action, what = "rolled_back", "it was in the graph manifest alone; it is deleted"
        try:
            if half.is_read:
                _refer(graph, half)
                action, what = "rolled_forward", "its commit graph had no reference; it is written"
            elif half.has_reference and is_below_main(half.branch):
                graph.storage.delete(branch_reference(half.table_key, half.branch))
                _remove(graph, replace(half, files=_files(graph, half.folder)), latest)
            elif half.has_reference:
                graph.lance.delete_branch(graph.manifest(), half.branch)
            else:
                what = f"it had files in {half.table_key} without a reference; it is deleted"
                _remove(graph, half, latest)
        except StorageError as error:
            yield _outcome(half, "deferred", f"{error}; it stays, and the next run tries again")
        else:
            yield _outcome(half, action, what)


def _refer(graph: Graph, half: HalfMade) -> None:
    """Write the reference of a branch as Lance does, with the parent that it has in the graph manifest. Writes."""
    (first,) = half.files
    made = next((ref for ref in graph.lance_branches() if ref.name == half.branch), None)
    listed = {ref.name: ref.identifier for ref in graph.lance.branches(graph.open_at(COMMITS_DIR))}
    if made is None or made.parent_branch not in {None, *listed}:
        raise StorageError(f"the branch is gone, or the one that it was made of lacks its reference in {COMMITS_DIR}")
    version = any_version_of(first.path.rpartition("/")[2])
    assert version is not None, "it was found by its version"
    parent = listed[made.parent_branch] if made.parent_branch is not None else ()
    reference = branch_contents(
        parent_branch=made.parent_branch,
        identifier=(*parent, (version, uuid.uuid4().hex)),
        created_at=first.modified_at,
        manifest_size=first.size,
    )
    # Whoever was faster has written one.
    graph.storage.create(branch_reference(COMMITS_DIR, half.branch), reference)


def _remove(graph: Graph, half: HalfMade, latest: float) -> None:
    if _files(graph, half.folder) != half.files:
        raise StorageError(f"{half.folder} changed while it was looked at")
    paths = [file.path for file in half.files if half.is_left(file.modified_at, latest)]
    for fault in remove_files(graph.storage, paths)[:1]:
        raise StorageError(f"cannot remove {fault.path}: {fault.reason}")
    for folder in (*(f"{half.folder}{part.rstrip('/')}" for part in _BARE), half.folder):
        remove_folder(graph.storage, folder)


def _outcome(half: HalfMade, action: str, what: str) -> RecoveryOutcome:
    detail = f"branch {half.branch!r} was made or deleted by half: {what}"
    return RecoveryOutcome(action=action, detail=detail)

"""What no open of the engine heals, and most of it no recovery of ours. Reads, but for `drop_half_made`.

Tables of named branches, branches of row expiry, and tables that only the schema or only the graph manifest has.

Branches that a killed engine 0.7.2 made or deleted by half, and commit graphs of branches that cannot be read. That
engine makes a branch in the graph manifest first and in the commit graph then, and Lance makes its files first and the
reference to them then. Killed between the former two, it leaves a branch that is listed and can be neither exported nor
written nor deleted. Killed between the latter two, or between the same steps of a delete, it leaves files without a
reference: no branch of that name can be made again. Where it is the schema-apply lock, no schema is applied. Where it
is one of a table, that table cannot be written on the graph branch of that name. What is deleted here was never written
to: nobody was told that it was made, or somebody was at work to delete it. What was written to is left to `orphans`,
which knows whether others read it. Engine 0.9.0 settles all of this by itself.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from omnigraph_ops.coordination.environment import clock_problem
from omnigraph_ops.coordination.freezes import refuse_frozen
from omnigraph_ops.coordination.lease import LeaseKeeper, committer_turn, working_holder
from omnigraph_ops.coordination.state import EXPIRE_ROWS_LEASE_PATH
from omnigraph_ops.errors import InvalidInput, OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import (
    COMMITS_DIR,
    EXPIRY_BRANCH_PREFIX,
    MANIFEST_DIR,
    RECOVERIES_DIR,
    branch_reference,
    chain_folder,
    is_schema_apply_lock,
)
from omnigraph_ops.graph.references import lost_reference
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import DatasetMissing, LanceFailure, lance_errors
from omnigraph_ops.models.health import BranchFinding, RecoveryOutcome
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.storage.inventory import Stored, below_folder, folders_in, look_again, remove_files, remove_folder


def branch_findings(graph: Graph, *, covered: Collection[tuple[str | None, str]]) -> tuple[BranchFinding, ...]:
    """Tables of named branches whose published version is gone, or that are ahead of it. Reads.

    Costs one listing for each chain of a dataset that a branch publishes otherwise than main does.

    Args:
        covered: branches and tables that a sidecar explains.

    Raises:
        InvalidInput: a branch cannot be looked at for the name of the graph's folder.
    """
    on_main = {entry.path: entry.version for entry in graph.state().entries if entry.branch is None}

    @cache
    def stored(path: str, chain: str | None) -> frozenset[int]:
        return stored_versions(graph.storage, chain_folder(path, chain))

    def one(branch: str) -> list[BranchFinding]:
        try:
            entries = graph.state(branch).entries
        except OpsError as error:
            if "?" in graph.uri:  # it is this tool that finds no branch there: the engine of stamp 3 does
                raise InvalidInput(str(error)) from error
            # Deleted meanwhile, or nobody can read it.
            return [_unreadable(branch, MANIFEST_DIR)] if branch in graph.branches() else []
        return [
            finding
            for entry in entries
            if entry.branch is not None or on_main.get(entry.path) != entry.version
            if (finding := _finding(branch, entry, stored(entry.path, entry.branch))) is not None
            if finding.lance_head_version is None or (branch, entry.table_key) not in covered
        ]

    names = [name for name in graph.branches() if not name.startswith(EXPIRY_BRANCH_PREFIX)]
    found = in_parallel(one, names, workers=graph.settings.concurrency)
    return tuple(finding for findings in found for finding in findings)


def _unreadable(branch: str, table_key: str, *, recoverable: bool = False) -> BranchFinding:
    """That a dataset cannot be read on a branch. Pure."""
    return BranchFinding(
        branch=branch, table_key=table_key, manifest_version=0, lance_head_version=None, recoverable=recoverable
    )


def _finding(branch: str, entry: TableEntry, stored: frozenset[int]) -> BranchFinding | None:
    """What is wrong with one table of a branch, by the versions of its chain that are there. Pure."""
    is_gone = entry.version not in stored
    # A chain that the branch only reads goes on without it.
    if not is_gone and (entry.branch != branch or max(stored) == entry.version):
        return None
    return BranchFinding(
        branch=branch,
        table_key=entry.table_key,
        manifest_version=entry.version,
        lance_head_version=None if is_gone else max(stored),
    )


def branch_advice(findings: Sequence[BranchFinding]) -> Iterator[str]:
    """What to do about each branch. Pure."""
    for branch in sorted({f.branch for f in findings}):
        left = [f for f in findings if f.branch == branch and not f.recoverable]
        gone = sorted(f.table_key for f in left if f.lance_head_version is None)
        ahead = sorted(f.table_key for f in left if f.lance_head_version is not None)
        if gone:
            yield (
                f"branch {branch!r} publishes versions that are gone, of {', '.join(gone)}: nobody can read them; main "
                "is not affected; delete the branch with omnigraph when nobody needs its other tables"
            )
        if ahead:
            yield (
                f"branch {branch!r} has writes that were never published, of {', '.join(ahead)}: the engine refuses to "
                "write these tables there, and neither it nor `recover` settles that; main is not affected; merge the "
                "branch or delete it with omnigraph"
            )


def internal_damage(graph: Graph, *, audited: bool) -> tuple[str, ...]:
    """Why internal datasets beside the graph manifest cannot be read, a sentence each. Reads.

    Args:
        audited: whether something is about to be written into the recovery audit.
    """
    found = []
    for path in (*graph.format.lineage_datasets, *([RECOVERIES_DIR] if audited else [])):
        try:
            dataset = graph.open_at(path)
            with lance_errors(f"read {dataset.uri}"):
                dataset.to_table(columns=dataset.schema.names[:1])
        except DatasetMissing:
            continue
        except LanceFailure as error:
            found.append(str(error))
    return tuple(found)


def expiry_advice(graph: Graph) -> Iterator[str]:
    """What to do about branches of row expiry that no run works on: to the engine they are the graph's. Reads."""
    left = _expiry_branches(graph)
    if not left or working_holder(graph.storage, EXPIRE_ROWS_LEASE_PATH) is not None:
        return
    # A run that has just ended dropped its branch before it released the lease.
    if left := left & _expiry_branches(graph):
        yield (
            f"an `expire-rows` that did not end left branch {', '.join(map(repr, sorted(left)))}: beside it the engine "
            "refuses schema applies; run `omnigraph-ops expire-rows` with --confirm, or delete it with omnigraph"
        )


def _expiry_branches(graph: Graph) -> frozenset[str]:
    return frozenset(n for n in graph.stored_branches(MANIFEST_DIR) if n.startswith(EXPIRY_BRANCH_PREFIX))


def schema_mismatch(graph: Graph) -> tuple[str, ...]:
    """Tables that are either in the accepted schema or in the graph manifest, but not in both. Reads both anew."""
    if not graph.format.publishes:
        return ()
    try:
        declared = graph.format.read_catalog(graph.storage).identities
    except OpsError:
        return ()  # a schema apply is replacing it; whoever opens the graph is told why it cannot be read
    return tuple(sorted({key for key, _ in declared ^ graph.state().identities}))


def mismatch_advice(tables: Sequence[str]) -> Iterator[str]:
    """What to do about tables that only one side knows. Pure."""
    if tables:
        yield (
            f"the accepted schema and __manifest disagree about {', '.join(tables)}: the engine cannot use them, nor "
            "other tables perhaps; a schema apply ended half way; restore the graph from a backup"
        )


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
    return (*_without_commits(graph), *(half for found in loose for half in found))


def _droppable(graph: Graph) -> list[HalfMade]:
    return [half for half in half_made(graph) if not half.is_written]


def remains_advice(remains: Sequence[HalfMade]) -> Iterator[str]:
    """What to do about files of branches that were deleted by half after somebody wrote to them. Pure."""
    for branch in sorted({half.branch for half in remains}):
        where = ", ".join(sorted(half.table_key for half in remains if half.branch == branch))
        yield (
            f"branch {branch!r} was deleted by half after it was written to, and has files left in {where}: the engine "
            "makes no branch of that name, or writes nothing to it, until `omnigraph-ops orphans` has removed them; "
            "where the engine can still export it and its rows are wanted, merge it before that"
        )


def reference_advice(graph: Graph) -> Iterator[str]:
    """What to do about a branch whose commit graph was made but for its reference: the engine works on with it. Reads.

    Costs one listing; for each branch without a reference two more, and a read of what it publishes.
    """
    if not _has_commit_graph(graph):
        return
    listed = graph.stored_branches(COMMITS_DIR)
    for branch in (name for name in graph.branches() if name not in listed):
        with suppress(OpsError):  # deleted meanwhile, or one that nobody can read
            if why := lost_reference(graph, [graph.state(branch)], COMMITS_DIR):
                yield f"{why}; until then `orphans` and `cleanup` leave that dataset as it is, and nothing is frozen"


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
    found = [_unreadable(half.branch, half.table_key, recoverable=True) for half in halves]
    half_listed = {half.branch for half in halves if half.has_reference}
    for branch in sorted(set(graph.branches()) - half_listed):
        try:
            graph.open_at(COMMITS_DIR, branch=branch)
        except LanceFailure:
            if branch in graph.branches():  # else it was deleted meanwhile
                found.append(_unreadable(branch, COMMITS_DIR))
    return tuple(found)


def drop_half_made(graph: Graph, grace: float) -> Iterator[RecoveryOutcome]:
    """Delete what is left of branches that were made or deleted by half. Destroys files that nothing refers to.

    Args:
        grace: in seconds; what was made later may be of an engine that is at work.
    """
    latest = time.time() - grace
    halves = _droppable(graph)
    old = [half for half in halves if half.changed_at <= latest]
    # Without a grace period no age is told.
    problem = clock_problem(graph.storage) if old and grace > 0 else None
    if problem is not None:
        why = f"{problem}; an engine may be at work on it; deferred; set the clock that is wrong, then run again"
        yield from (_outcome(half, "deferred", why) for half in old)
    elif old:
        with committer_turn(graph, "recover half-made branches", wait_seconds=0) as keeper:
            refuse_frozen(graph)
            graph.run.pause(_SETTLE_SECONDS)
            yield from _drop(graph, keeper, [half for half in _droppable(graph) if half in old], latest)
            # The files in the commit graph of a branch that went are without a reference now, too.
            gone = {half.branch for half in old if half.has_reference}
            rest = [half for half in _droppable(graph) if half.branch in gone and half.changed_at <= latest]
            yield from _drop(graph, keeper, rest, latest)
    yield from (_outcome(half, "deferred", _YOUNG) for half in halves if half.changed_at > latest)


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

"""What is referenced: every file that any version of any chain of a live dataset needs, and what merges start from.

A dataset whose references cannot all be read is skipped with the reason. Lance's own list has three
gaps that are closed here: blob side files follow their data file, index files that a branch inherits
are found by their uuid in the branch's manifests, and detached versions make the dataset unreadable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from operator import is_

from omnigraph_ops.errors import CorruptGraph, OpsError, StorageError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import index_uuids, stored_versions
from omnigraph_ops.graph.layout import (
    COMMITS_DIR,
    INTERNAL_DATASETS,
    MANIFEST_DIR,
    LanceFile,
    Part,
    any_version_of,
    chain_folder,
    data_file_of_blob,
    index_id,
    is_temporary,
)
from omnigraph_ops.graph.state import BranchState, GraphCommit, merge_bases
from omnigraph_ops.lance.fragment_rows import FragmentRows
from omnigraph_ops.lance.gateway import BranchRef, DatasetMissing, lance_errors
from omnigraph_ops.lance.versions import tracked_files
from omnigraph_ops.models.orphans import SkippedDataset
from omnigraph_ops.storage.inventory import TABLE_FOLDERS, folders_in


@dataclass(frozen=True, kw_only=True)
class References:
    """What one or all live datasets of a graph need, with all their branches."""

    branches: dict[str, tuple[BranchRef, ...]]
    """Of the datasets whose references could all be read, by path."""
    skipped: tuple[SkippedDataset, ...] = ()
    exact: frozenset[str] = frozenset()
    """Graph-relative paths."""
    loose: frozenset[str] = frozenset()
    """Paths below a root that is spelled differently: protected below every root."""
    indexes: frozenset[str] = frozenset()
    """Index uuids that any version of any chain refers to."""

    def branch_names(self, dataset: str | None) -> frozenset[str] | None:
        """The names of the branches of a dataset; None where its references are not known. Pure."""
        return self._names.get(dataset or "")

    def is_forked_from(self, dataset: str, branch: str | None) -> bool:
        """Whether a branch of a dataset whose references are known forks from that one. Pure."""
        return branch in self._parents[dataset]

    def needs(self, file: LanceFile) -> bool:
        """Whether any version of any dataset refers to this file. Pure."""
        if file.part is Part.INDEX and index_id(file.tail) in self.indexes:
            return True
        if file.part is Part.BLOB:
            data = data_file_of_blob(file.tail)
            return f"{file.chain}/{data}" in self.exact or data in self.loose
        return f"{file.chain}/{file.tail}" in self.exact or file.tail in self.loose

    def is_skipped(self, dataset: str) -> bool:
        """Whether what a dataset refers to could not all be read. Pure."""
        return dataset in self._skipped_paths

    # Every file that is stored is judged by these.
    @cached_property
    def _names(self) -> Mapping[str, frozenset[str]]:
        return {path: frozenset(b.name for b in branches) for path, branches in self.branches.items()}

    @cached_property
    def _parents(self) -> Mapping[str, frozenset[str | None]]:
        return {path: frozenset(b.parent_branch for b in branches) for path, branches in self.branches.items()}

    @cached_property
    def _skipped_paths(self) -> frozenset[str]:
        return frozenset(s.path for s in self.skipped)


def read_references(graph: Graph, table_paths: Iterable[str]) -> References:
    """References of these tables and of every internal dataset; unreadable ones are skipped. Reads."""
    paths = datasets_to_read(graph, table_paths)
    with ThreadPoolExecutor(max_workers=graph.settings.concurrency) as pool:
        read = list(pool.map(lambda path: _isolated(graph, path), paths))
    return References(
        branches={path: branches for each in read for path, branches in each.branches.items()},
        skipped=tuple(skipped for each in read for skipped in each.skipped),
        exact=frozenset().union(*(each.exact for each in read)),
        loose=frozenset().union(*(each.loose for each in read)),
        indexes=frozenset().union(*(each.indexes for each in read)),
    )


def dropped_manifests(graph: Graph, live: Collection[str]) -> frozenset[str]:
    """The newest manifest of each dataset that no branch publishes, where its path follows from a name. Reads.

    Without it the engine begins to make a type of that name, and cannot finish: no table of the graph is usable then.
    """
    if not graph.format.paths_by_name:
        return frozenset()
    dropped = (p for folder in TABLE_FOLDERS for p in folders_in(graph.storage, folder) if p not in live)
    found = (_newest_manifest(graph, path) for path in dropped)
    return frozenset(path for path in found if path is not None)


def _newest_manifest(graph: Graph, path: str) -> str | None:
    """The path of the newest manifest of a main chain, None where there is none. Reads."""
    names = graph.storage.list(f"{path}/_versions")
    versions = {version: name for name in names if (version := any_version_of(name)) is not None}
    return f"{path}/_versions/{versions[max(versions)]}" if versions else None


def datasets_to_read(graph: Graph, table_paths: Iterable[str]) -> tuple[str, ...]:
    """These tables and every internal dataset that is there, by path. Reads."""
    internal = [p for p in INTERNAL_DATASETS if graph.storage.exists(p)]
    return tuple(sorted({*table_paths, *internal}))


def _isolated(graph: Graph, path: str) -> References:
    try:
        return read_dataset(graph, path)
    except OpsError as error:
        return References(branches={}, skipped=(SkippedDataset(path=path, reason=str(error)),))


class Reference(IntEnum):
    """In which way versions refer to files."""

    EXACT = 0
    LOOSE = 1
    INDEX = 2


def read_dataset(graph: Graph, path: str) -> References:
    """References of one dataset over all its branches. Reads.

    Raises:
        OpsError: some reference cannot be read, or Lance's list is not what is stored.
    """
    found: dict[Reference, set[str]] = {way: set() for way in Reference}
    branches = read_branches(graph, path)
    for way, names in stream_references(graph, path, branches):
        found[way] |= names
    return References(
        branches={path: branches},
        exact=frozenset(found[Reference.EXACT]),
        loose=frozenset(found[Reference.LOOSE]),
        indexes=frozenset(found[Reference.INDEX]),
    )


def read_branches(graph: Graph, path: str) -> tuple[BranchRef, ...]:
    """The branches of a dataset. Reads.

    Raises:
        OpsError: Lance lists others than are stored, or a dataset that is not searched reads files of this one.
    """
    outside = graph.read_from_outside(path)
    if outside is not None:
        raise OpsError(f"{outside}; run on the folder of both, where datasets are found by names that end in .lance")
    main = graph.open_at(path)
    branches = graph.lance.branches(main)
    _check_refs(graph, path, {b.name for b in branches})
    graph.lance.tags(main)
    return branches


def stream_references(graph: Graph, path: str, branches: tuple[BranchRef, ...]) -> Iterator[tuple[Reference, set[str]]]:
    """What any version of any chain of a dataset refers to, piece by piece; some of it more than once. Reads.

    None of it counts unless all of it was read.

    Raises:
        OpsError: some reference cannot be read, or Lance's list is not what is stored.
    """
    tracked: set[str] = set()
    for name in (None, *(b.name for b in branches if not b.is_bare)):
        for way, paths in _chain(graph, path, name):
            tracked |= {index_id(p[p.index("_indices/") :]) for p in paths if "_indices/" in p}
            yield way, paths
    yield Reference.INDEX, tracked
    yield Reference.INDEX, _inherited_indexes(graph, path, branches, tracked)


def _check_refs(graph: Graph, path: str, listed: set[str]) -> None:
    """Refuse a dataset whose stored branch references are not those that Lance lists. Reads."""
    stored = graph.stored_branches(path)
    if stored != listed:
        name = min(stored ^ listed)
        raise CorruptGraph(f"the branch reference {name!r} of {path} is not what Lance lists")


def _chain(graph: Graph, path: str, branch: str | None) -> Iterator[tuple[Reference, set[str]]]:
    """Files that one chain refers to: below this graph's root, and below roots spelled otherwise. Reads."""
    folder = chain_folder(path, branch)
    # Before the references: a version that is committed in between is then known to them.
    stored = _manifest_names(graph, folder)
    dataset = graph.open_at(path, branch=branch)
    known, own = set[str](), f"{folder}/_versions/"
    for base, paths in tracked_files(dataset):
        below = f"{base.rstrip('/')}/"
        if not below.startswith(f"{graph.uri}/"):
            yield Reference.LOOSE, paths
            continue
        exact = {below[len(graph.uri) + 1 :] + p for p in paths}
        known |= {p[len(own) :] for p in exact if p.startswith(own)} & stored
        yield Reference.EXACT, exact
    if not known or known != stored:
        strange = min(stored - known, default="no manifest")
        raise CorruptGraph(f"{folder}/_versions has {strange}, which Lance does not list as a version")


def _manifest_names(graph: Graph, folder: str) -> set[str]:
    names = graph.storage.list(f"{folder}/_versions")
    return {n for n in names if ".manifest" in n and not is_temporary(n)}


def _inherited_indexes(graph: Graph, path: str, branches: tuple[BranchRef, ...], tracked: set[str]) -> set[str]:
    """Index uuids that a branch's manifests name, if any is stored in the dataset that nobody tracks. Reads.

    Lance lists the index files below the branch's own root only, but a branch reads those of its parent.
    """
    if not branches:
        return set()
    chains = [path, *(chain_folder(path, b.name) for b in branches), *_tree_folders(graph, path)]
    stored = {f.rpartition("/")[2] for chain in chains for f in folders_in(graph.storage, f"{chain}/_indices")}
    found: set[str] = set()
    for ref in branches if stored - tracked else ():
        folder = f"{chain_folder(path, ref.name)}/_versions"
        for name in _manifest_names(graph, chain_folder(path, ref.name)):
            found |= index_uuids(graph.storage.read(f"{folder}/{name}"), f"{folder}/{name}")
    return found


def _tree_folders(graph: Graph, path: str) -> list[str]:
    """Folders below `tree/` at any depth above a chain's own: branches that Lance may have forgotten. Reads."""
    pending, found = [f"{path}/tree"], []
    while pending:
        for folder in folders_in(graph.storage, pending.pop()):
            if not folder.rpartition("/")[2].startswith("_") and folder.rpartition("/")[2] != "data":
                found.append(folder)
                pending.append(folder)
    return found


def lost_reference(graph: Graph, states: Iterable[BranchState], path: str) -> str | None:
    """Which branch reads a Lance branch of a dataset that has no reference, as a sentence; None: there is none. Reads.

    An engine opens a Lance branch by its files. Lance does not know it then, so it takes what it shares for unneeded.
    Engine 0.7 leaves a branch of its commit graph so when it is killed while it makes one, and works on with it.

    Args:
        states: of main and of the branches.
    """
    remedy = "merge the branch if its rows are wanted, then delete it, with omnigraph"
    if path == COMMITS_DIR:
        remedy = "`omnigraph-ops recover` writes it, or `check` says why not"
    reads = [(s.branch, {s.branch} if path == COMMITS_DIR else {e.branch for e in s.at(path)}) for s in states]
    if not any(name for _, names in reads for name in names):
        return None
    listed = graph.stored_branches(path)
    for branch, names in reads:
        for name in sorted(n for n in names if n is not None and n not in listed):
            is_there = stored_versions(graph.storage, chain_folder(path, name))
            if is_there and (branch is None or branch in graph.branches()):
                return (
                    f"branch {branch or 'main'!r} reads the Lance branch {name!r} of {path}, which has no reference; "
                    f"{remedy}"
                )
    return None


def base_states(graph: Graph, states: Sequence[BranchState]) -> tuple[BranchState, ...]:
    """What the commits published that merges start from, but for what these branches publish now. Reads.

    Of merges between any two of them, and with a branch that is made of one: those start from the commit that is its
    head now, which a reader opens at an older version once the graph manifest was compacted. A commit whose version or
    branch is gone is left out: no merge can read it any more.

    Args:
        states: of main and of the branches.

    Raises:
        CorruptGraph, StorageError: one is there and cannot be read, so what it pins is unknown.
    """
    if not graph.format.publishes:
        return ()
    # Whoever works on one table after the other asks for each of them, and a lineage may be long.
    for known, bases in tuple(graph.context.bases):
        if len(known) == len(states) and all(map(is_, known, states)):
            return bases
    bases = tuple(_read(graph, states))
    graph.context.bases[:] = [(tuple(states), bases)]
    return bases


def _read(graph: Graph, states: Sequence[BranchState]) -> Iterator[BranchState]:
    lineages = [graph.format.commits(graph.context, state.branch) for state in states]
    heads = {lineage[-1] for lineage in lineages if lineage}
    found = {(c.branch or "", c.manifest_version): c for c in merge_bases(lineages) | heads}
    for state in states:
        found.pop((state.branch or "", state.manifest_version), None)
    read = (_state_at(graph, commit, alone=len(states) == 1) for _, commit in sorted(found.items()))
    yield from (state for state in read if state is not None)


def _state_at(graph: Graph, commit: GraphCommit, *, alone: bool) -> BranchState | None:
    branch = commit.branch
    try:
        manifest = graph.manifest(branch, commit.manifest_version)
        with lance_errors(f"read commit {commit.commit_id}"):
            # Not by `Graph.decode`, nor with its rows, which are kept of the newest state of each branch.
            rows = FragmentRows().of(manifest)
        return graph.format.decode(graph.context, rows, branch, commit.manifest_version)
    except DatasetMissing:
        return None
    except OpsError as error:
        # What the store fails to give now it may give to the next attempt.
        kind = StorageError if isinstance(error, StorageError) else CorruptGraph
        or_else = "" if alone else ", or delete the branches that share that commit"
        raise kind(
            f"version {commit.manifest_version} of the graph manifest of {branch or 'main'} cannot be read, and merges "
            f"start from its commit {commit.commit_id}, so what they need is unknown: {error}; nothing was changed; if "
            f"it stays so, restore {MANIFEST_DIR} as of that version from a backup{or_else}"
        ) from error

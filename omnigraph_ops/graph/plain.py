"""Plain Lance: a dataset, or a folder of them (a LanceDB database), behind the face of a graph.

Without a graph manifest a dataset's HEAD is what its readers see: a commit is the publish, nothing can drift,
and nothing is pending. Branches, tags and the auto-cleanup configuration belong to the owner of the dataset.
One dataset is its folder narrowed to it: `__maintenance/` lies beside it, so that a run on the dataset and a
run on the database know of each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import NotAGraph, StalePlan
from omnigraph_ops.graph.clones import reads_files_of
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import GRAPH_FOLDERS, MAINTENANCE_DIR, ROOT_FILES, any_version_of
from omnigraph_ops.graph.plain_format import PlainCatalog, PlainFormat, spec_of_schema, table_key_of
from omnigraph_ops.graph.run_context import RunContext
from omnigraph_ops.graph.stamp import GraphContext
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.errors import DatasetMissing, LanceFailure
from omnigraph_ops.lance.gateway import BranchRef, Dataset, LanceGateway
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.storage.inventory import Stored, below_folder, files_in, folders_in
from omnigraph_ops.storage.store import Storage

_SUFFIX = ".lance"
_NO_BUCKET = "s3:/"
"""What is left of `s3://bucket` without its last part."""


class PlainGateway(LanceGateway):
    """Leaves the configuration of datasets and the parameters of indexes alone: they are their owner's."""

    may_rebuild_indexes = False

    def strip_auto_cleanup(self, dataset: Dataset) -> bool:
        """Nothing; no version of a plain dataset is pinned from outside. Pure."""
        return False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlainGraph(Graph):
    """A folder of datasets, or one of them. Every state is a fresh look at their HEADs."""

    catalog: PlainCatalog
    only: str | None
    """The one dataset that was addressed, None for all of the folder."""

    @property
    def target(self) -> str:
        return self.uri if self.only is None else self.context.location.uri(self.only)

    def state(self, branch: str | None = None) -> BranchState:
        """Every dataset at its HEAD. Reads."""
        if branch is not None:
            raise NotAGraph(f"{self.uri} is plain Lance, it has no graph branch {branch!r}")
        found = in_parallel(self._entry, self._paths(), workers=self.settings.concurrency)
        return _state(*(e for e in found if e is not None))

    def state_of(self, table_key: str) -> BranchState:
        """One dataset at its HEAD; the others are opened only when there is no such one. Reads."""
        path = next((p for p in self._paths() if table_key_of(p) == table_key), None)
        entry = None if path is None else self._entry(path)
        return self.state() if entry is None else _state(entry)

    def published(self, table_key: str) -> TableEntry | None:
        """One dataset at its HEAD, None when it is not there. Reads."""
        return self.state_of(table_key).get(table_key)

    def manifest(self, branch: str | None = None) -> Dataset:
        raise NotAGraph(
            f"{self.uri} is plain Lance: without a graph manifest there is nothing to fence, unlock or publish; "
            "nothing was written"
        )

    def lance_branches(self) -> tuple[BranchRef, ...]:
        """None: the branches of the datasets are not branches of a graph. Pure."""
        return ()

    def open_head(self, entry: TableEntry) -> Dataset:
        """The dataset at the HEAD that the entry saw; later commits are for a later look. Reads."""
        try:
            return self.open_pinned(entry)
        except DatasetMissing:
            newer = self.lance.open(self.table_uri(entry)).version
            raise StalePlan(
                f"{entry.table_key} is at version {newer} and {entry.version} is gone; nothing was written; run again"
            ) from None

    def maintained(self, state: BranchState) -> tuple[TableEntry, ...]:
        return state.entries

    def published_at(self) -> float | None:
        """When the newest commit to any of the datasets was made. Reads."""
        folders = [f"{path}/_versions" for path in self._paths()]
        found = in_parallel(lambda f: files_in(self.storage, f), folders, workers=self.settings.concurrency)
        times = [f.modified_at for files in found for f in files if any_version_of(_name(f.path)) is not None]
        return max(times, default=None)

    def stored(self) -> Iterator[Stored]:
        return super().stored() if self.only is None else below_folder(self.storage, self.only)

    def cloned(self, table_path: str) -> str | None:
        """As far as neighbours in the folder go: clones elsewhere are not known to anybody. Reads."""
        uri = self.context.location.uri(table_path)
        others = [self.context.location.uri(p) for p in self._datasets() if p != table_path]
        found = in_parallel(
            lambda other: reads_files_of(self.lance, other, uri), others, workers=self.settings.concurrency
        )
        return next((reason for reason in found if reason is not None), None)

    def is_gone(self, table_path: str) -> bool:
        # A run on one dataset cannot tell about its neighbours, which it does not look at.
        return self.only is None and not is_dataset(self.storage, table_path)

    def _paths(self) -> tuple[str, ...]:
        return (self.only,) if self.only is not None else self._folders()

    def _folders(self) -> tuple[str, ...]:
        return tuple(p for p in folders_in(self.storage, "") if p.endswith(_SUFFIX))

    def _datasets(self) -> list[str]:
        """Every dataset of the folder, whichever was addressed. Reads."""
        return [p for p in self._folders() if is_dataset(self.storage, p)]

    def _entry(self, path: str) -> TableEntry | None:
        """The dataset there; None for a folder that holds none. Reads."""
        key = table_key_of(path)
        try:
            head = self.lance.open(self.context.location.uri(path))
        except LanceFailure:
            # Named nevertheless, so that every verb says for itself why it cannot be opened.
            versions = _versions(self.storage, path)
            if not versions:
                return None
            self.catalog.note(spec_of_schema(key, path, None))
            return _at(key, path, max(versions))
        self.catalog.note(spec_of_schema(key, path, head.schema))
        return _at(key, path, int(head.version))


def open_plain(context: GraphContext, settings: Settings) -> PlainGraph | None:
    """The dataset or the folder of datasets at a place without a graph manifest; None when it is neither. Reads.

    Raises:
        NotAGraph: it is a part of a graph or of a dataset, which may not be maintained on its own.
    """
    location, storage = context.location, context.storage
    if f"/{MAINTENANCE_DIR}/" in f"{location.root}/":
        raise NotAGraph(f"{location.root} is what this tool keeps for itself; give the graph or folder around it")
    if is_dataset(storage, ""):
        parent, _, name = location.root.rpartition("/")
        if parent == _NO_BUCKET:
            return None
        _refuse_parts(storage)
        around = storage.at(parent or "/")
        location, storage, only = replace(location, root=parent), around, name
    else:
        names = [p for p in folders_in(storage, "") if p.endswith(_SUFFIX)]
        if _graph_traces(storage) or not any(is_dataset(storage, p) for p in names):
            return None
        only = None
    lance = PlainGateway(context.lance.storage_options)
    plain = GraphContext(location=location, storage=storage, lance=lance, access=context.access)
    catalog, run_context = PlainCatalog.empty(), RunContext(settings=settings)
    return PlainGraph(context=plain, format=PlainFormat(catalog), catalog=catalog, run_context=run_context, only=only)


def is_dataset(storage: Storage, path: str) -> bool:
    """Whether a folder holds a version of a Lance dataset. Reads."""
    return bool(_versions(storage, path))


def _versions(storage: Storage, path: str) -> list[int]:
    names = storage.list(f"{path}/_versions" if path else "_versions")
    return [v for v in map(any_version_of, names) if v is not None]


def _refuse_parts(storage: Storage) -> None:
    """Refuse a dataset that something else builds on: maintaining it alone would break that. Reads."""
    root = storage.root
    whole, tree, _ = root.rpartition("/tree/")
    if tree and is_dataset(storage.at(whole), ""):
        raise NotAGraph(f"{root} is a branch of the dataset {whole}; give the dataset")
    real = root if root.startswith("s3:") else os.path.realpath(root)
    folders = {path.rpartition("/")[0] for path in (root, real)}
    for place in sorted(folders | {folder.rpartition("/")[0] for folder in folders}):
        if place not in {"", "s3:", _NO_BUCKET} and _graph_traces(storage.at(place)):
            raise NotAGraph(f"{root} is a part of the graph {place}; give the graph")


def _graph_traces(storage: Storage) -> list[str]:
    """Names directly below a root that only a graph has. Reads."""
    return sorted({*storage.list(""), *folders_in(storage, "")} & {*ROOT_FILES, *GRAPH_FOLDERS})


def _state(*entries: TableEntry) -> BranchState:
    ordered = tuple(sorted(entries, key=lambda e: e.table_key))
    return BranchState(branch=None, manifest_version=0, entries=ordered, head_commit_id=None)


def _at(key: str, path: str, version: int) -> TableEntry:
    return TableEntry(table_key=key, path=path, version=version, branch=None, row_count=None)


def _name(path: str) -> str:
    return path.rpartition("/")[2]

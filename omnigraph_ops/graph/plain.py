"""Plain Lance: a dataset, or a folder of them (a LanceDB database), behind the face of a graph.

Without a graph manifest a dataset's HEAD is what its readers see: a commit is the publish, nothing can drift,
and nothing is pending. Branches, tags and the auto-cleanup configuration belong to the owner of the dataset.
One dataset is its folder narrowed to it: `__maintenance/` lies beside it, so that a run on the dataset and a
run on the database know of each other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import InvalidInput, NotAGraph, StalePlan, StorageError
from omnigraph_ops.graph.graph import Graph, RunContext
from omnigraph_ops.graph.lance_manifest import stored_versions
from omnigraph_ops.graph.layout import GRAPH_FOLDERS, MAINTENANCE_DIR, ROOT_FILES, any_version_of
from omnigraph_ops.graph.schema import Catalog, Property, TableSpec
from omnigraph_ops.graph.stamp import GraphContext, StampFormat
from omnigraph_ops.graph.state import BranchState, TableEntry
from omnigraph_ops.lance.gateway import (
    BranchRef,
    Dataset,
    DatasetMissing,
    LanceFailure,
    LanceGateway,
    base_roots,
    is_blob,
)
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.storage.inventory import Levels, children, files_in, folders_in
from omnigraph_ops.storage.location import is_elsewhere, locate
from omnigraph_ops.storage.store import Storage

_Manifest = tuple[int, str]
"""A version, and the e-tag of its manifest; without one nothing proves that it is still the same."""


def _newest_manifest(storage: Storage, path: str) -> _Manifest | None:
    """That of a dataset, None for a folder that holds none. Reads: one listing, locally also the file's properties."""
    folder, tags = f"{path}/_versions", dict[str, str]()
    if storage.is_local:
        tags = dict.fromkeys(storage.list(folder), "")
    else:
        for page in storage.pages(folder, delimiter=True):
            tags |= {o["Key"].rpartition("/")[2]: o.get("ETag") or "" for o in page.get("Contents", ())}
    versions = {version: name for name in tags if (version := any_version_of(name)) is not None}
    if not versions:
        return None
    newest = max(versions)
    tag = tags[versions[newest]]
    if storage.is_local:
        with contextlib.suppress(FileNotFoundError, StorageError):
            tag = storage.stat(f"{folder}/{versions[newest]}").e_tag or ""
    return newest, tag


def _is_at(base: str, other: str) -> bool:
    """Whether a recorded root is the dataset or a folder of it, however it is spelled. Reads links."""
    try:
        place = locate(base)
    except InvalidInput:
        # Lance may resolve to this dataset what `locate` refuses to read in one way.
        return not is_elsewhere(base)
    root, whole = place.root, other
    if place.is_local and locate(other).is_local:
        root, whole = os.path.realpath(root), os.path.realpath(other)
    return f"{root}/".startswith(f"{whole}/")


PLAIN_STAMP = 0
"""In plans and reports: no generation of a graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCatalog(Catalog):
    """The datasets that were seen so far; there is no schema that would name them."""

    specs: dict[str, TableSpec]

    @classmethod
    def empty(cls) -> PlainCatalog:
        """Nothing seen yet. Pure."""
        return cls(tables=(), specs={})

    def note(self, spec: TableSpec) -> None:
        """Remember a dataset as it was just seen."""
        self.specs[spec.table_key] = spec

    def get(self, table_key: str) -> TableSpec | None:
        """The dataset of that key as it was last seen, None when it never was. Pure."""
        return self.specs.get(table_key)


class PlainFormat(StampFormat):
    """The stamp of what has no stamp."""

    stamp = PLAIN_STAMP
    publishes = False
    limits_text_search = True

    def __init__(self, catalog: PlainCatalog) -> None:
        self._catalog = catalog

    def read_catalog(self, storage: Storage) -> Catalog:
        return self._catalog


def table_key_of(path: str) -> str:
    """How a dataset is named on the command line and in reports, as in `table:items`. Pure."""
    return f"table:{path.removesuffix('.lance')}"


def spec_of_schema(table_key: str, path: str, schema: pa.Schema | None) -> TableSpec:
    """What maintenance needs to know of a dataset's columns; None for one that cannot be opened. Pure."""
    blobs = [field.name for field in schema or () if is_blob(field)]
    columns = tuple(Property(name=name, property_id="", scalar="Blob", is_list=False, is_enum=False) for name in blobs)
    return TableSpec(table_key=table_key, path=path, properties=columns, indexed=())


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
    bases_read: dict[tuple[str, _Manifest], tuple[str, ...]] = field(default_factory=dict)
    """Where else the datasets of the folder have files, as far as this was read, by their newest versions."""

    @property
    def target(self) -> str:
        return self.uri if self.only is None else self.storage.uri(self.only)

    @property
    def addressed(self) -> tuple[str, ...]:
        return () if self.only is None else (table_key_of(self.only),)

    def state(self, branch: str | None = None, version: int | None = None) -> BranchState:
        """Every dataset at its HEAD: they have neither branches nor versions in common. Reads."""
        if branch is not None or version is not None:
            asked = f"version {version}" if branch is None else f"branch {branch!r}"
            raise NotAGraph(f"{self.uri} is plain Lance, it has no graph {asked}")
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

    def manifest(self, branch: str | None = None, version: int | None = None) -> Dataset:
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
            newer = self.open_at(entry.path).version
            raise StalePlan(
                f"{entry.table_key} is at version {newer} and {entry.version} is gone; nothing was written; run again"
            ) from None

    def declared(self, state: BranchState) -> tuple[TableEntry, ...]:
        return state.entries

    def published_at(self) -> float | None:
        """When the newest commit to any of the datasets was made. Reads."""
        folders = [f"{path}/_versions" for path in self._paths()]
        found = in_parallel(lambda f: files_in(self.storage, f), folders, workers=self.settings.concurrency)
        stored = (f for files in found for f in files if any_version_of(f.path.rpartition("/")[2]) is not None)
        return max((f.modified_at for f in stored), default=None)

    def upper_levels(self) -> Levels:
        return super().upper_levels() if self.only is None else Levels(found=(), deeper=(self.only,))

    def clones(self, table_paths: Collection[str]) -> Mapping[str, str]:
        """As far as neighbours in the folder go: clones elsewhere are not known to anybody. Reads."""
        return self._read_by(table_paths, _folders_and_links(self.storage))

    def read_from_outside(self, table_path: str) -> str | None:
        """By a neighbour in the folder that was not addressed, or whose name does not end in `.lance`. Reads."""
        ours = frozenset(self._paths())
        others = [p for p in _folders_and_links(self.storage) if p not in ours]
        return self._read_by((table_path,), others).get(table_path)

    def _read_by(self, table_paths: Collection[str], folders: Iterable[str]) -> dict[str, str]:
        """Those of some datasets whose files a dataset in another of the folders reads, with who does. Reads."""
        found: dict[str, str] = {}
        for folder, bases in self._bases([f for f in folders if f != MAINTENANCE_DIR]).items():
            uri, others = self.storage.uri(folder), (path for path in table_paths if path != folder)
            if isinstance(bases, LanceFailure):
                reason = f"{uri} cannot be opened, so whether it is a shallow clone of this is unknown: {bases}"
                read = list(others)
            else:
                reason = f"{uri} reads files of it, as a shallow clone or through a registered base"
                read = [p for p in others if any(_is_at(base, self.storage.uri(p)) for base in bases)] if bases else []
            for path in read:
                found.setdefault(path, reason)
        return found

    def _bases(self, folders: Sequence[str]) -> dict[str, tuple[str, ...] | LanceFailure]:
        """Where else the dataset in each of the folders has files, or why that is unknown. Reads.

        Whoever works on one dataset after the other asks for each of them, so only what is new since is opened.
        """
        ask, workers = partial(_newest_manifest, self.storage), self.settings.concurrency
        # On a local disk a thread costs more than a listing.
        newest = map(ask, folders) if self.storage.is_local else in_parallel(ask, folders, workers=workers)
        there = {folder: found for folder, found in zip(folders, newest, strict=True) if found is not None}
        known = {f: self.bases_read[f, found] for f, found in there.items() if (f, found) in self.bases_read}
        new = [(f, found) for f, found in there.items() if f not in known]
        opened = in_parallel(self._open_bases, new, workers=workers)
        read = dict(zip((folder for folder, _ in new), opened, strict=True))
        return {folder: known[folder] if folder in known else read[folder] for folder in there}

    def _open_bases(self, listed: tuple[str, _Manifest]) -> tuple[str, ...] | LanceFailure:
        """Where else a dataset has files, remembered if it still is at the version that was listed. Reads."""
        folder, (version, tag) = listed
        try:
            opened = self.open_at(folder)
            bases = base_roots(opened)
        except LanceFailure as error:
            return error
        if tag and int(opened.version) == version:
            self.bases_read[listed] = bases
        return bases

    def is_gone(self, table_path: str) -> bool:
        # A run on one dataset cannot tell about its neighbours, which it does not look at.
        return self.only is None and not is_dataset(self.storage, table_path)

    def _paths(self) -> tuple[str, ...]:
        if self.only is not None:
            return (self.only,)
        return tuple(p for p in folders_in(self.storage, "") if p.endswith(_SUFFIX))

    def _entry(self, path: str) -> TableEntry | None:
        """The dataset there; None for a folder that holds none. Reads."""
        key = table_key_of(path)
        try:
            head = self.open_at(path)
        except LanceFailure:
            # Named nevertheless, so that every verb says for itself why it cannot be opened.
            versions = stored_versions(self.storage, path)
            if not versions:
                return None
            self.catalog.note(spec_of_schema(key, path, None))
            return _at(key, path, max(versions))
        self.catalog.note(spec_of_schema(key, path, head.schema))
        return _at(key, path, int(head.version))


def open_plain(context: GraphContext, settings: Settings) -> PlainGraph | None:
    """The dataset or the folder of datasets at a place without a graph manifest; None when it is neither. Reads.

    Raises:
        NotAGraph: it is a part of a graph or of a dataset, which may not be maintained on its own, or a link.
    """
    storage = context.storage
    only: str | None = None
    if f"/{MAINTENANCE_DIR}/" in f"{storage.root}/":
        raise NotAGraph(f"{storage.root} is what this tool keeps for itself; give the graph or folder around it")
    if is_dataset(storage, ""):
        parent, _, only = storage.root.rpartition("/")
        if parent == _NO_BUCKET:
            return None
        _refuse_parts(storage)
        storage, names = storage.at(parent or "/"), [only]
    else:
        names = [p for p in _folders_and_links(storage) if p.endswith(_SUFFIX)]
        if _graph_traces(storage) or not any(is_dataset(storage, p) for p in names):
            return None
    _refuse_links(storage, names, only)
    plain = GraphContext(storage=storage, lance=PlainGateway(context.lance.storage_options))
    catalog, run_context = PlainCatalog.empty(), RunContext(settings=settings)
    return PlainGraph(context=plain, format=PlainFormat(catalog), catalog=catalog, run_context=run_context, only=only)


def is_dataset(storage: Storage, path: str) -> bool:
    """Whether a folder holds a version of a Lance dataset. Reads."""
    return bool(stored_versions(storage, path))


def _refuse_links(storage: Storage, names: Iterable[str], only: str | None) -> None:
    """Refuse what a link would hide: the freezes, holds and clones beside a dataset, or a dataset itself. Reads."""
    for name in names if storage.is_local else ():
        place = storage.full(name)
        if not os.path.islink(place) or not is_dataset(storage, name):
            continue
        what = f"{place} is a link to the dataset {os.path.realpath(place)}"
        if only is not None:
            raise NotAGraph(f"{what}; nothing was written; give that one")
        raise NotAGraph(
            f"{what}, which a run on this folder would leave out, a backup too; nothing was written; put the dataset "
            "in the place of the link, or give each dataset by itself"
        )


def _folders_and_links(storage: Storage) -> tuple[str, ...]:
    """What may be a dataset directly in a folder, also where a link leads to it. Reads: one listing."""
    found, folders = children(storage, "")
    links = (file.path for file in found if file.is_special and os.path.isdir(storage.full(file.path)))
    return (*folders, *links)


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

"""The files of a cut: copied elsewhere, precisely these are a graph that opens at the cut, with all branches.

Of every chain only the pinned manifests are listed, so the newest pinned version is the HEAD of a copy. Left out
are the version hint, our own state, recovery sidecars and the tags of freezes. Lance keeps the manifest of a version
where a branch begins longer than its transaction, and perhaps its data: nobody reads that version itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from omnigraph_ops.coordination.freezes import contract_folder, freeze_of_tag
from omnigraph_ops.errors import CorruptGraph, OpsError
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import stored_indexes
from omnigraph_ops.graph.layout import branch_reference, chain_folder
from omnigraph_ops.graph.references import dropped_manifests
from omnigraph_ops.lance.gateway import Dataset, LanceFailure
from omnigraph_ops.lance.versions import TrackedFile, blobs_in_bases, files_of_versions, needed_files
from omnigraph_ops.models.freeze import CutFile, CutFileKind, Freeze, FrozenCut, FrozenPin, PinRole
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.progress import SILENT, Meter, Progress
from omnigraph_ops.quantities import count
from omnigraph_ops.stages.freeze.observe import lifetimes, lost_branch, stored_manifest
from omnigraph_ops.stages.freeze.roots import below_root, has_plain_base, place_of_root, recorded_roots
from omnigraph_ops.storage.copying import Pacing
from omnigraph_ops.storage.inventory import files_in, folders_in, sizes_below, stored_sizes
from omnigraph_ops.storage.store import Storage

_CHUNK = 4 * 1024 * 1024


def with_checksums(graph: Graph, files: Sequence[CutFile], progress: Progress = SILENT) -> tuple[CutFile, ...]:
    """The files with the SHA-256 of each, read in parallel. Reads all of them.

    Raises:
        CorruptGraph: one is gone.
    """
    meter = Meter(progress, "reading", len(files), "files")

    def one(file: CutFile) -> CutFile:
        try:
            summed = replace(file, checksum=checksum_of(graph.storage, file.source))
        except FileNotFoundError:
            raise CorruptGraph(f"{file.source} of the cut is gone; the freeze cannot be copied") from None
        meter.add(1)
        return summed

    return tuple(in_parallel(one, files, workers=graph.settings.concurrency))


def checksum_of(storage: Storage, path: str, pacing: Pacing | None = None) -> str:
    """`sha256:` of one stored file, read in chunks, no faster than `pacing` lets it. Reads.

    Raises:
        FileNotFoundError: it is gone.
    """
    found = hashlib.sha256()
    for chunk in storage.chunks(path, pacing.chunk if pacing is not None else _CHUNK):
        if pacing is not None:
            pacing.wait_for(len(chunk))
        found.update(chunk)
    return f"sha256:{found.hexdigest()}"


_KINDS = {
    "data file": CutFileKind.DATA,
    "deletion file": CutFileKind.DELETION,
    "index file": CutFileKind.INDEX,
    "transaction file": CutFileKind.TRANSACTION,
}
_OF_ROWS = {CutFileKind.DATA, CutFileKind.DELETION}
# Called, not a decorator: threads that share a decorated function lose its statistics to each other (tenacity 9.2).
_again = Retrying(
    retry=retry_if_exception_type(LanceFailure), stop=stop_after_attempt(3), wait=wait_fixed(0.2), reraise=True
)


def cut_files(graph: Graph, freeze: Freeze, progress: Progress = SILENT) -> tuple[CutFile, ...]:
    """Every file of the cut with its size, sorted by where it belongs. Reads.

    An index that lacks files is no reason to be without a copy of the rows: `progress` tells of it.

    Raises:
        CorruptGraph: something else of the cut is gone, or lies outside of the graph.
    """
    datasets = _datasets(graph, freeze.cut.pins)
    found = in_parallel(lambda dataset: dataset.files(progress), datasets, workers=graph.settings.concurrency)
    dropped = [] if freeze.tables else _dropped_manifests(graph, freeze.cut)
    # A shallow clone and its original list the same files.
    listed = {file.file: file for files in (_contract(graph, freeze), dropped, *found) for file in files}
    return tuple(sorted(listed.values(), key=lambda f: f.file))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What a version lacks."""

    pin: FrozenPin
    reason: str
    is_unknown: bool = False
    """Whether what it needs cannot be told."""
    is_of_indexes: bool = False
    """Whether all of its rows can be read."""


def gaps(graph: Graph, pins: Sequence[FrozenPin]) -> tuple[Gap, ...]:
    """Which of these versions cannot be read whole; side files of blobs are not looked for. Reads.

    One manifest for each version, and the listings of the folders that they name.
    """
    found = in_parallel(_Dataset.gaps, _datasets(graph, pins), workers=graph.settings.concurrency)
    return tuple(gap for of_one in found for gap in of_one)


def _contract(graph: Graph, freeze: Freeze) -> list[CutFile]:
    folder = contract_folder(freeze.freeze_id)
    kept = [f"{folder}/{name}" for name in freeze.cut.contract]
    sizes = _sizes(graph.storage, kept, needed=dict.fromkeys(kept, _NEEDS))
    return [
        CutFile(file=name, source=f"{folder}/{name}", size=sizes[f"{folder}/{name}"], kind=CutFileKind.CONTRACT)
        for name in freeze.cut.contract
    ]


def _dropped_manifests(graph: Graph, cut: FrozenCut) -> list[CutFile]:
    paths = dropped_manifests(graph, cut.datasets)
    if cut.dropped is not None:  # else types that were made since are among them
        paths = frozenset(path for path in paths if path.partition("/_versions/")[0] in cut.dropped)
    sizes = _sizes(graph.storage, paths, needed=dict.fromkeys(paths, _NEEDS))
    return [
        CutFile(
            file=path,
            source=path,
            size=size,
            kind=CutFileKind.MANIFEST,
            records_root=bool(recorded_roots(graph.storage.read(path))),
        )
        for path, size in sizes.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dataset:
    """One dataset of a cut."""

    graph: Graph
    path: str
    pins: Sequence[FrozenPin]

    def files(self, progress: Progress) -> list[CutFile]:
        """Its files. Reads."""
        manifests = {pin: self._manifest(pin) for pin in self.pins}
        raw = {path: self.graph.storage.read(path) for path in sorted(set(manifests.values()))}
        kinds, needs = self._tracked_kinds(manifests, raw)
        needed = {path: _needs(pin) for pin, paths in needs.items() for path in paths}
        kinds |= dict.fromkeys(needed.keys() - kinds.keys(), CutFileKind.EXTERNAL)
        kinds |= dict.fromkeys(self._indexes(manifests, raw, progress), CutFileKind.INDEX)
        kinds |= dict.fromkeys(self._blobs(kinds), CutFileKind.DATA)
        own = dict.fromkeys(raw, CutFileKind.MANIFEST) | dict.fromkeys(self._references(), CutFileKind.REFERENCE)
        kinds |= own
        sizes = _sizes(self.graph.storage, kinds, needed=dict.fromkeys(own, _NEEDS) | needed)
        self._refuse_other_branches()
        rooted = {path for path, data in raw.items() if recorded_roots(data)}
        return [
            CutFile(file=path, source=path, size=size, kind=kinds[path], records_root=path in rooted)
            for path, size in sizes.items()
        ]

    def gaps(self) -> list[Gap]:
        """What its versions lack, one for each that lacks something. Reads."""
        try:
            return self._lacks()
        except OpsError as error:
            if len(self.pins) > 1:  # one of them hides no other
                return [gap for pin in self.pins for gap in replace(self, pins=(pin,)).gaps()]
            return [Gap(pin=self.pins[0], reason=str(error), is_unknown=True)]

    def _lacks(self) -> list[Gap]:
        stored = {pin: stored_manifest(self.graph, pin.path, pin.branch, pin.version) for pin in self.pins}
        manifests = {pin: path for pin, path in stored.items() if path is not None}
        of_rows = {pin: "its manifest is gone" for pin in self.pins if pin not in manifests}
        if not manifests:
            return [Gap(pin=pin, reason=reason) for pin, reason in of_rows.items()]
        raw = {path: self.graph.storage.read(path) for path in sorted(set(manifests.values()))}
        there = replace(self, pins=tuple(manifests))
        needs = {pin: self._needed(pin, has_plain_base(raw[path])) for pin, path in manifests.items()}
        sizes = stored_sizes(self.graph.storage, set[str]().union(*needs.values()))
        for pin, needed in needs.items():
            if lost := sorted(path for path, size in needed.items() if sizes.get(path, 0) < size):
                of_rows[pin] = f"{count(len(lost), 'file')} gone or cut short, {lost[0]} for one"
        found = {pin: [reason] for pin, reason in of_rows.items()}
        for pin, what in there._index_gaps(manifests, raw, self._stored_indexes(raw)):
            found.setdefault(pin, []).append(what)
        return [Gap(pin=p, reason="; ".join(what), is_of_indexes=p not in of_rows) for p, what in found.items()]

    def _needed(self, pin: FrozenPin, has_blobs_outside: bool) -> dict[str, int]:
        """What the rows of a version need, with sizes. Reads."""
        chain = chain_folder(pin.path, pin.branch)
        found = {
            _joined(chain if f.base is None else below_root(self.graph, f.base), f.path): f.size
            for f in needed_files(self._open(pin.branch, pin.version))
        }
        return found | dict.fromkeys(self._blobs_in_bases(pin) if has_blobs_outside else (), 1)

    def _refuse_other_branches(self) -> None:
        """Refuse files of a branch that was made anew under the name of a frozen one, before or meanwhile. Reads."""
        pins = [pin for pin in self.pins if pin.branch is not None]
        if not pins:
            return
        branches = lifetimes(self.graph, self._open(None))
        for pin in pins:
            if reason := lost_branch(pin, branches):
                raise CorruptGraph(
                    f"{_said(pin)} is gone although it was frozen: {reason}; the freeze cannot be copied; "
                    "end it with unfreeze, and freeze again"
                )

    def _open(self, branch: str | None, version: int | None = None) -> Dataset:
        """A version of one of its chains, the newest where none is given. Reads."""
        return self.graph.open_at(self.path, branch=branch, version=version)

    def _read(self) -> list[FrozenPin]:
        """The versions that readers of the cut open. Pure."""
        return [pin for pin in self.pins if pin.role is not PinRole.FORK]

    def _manifest(self, pin: FrozenPin) -> str:
        found = stored_manifest(self.graph, pin.path, pin.branch, pin.version)
        if found is None:
            where = f" of branch {pin.branch!r}" if pin.branch else ""
            raise CorruptGraph(f"version {pin.version}{where} of {pin.table_key} is gone although it was frozen")
        return found

    def _tracked_kinds(
        self, manifests: Mapping[FrozenPin, str], raw: Mapping[str, bytes]
    ) -> tuple[dict[str, CutFileKind], dict[FrozenPin, set[str]]]:
        """What the pinned versions refer to as Lance lists it, and what the rows of each need of that. Reads."""
        kinds: dict[str, CutFileKind] = {}
        needs: dict[FrozenPin, set[str]] = {pin: set() for pin in self._read()}
        for branch in {pin.branch for pin in self.pins}:
            pins = [pin for pin in self.pins if pin.branch == branch]
            read = {pin.version: pin for pin in pins if pin in needs}
            tracked = self._tracked(branch, {pin.version for pin in pins})
            places = {base: below_root(self.graph, base) for base in {f.base for f in tracked}}
            for file in tracked:
                if file.kind in _KINDS:
                    path = _joined(places[file.base], file.path)
                    kinds[path] = _KINDS[file.kind]
                    if file.version in read and kinds[path] in _OF_ROWS:
                        needs[read[file.version]].add(path)
        for pin, needed in needs.items():
            # Only there blobs may be files of a base: nothing else is worth another open.
            if has_plain_base(raw[manifests[pin]]):
                needed.update(self._blobs_in_bases(pin))
        return kinds, needs

    def _tracked(self, branch: str | None, versions: Collection[int]) -> frozenset[TrackedFile]:
        """What Lance lists for these versions; again, when a newer one was collected meanwhile. Reads."""
        return _again(lambda: files_of_versions(self._open(branch), versions))

    def _blobs_in_bases(self, pin: FrozenPin) -> Iterator[str]:
        """Blobs of a version that are files of a registered base. Reads."""
        for base, path in blobs_in_bases(self._open(pin.branch, pin.version)):
            yield _joined(below_root(self.graph, base), path)

    def _indexes(self, manifests: Mapping[FrozenPin, str], raw: Mapping[str, bytes], progress: Progress) -> list[str]:
        """Files of every index that a manifest names, wherever it was made; tells what is not whole. Reads.

        Raises:
            CorruptGraph: one of a version that is read is not in this graph.
        """
        stored = self._stored_indexes(raw)
        for pin, lacks in self._index_gaps(manifests, raw, stored):
            branch = f" (branch {pin.branch})" if pin.branch else ""
            progress(f"{pin.table_key}{branch}: {lacks}; it goes into the copy like that, where every row can be read")
        return [path for files in stored.values() for path in files]

    def _index_gaps(
        self, manifests: Mapping[FrozenPin, str], raw: Mapping[str, bytes], stored: Mapping[str, Mapping[str, int]]
    ) -> Iterator[tuple[FrozenPin, str]]:
        """What the indexes of the versions that are read lack. Raises `CorruptGraph` for one outside. Reads links."""
        for pin in self._read():
            for index in stored_indexes(raw[manifests[pin]], manifests[pin]):
                if index.base is not None:
                    below_root(self.graph, index.base)
                there = {p.partition(f"/{index.uuid}/")[2]: size for p, size in stored.get(index.uuid, {}).items()}
                if gone := index.missing(there):
                    yield pin, f"the index {index.name} lacks {', '.join(sorted(gone))} ({index.uuid})"

    def _stored_indexes(self, raw: Mapping[str, bytes]) -> dict[str, dict[str, int]]:
        """The stored files of the indexes that these manifests name, with their sizes, by uuid. Reads.

        All chains are searched: Lance 9.0 takes what a branch of a branch inherited for its own.
        """
        named = {index for path, data in raw.items() for index in stored_indexes(data, path)}
        uuids = {index.uuid for index in named}
        chains = {self.path} | {chain_folder(self.path, pin.branch) for pin in self.pins}
        places = {place_of_root(self.graph, index.base) for index in named if index.base is not None}
        stored: dict[str, dict[str, int]] = {}
        for place in sorted(chains | {place for place in places if place is not None}):
            for folder in folders_in(self.graph.storage, _joined(place, "_indices")):
                if (uuid := folder.rpartition("/")[2]) in uuids:
                    sizes = sizes_below(self.graph.storage, folder)
                    stored.setdefault(uuid, {}).update({f"{folder}/{name}": size for name, size in sizes.items()})
        return stored

    def _blobs(self, kinds: Mapping[str, CutFileKind]) -> Iterator[str]:
        """Blob side files: each in a folder beside its data file, and named after it. Reads."""
        folders = {path.rpartition("/")[0] for path, kind in kinds.items() if kind is CutFileKind.DATA}
        for parent in sorted(folders):
            for folder in folders_in(self.graph.storage, parent):
                if f"{folder}.lance" in kinds:
                    yield from (f.path for f in files_in(self.graph.storage, folder))

    def _references(self) -> Iterator[str]:
        """The references of the branches, and tags of others on pinned versions. Reads."""
        for name in {pin.branch for pin in self.pins if pin.branch is not None}:
            yield branch_reference(self.path, name)
        pinned = {(pin.branch, pin.version) for pin in self.pins}
        for name in self.graph.storage.list(f"{self.path}/_refs/tags"):
            tag, path = name.removesuffix(".json"), f"{self.path}/_refs/tags/{name}"
            if name.endswith(".json") and freeze_of_tag(tag) is None and _tagged(self.graph.storage, path) in pinned:
                yield path


def _datasets(graph: Graph, pins: Iterable[FrozenPin]) -> list[_Dataset]:
    """The datasets of these versions, by path. Pure."""
    by_path: dict[str, list[FrozenPin]] = {}
    for pin in pins:
        by_path.setdefault(pin.path, []).append(pin)
    return [_Dataset(graph=graph, path=path, pins=by_path[path]) for path in sorted(by_path)]


def _said(pin: FrozenPin) -> str:
    """A version as messages name it. Pure."""
    return f"version {pin.version} of {chain_folder(pin.path, pin.branch)}"


_NEEDS = "the freeze needs it"


def _needs(pin: FrozenPin) -> str:
    """Why a file has to be there, and what a person can do if it is not. Pure."""
    return f"{_said(pin)} needs it; if only a tag keeps that version, remove the tag and freeze again"


def _joined(place: str, path: str) -> str:
    """A path below a place of the graph, which may be the graph itself. Pure."""
    return f"{place}/{path}" if place else path


def _tagged(storage: Storage, path: str) -> tuple[str | None, int] | None:
    """The chain and version of a stored tag, None for one that is gone or damaged. Reads."""
    try:
        data = json.loads(storage.read(path))
        return data.get("branch"), int(data["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _sizes(storage: Storage, paths: Collection[str], needed: Mapping[str, str]) -> dict[str, int]:
    """The size of each file that is there, by listing folders. Reads.

    Args:
        needed: files that have to be there, each with the reason as a sentence.

    Raises:
        CorruptGraph: one of those is not there.
    """
    sizes = stored_sizes(storage, paths)
    missing = sorted(set(needed) - set(sizes))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CorruptGraph(f"{missing[0]}{more} of the cut is gone; the freeze cannot be copied; {needed[missing[0]]}")
    return {path: sizes[path] for path in paths if path in sizes}

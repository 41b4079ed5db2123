"""The files of a cut: copied elsewhere, precisely these are a graph that opens at the cut, with all branches.

Of every chain only the pinned manifests are listed, so the newest pinned version is the HEAD of a copy. Left out
are the version hint, our own state, recovery sidecars and the tags of freezes. Lance keeps the manifest of a version
where a branch begins longer than its transaction, and perhaps its data: nobody reads that version itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from omnigraph_ops.coordination.freeze_names import contract_folder, freeze_of_tag
from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.lance_manifest import index_uuids
from omnigraph_ops.graph.paths import chain_folder
from omnigraph_ops.lance.errors import LanceFailure
from omnigraph_ops.lance.files import TrackedFile, files_of_versions
from omnigraph_ops.models.freeze import CutFile, CutFileKind, Freeze, FrozenPin, PinRole
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.freeze.observe import stored_manifest
from omnigraph_ops.stages.freeze.roots import below_root, recorded_roots
from omnigraph_ops.storage.inventory import below_folder, files_in, folders_in
from omnigraph_ops.storage.store import Storage

_KINDS = {
    "data file": CutFileKind.DATA,
    "deletion file": CutFileKind.DELETION,
    "index file": CutFileKind.INDEX,
    "transaction file": CutFileKind.TRANSACTION,
}
# Called, not a decorator: threads that share a decorated function lose its statistics to each other (tenacity 9.2).
_again = Retrying(
    retry=retry_if_exception_type(LanceFailure), stop=stop_after_attempt(3), wait=wait_fixed(0.2), reraise=True
)


def cut_files(graph: Graph, freeze: Freeze) -> tuple[CutFile, ...]:
    """Every file of the cut with its size, sorted by where it belongs. Reads.

    Raises:
        CorruptGraph: something of the cut is gone, or lies outside of the graph.
    """
    by_dataset: dict[str, list[FrozenPin]] = {}
    for pin in freeze.cut.pins:
        by_dataset.setdefault(pin.path, []).append(pin)

    def one(path: str) -> list[CutFile]:
        return _Dataset(graph=graph, path=path, pins=by_dataset[path]).files()

    found = in_parallel(one, sorted(by_dataset), workers=graph.settings.concurrency)
    listed = [*_contract(graph, freeze), *(file for files in found for file in files)]
    return tuple(sorted(listed, key=lambda f: f.file))


def _contract(graph: Graph, freeze: Freeze) -> list[CutFile]:
    folder = contract_folder(freeze.freeze_id)
    kept = [f"{folder}/{name}" for name in freeze.cut.contract]
    sizes = _sizes(graph.storage, kept, needed=kept)
    return [
        CutFile(file=name, source=f"{folder}/{name}", size=sizes[f"{folder}/{name}"], kind=CutFileKind.CONTRACT)
        for name in freeze.cut.contract
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dataset:
    """One dataset of a cut."""

    graph: Graph
    path: str
    pins: Sequence[FrozenPin]

    def files(self) -> list[CutFile]:
        """Its files. Reads."""
        manifests = {pin: self._manifest(pin) for pin in self.pins}
        raw = {path: self.graph.storage.read(path) for path in sorted(set(manifests.values()))}
        kinds, needed = self._tracked_kinds()
        kinds |= dict.fromkeys(self._indexes(raw), CutFileKind.INDEX)
        kinds |= dict.fromkeys(self._blobs(kinds), CutFileKind.DATA)
        own = dict.fromkeys(raw, CutFileKind.MANIFEST) | dict.fromkeys(self._references(), CutFileKind.REFERENCE)
        kinds |= own
        sizes = _sizes(self.graph.storage, kinds, needed={*needed, *own})
        rooted = {path for path, data in raw.items() if recorded_roots(data)}
        return [
            CutFile(file=path, source=path, size=size, kind=kinds[path], records_root=path in rooted)
            for path, size in sizes.items()
        ]

    def _manifest(self, pin: FrozenPin) -> str:
        found = stored_manifest(self.graph, pin.path, pin.branch, pin.version)
        if found is None:
            where = f" of branch {pin.branch!r}" if pin.branch else ""
            raise CorruptGraph(f"version {pin.version}{where} of {pin.table_key} is gone although it was frozen")
        return found

    def _tracked_kinds(self) -> tuple[dict[str, CutFileKind], set[str]]:
        """What the pinned versions refer to as Lance lists it, and which of it a reader of the cut needs. Reads."""
        kinds: dict[str, CutFileKind] = {}
        needed: set[str] = set()
        for branch in {pin.branch for pin in self.pins}:
            pins = [pin for pin in self.pins if pin.branch == branch]
            read = {pin.version for pin in pins if pin.role is not PinRole.FORK}
            tracked = self._tracked(branch, {pin.version for pin in pins})
            places = {base: below_root(self.graph, base) for base in {f.base for f in tracked}}
            for file in tracked:
                if file.kind in _KINDS:
                    path = f"{places[file.base]}/{file.path}"
                    kinds[path] = _KINDS[file.kind]
                    if file.version in read and kinds[path] is not CutFileKind.TRANSACTION:
                        needed.add(path)
        return kinds, needed

    def _tracked(self, branch: str | None, versions: Collection[int]) -> frozenset[TrackedFile]:
        """What Lance lists for these versions; again, when a newer one was collected meanwhile. Reads."""
        uri = self.graph.context.location.uri(self.path)
        return _again(lambda: files_of_versions(self.graph.lance.open(uri, branch=branch), versions))

    def _indexes(self, manifests: Mapping[str, bytes]) -> Iterator[str]:
        """Files of every index that a manifest names. Reads."""
        named = frozenset[str]().union(*(index_uuids(raw, path) for path, raw in manifests.items()))
        for chain in self._chains():
            for folder in folders_in(self.graph.storage, f"{chain}/_indices"):
                if folder.rpartition("/")[2] in named:
                    yield from (f.path for f in below_folder(self.graph.storage, folder) if not f.is_folder)

    def _blobs(self, kinds: Collection[str]) -> Iterator[str]:
        """Blob side files: each in a folder named after its data file. Reads."""
        for chain in self._chains():
            for folder in folders_in(self.graph.storage, f"{chain}/data"):
                if f"{folder}.lance" in kinds:
                    yield from (f.path for f in files_in(self.graph.storage, folder))

    def _references(self) -> Iterator[str]:
        """The references of the branches, and tags of others on pinned versions. Reads."""
        for name in {pin.branch for pin in self.pins if pin.branch is not None}:
            yield f"{self.path}/_refs/branches/{quote(name, safe='')}.json"
        pinned = {(pin.branch, pin.version) for pin in self.pins}
        for name in self.graph.storage.list(f"{self.path}/_refs/tags"):
            tag, path = name.removesuffix(".json"), f"{self.path}/_refs/tags/{name}"
            if name.endswith(".json") and freeze_of_tag(tag) is None and _tagged(self.graph.storage, path) in pinned:
                yield path

    def _chains(self) -> list[str]:
        return sorted({self.path} | {chain_folder(self.path, pin.branch) for pin in self.pins})


def _tagged(storage: Storage, path: str) -> tuple[str | None, int] | None:
    """The chain and version of a stored tag, None for one that is gone or damaged. Reads."""
    try:
        data = json.loads(storage.read(path))
        return data.get("branch"), int(data["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _sizes(storage: Storage, paths: Collection[str], needed: Collection[str]) -> dict[str, int]:
    """The size of each file that is there, by listing folders; `CorruptGraph` for a needed one that is not. Reads."""
    folders = sorted({path.rpartition("/")[0] for path in paths})
    found = in_parallel(lambda folder: files_in(storage, folder), folders, workers=8)
    sizes = {file.path: file.size for files in found for file in files if not file.is_special}
    missing = sorted(set(needed) - set(sizes))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CorruptGraph(f"{missing[0]}{more} of the cut is gone; the freeze cannot be copied")
    return {path: sizes[path] for path in paths if path in sizes}

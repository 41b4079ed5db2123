"""The versions of a dataset: which files they refer to, tags that keep them, and the removal of an exact list."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.lance.gateway import Dataset, DatasetMissing, LanceFailure, lance_errors, listing_again
from omnigraph_ops.models.cleanup import PlannedFile

_MOST_REMEMBERED = 100_000
"""Paths, twice, that a stream of references knows to have given."""


def tracked_files(dataset: Dataset) -> Iterator[tuple[str, set[str]]]:
    """Files that any version of the open chain (main or one branch) refers to, in batches. Reads.

    A batch is the root that files are under, as a manifest spells it, and their paths below it. A file comes with every
    version that refers to it: what was in one of the last batches is left out, so the memory that this needs does not
    grow with the number of versions.

    Lance leaves out blob side files, index files that a branch inherits, and detached versions: the
    caller must treat these itself. A manifest that cannot be read raises.
    """
    recent: dict[str, set[str]] = {}
    before: dict[str, set[str]] = {}
    with lance_errors(f"read the references of {dataset.uri}"):
        for batch in dataset.tracked_files():
            bases = batch.column("base_uri").dictionary_decode()
            for base in pc.unique(bases).to_pylist():
                paths = pc.unique(batch.column("path").filter(pc.equal(bases, base)))
                fresh = set(paths.to_pylist()) - recent.get(base, set()) - before.get(base, set())
                if fresh:
                    recent.setdefault(base, set()).update(fresh)
                    yield base, fresh
            if sum(map(len, recent.values())) > _MOST_REMEMBERED:
                recent, before = {}, recent


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedFile:
    """A file that a version of a chain refers to."""

    version: int
    base: str
    """Root as the manifest spells it."""
    path: str
    kind: str
    """Lance's word: `manifest`, `data file`, `deletion file`, `transaction file` or `index file`."""


def files_of_versions(dataset: Dataset, versions: Collection[int]) -> frozenset[TrackedFile]:
    """Files that exactly these versions of the open chain refer to. Reads the manifests from the oldest on.

    Index files that a branch inherits and blob side files are left out, as in `tracked_files`.
    """
    found: set[TrackedFile] = set()
    with lance_errors(f"read the files of {dataset.uri}"):
        for batch in dataset.tracked_files(min_version=min(versions)):
            for row in batch.to_pylist():
                if row["version"] in versions:
                    file = TrackedFile(version=row["version"], base=row["base_uri"], path=row["path"], kind=row["type"])
                    found.add(file)
    return frozenset(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededFile:
    """A file without which rows of a version cannot be read."""

    base: str | None
    """The recorded root that it is below; None for the folder of the chain itself."""
    path: str
    size: int
    """In bytes; 1 where Lance recorded none."""


def needed_files(dataset: Dataset) -> tuple[NeededFile, ...]:
    """The data and deletion files of the version that is open; no side files of blobs. Reads metadata."""
    with lance_errors(f"inspect the fragments of {dataset.uri}"):
        bases = dataset.base_paths()
        roots: dict[int | None, str] = {number: str(base.path) for number, base in bases.items()}
        found = []
        for fragment in (f.metadata for f in dataset.get_fragments()):
            for file in fragment.files:
                is_plain = file.base_id is not None and not bases[file.base_id].is_dataset_root
                path = str(file.path) if is_plain else f"data/{file.path}"
                size = max(file.file_size_bytes or 0, 1)
                found.append(NeededFile(base=roots.get(file.base_id), path=path, size=size))
            if (deleted := fragment.deletion_file) is not None:
                found.append(NeededFile(base=roots.get(deleted.base_id), path=deleted.path(fragment.id), size=1))
    return tuple(found)


NO_LANCE_FILE = "does not appear to be a Lance file"
"""What Lance 13 says of a data file without its footer; it does not name the file."""


def first_damaged(dataset: Dataset) -> str | None:
    """The data files of the first fragment of which Lance calls one no Lance file; None: of none. Reads rows."""
    for fragment in dataset.get_fragments():
        try:
            fragment.head(1)
        except Exception as error:
            if NO_LANCE_FILE in str(error):
                return " or ".join(f"data/{file.path}" for file in fragment.metadata.files)
    return None


_EXTERNAL = 3
"""The kind of a blob that is a file of its own somewhere, in its description."""


def blobs_in_bases(dataset: Dataset) -> frozenset[tuple[str, str]]:
    """The files in registered bases that blobs of the open version are, as (base, path). Reads their descriptions.

    Lance lists such a file nowhere. One outside of every base is recorded by its URI, and is not here.
    """
    columns = [f.name for f in dataset.schema if getattr(f.type, "extension_name", "") == "lance.blob.v2"]
    if not columns:
        return frozenset()
    with lance_errors(f"read where the blobs of {dataset.uri} are"):
        bases = {base.id: str(base.path) for base in dataset.base_paths().values()}
        batches = dataset.scanner(columns=columns).to_batches()
        return frozenset(
            (bases[base], path) for batch in batches for blobs in batch.columns for base, path in _outer(blobs)
        )


def _outer(blobs: Any) -> Iterator[tuple[int, str]]:
    """(Base, path) of the described blobs that are files of a base. Pure."""
    kind, base, path = (pc.struct_field(blobs, name) for name in ("kind", "blob_id", "blob_uri"))
    external = pc.and_(pc.equal(kind, _EXTERNAL), pc.not_equal(base, 0))
    yield from zip(pc.filter(base, external).to_pylist(), pc.filter(path, external).to_pylist(), strict=True)


def create_tag(dataset: Dataset, name: str, *, branch: str | None, version: int) -> None:
    """Tag a version of the main chain or of a branch; `DatasetMissing` when that version is gone. Writes.

    Args:
        name: nobody else uses it: where it is on that version, the reply to an attempt of ours was lost.
    """
    try:
        with lance_errors(f"tag version {version} of {dataset.uri}"):
            dataset.tags.create(name, (branch, version) if branch is not None else version)
    except LanceFailure:
        found: Mapping[str, Any] = {}
        with contextlib.suppress(LanceFailure), lance_errors(f"list the tags of {dataset.uri}"):
            found = dataset.tags.list().get(name, {})
        if (found.get("branch"), found.get("version")) != (branch, version):
            raise


_AS_THEY_ARE = "/ !$&'()+,-.:;=@_"
"""Beside letters and digits, what Lance does not encode. It encodes `~`, which Python never does."""


@contextlib.contextmanager
def without_twins(uris: Sequence[str]) -> Iterator[None]:
    """Remove the empty folders that Lance 13 makes at percent-encoded paths, beside those for new tags. Destroys these.

    Args:
        uris: the datasets that are tagged in the block.
    """
    made = set[str]()
    for uri in uris:
        twin = quote(uri, safe=_AS_THEY_ARE).replace("~", "%7E")
        if "://" not in uri and twin != uri:
            folders = (f"{twin}/_refs/tags", f"{twin}/_refs", twin, *map(str, Path(twin).parents))
            made |= {folder for folder in folders if not os.path.lexists(folder)}
    try:
        yield
    finally:
        for folder in sorted(made, key=len, reverse=True):
            with contextlib.suppress(OSError):  # what is not empty is not of Lance
                os.rmdir(folder)


def delete_tag(dataset: Dataset, name: str) -> bool:
    """Remove a tag, also one whose branch is gone; False when there is none. Destroys only the tag."""
    with contextlib.suppress(DatasetMissing), lance_errors(f"remove tag {name} of {dataset.uri}"):
        dataset.tags.delete(name)
        return True
    return False


_MOST_FILES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """One existing version of a main chain and its commit time in microseconds since the epoch."""

    version: int
    committed_at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a cleanup freed."""

    bytes_removed: int
    old_versions: int


def existing_versions(dataset: Dataset) -> tuple[VersionFacts, ...]:
    """Every version that can still be opened, ascending. Reads."""
    with lance_errors(f"list the versions of {dataset.uri}"):
        # Not `dataset.versions()`: its naive local times are ambiguous where an hour is repeated (pylance 13).
        listed: list[Any] = list(dataset._ds.versions())
    facts = [VersionFacts(version=int(v["version"]), committed_at_us=int(v["timestamp"]) // 1000) for v in listed]
    return tuple(sorted(facts, key=lambda f: f.version))


def explain_removal(dataset: Dataset, table_path: str, versions: Sequence[int]) -> tuple[PlannedFile, ...]:
    """Every file that removing exactly these versions deletes, by path. Reads.

    Raises:
        LanceFailure: the list would be longer than Lance was asked to give, or Lance failed.
        CorruptGraph: Lance names a file of another dataset.
    """
    if not versions:
        return ()
    with lance_errors(f"explain the cleanup of {dataset.uri}"):
        explained = dataset.explain_cleanup_old_versions(
            versions=list(versions), error_if_tagged_old_versions=False, include_files=True, max_files=_MOST_FILES
        )
    if explained.candidate_files_truncated:
        raise LanceFailure(f"the cleanup of {dataset.uri} removes more than {_MOST_FILES:,} files; keep more versions")
    return _by_path(
        PlannedFile(path=_below_graph(str(f.path), table_path), size=int(f.size_bytes), kind=str(f.kind))
        for f in explained.candidate_files
    )


def _below_graph(key: str, table_path: str) -> str:
    """The graph-relative path of a file that Lance names by its key in the store. Pure.

    The key's beginning is the root as the store escapes it, so only what follows the table counts.
    """
    _, found, rest = f"/{key}".rpartition(f"/{table_path}/")
    if not found:
        raise CorruptGraph(f"Lance names the file {key!r} outside of {table_path}; nothing was deleted")
    return f"{table_path}/{rest}"


def _by_path(files: Iterable[PlannedFile]) -> tuple[PlannedFile, ...]:
    return tuple(sorted(files, key=lambda f: f.path))


@listing_again
def freed_with_forks(
    dataset: Dataset, table_path: str, versions: Sequence[int], forks: Collection[str]
) -> tuple[PlannedFile, ...]:
    """Files of the main chain that only these versions and these branches refer to, by path. Reads.

    What `explain_removal` cannot tell while the branches still exist.
    """
    with lance_errors(f"read the files of {dataset.uri}"):
        doomed, kept = _tracked(dataset, dataset, versions)
        for name in dataset.branches.list():
            _, inherited = _tracked(dataset, dataset.checkout_version((name, None)), ())
            if name in forks:
                doomed |= inherited
            else:
                kept |= inherited
        return _stored(dataset, table_path, {path: _kind_of(path) for path in doomed - kept}.get)


def _stored(dataset: Dataset, table_path: str, kind_of: Callable[[str], str | None]) -> tuple[PlannedFile, ...]:
    """The stored files that are of a kind, given by their paths below the dataset; by path. Reads."""
    listed = dataset.all_files().read_all().select(["path", "size_bytes"]).to_pylist()
    return _by_path(
        PlannedFile(path=f"{table_path}/{file['path']}", size=int(file["size_bytes"]), kind=kind)
        for file in listed
        if (kind := kind_of(file["path"])) is not None
    )


def _tracked(main: Dataset, chain: Dataset, versions: Sequence[int]) -> tuple[set[str], set[str]]:
    """Files below the main chain's own folder that these versions of a chain refer to, and that its others do. Reads.

    A file comes with every version that refers to it: held all at once, they would be as many as files times versions.
    """
    these, others, root = set[str](), set[str](), main.uri.rstrip("/")
    for batch in chain.tracked_files():
        bases = pc.utf8_rtrim(batch.column("base_uri").dictionary_decode(), characters="/")
        numbers = batch.column("version")
        is_own, is_one = pc.equal(bases, root), pc.is_in(numbers, value_set=pa.array(versions, numbers.type))
        for paths, wanted in ((these, is_one), (others, pc.invert(is_one))):
            paths.update(pc.unique(batch.column("path").filter(pc.and_(is_own, wanted))).to_pylist())
    return these, others


def _kind_of(path: str) -> str:
    folders = {"data": "data", "_deletions": "deletion", "_indices": "index", "_transactions": "transaction"}
    return folders.get(path.partition("/")[0], "manifest")


def remove_versions(dataset: Dataset, versions: Sequence[int], *, deletes_per_second: int | None = None) -> Removed:
    """Remove exactly these versions and the files only they reference. Destroys.

    Unverified files younger than seven days stay: they may belong to a write in progress.
    """
    with lance_errors(f"clean up {dataset.uri}"):
        stats = dataset.cleanup_old_versions(
            versions=list(versions),
            delete_unverified=False,
            error_if_tagged_old_versions=False,
            delete_rate_limit=deletes_per_second,
        )
    return Removed(bytes_removed=int(stats.bytes_removed), old_versions=int(stats.old_versions))


def files_of_branch(dataset: Dataset, table_path: str, branch: str, others: Collection[str]) -> tuple[PlannedFile, ...]:
    """Everything that deleting a Lance branch deletes while `others` still exist, by path. Reads."""
    folder = _folder_that_goes(branch, others)
    if folder is None:
        return ()
    with lance_errors(f"list the files of branch {branch} of {dataset.uri}"):
        return _stored(dataset, table_path, lambda path: "fork" if path.startswith(f"tree/{folder}/") else None)


def _folder_that_goes(branch: str, others: Collection[str]) -> str | None:
    """The folder below `tree/` that Lance removes with a branch, None when it removes none. Pure.

    It is the topmost one on the way to the branch with no other branch at or below it: what branches of
    shorter names left behind goes, too, and nothing goes as long as a branch is nested below.
    """
    parts = branch.split("/")
    folders = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    return next((f for f in folders if not any(f"{o}/".startswith(f"{f}/") for o in others)), None)


def branch_base_paths(dataset: Dataset, branch: str) -> tuple[str, ...]:
    """The dataset roots that a branch records as the place of its inherited files. Reads."""
    with lance_errors(f"read branch {branch} of {dataset.uri}"):
        bases = dataset.checkout_version((branch, None)).base_paths()
    return tuple(str(base.path) for base in bases.values() if base.is_dataset_root)

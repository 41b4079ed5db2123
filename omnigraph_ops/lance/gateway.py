"""Opening Lance datasets, the few calls every stage shares, and its errors by class. Only `lance/` imports pylance.

The one table that turns Lance's untyped errors into typed ones; only message texts tell them apart.

LanceFailure(StorageError)
├── DatasetMissing        no dataset, branch or version there
├── CommitContention      a row-level compare-and-swap was lost (`Too many concurrent writers`)
├── CommitConflict        another commit preempted ours; plan again from a fresh read
├── DistanceOverflow      a vector is too large for any partition of an index
└── IncompatibleCommit    Overwrite or Restore landed; stop
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
from google.protobuf import any_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as FieldProto
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from omnigraph_ops.errors import OpsError, StorageError, reason_of


class LanceFailure(StorageError):
    """Lance failed in a way that has no class of its own; the text is Lance's."""


class DatasetMissing(LanceFailure):
    """No dataset, branch or version at that place."""


class CommitContention(LanceFailure):
    """A row-level compare-and-swap was lost; nothing of ours landed."""


class CommitConflict(LanceFailure):
    """Another commit preempted ours; nothing of ours landed but perhaps a ReserveFragments version."""


class DistanceOverflow(LanceFailure):
    """A vector is so large that its distances are infinite: no partition of an index takes it in."""


class IncompatibleCommit(LanceFailure):
    """An Overwrite or Restore landed in between; planning again from this read is pointless."""


def is_below_main(branch: str) -> bool:
    """Whether Lance deletes the whole dataset with a branch of this name: it takes its first part for main. Pure."""
    return branch.startswith("main/")


LOST_COMMITS = (CommitContention, CommitConflict, IncompatibleCommit)
"""Of these another writer is the cause, and not what was to be committed."""

_TEXTS: tuple[tuple[str, type[LanceFailure]], ...] = (
    ("Too many concurrent writers", CommitContention),
    ("Retryable commit conflict", CommitConflict),
    ("Commit conflict for version", CommitConflict),
    ("Incompatible transaction", IncompatibleCommit),
    ("null partition ID", DistanceOverflow),
    ("was not found", DatasetMissing),
    ("Not found:", DatasetMissing),
    ("not found error", DatasetMissing),
)


def classify(error: BaseException) -> type[LanceFailure]:
    """The class for an error that came out of pylance. Pure."""
    text = str(error)
    return next((kind for marker, kind in _TEXTS if marker in text), LanceFailure)


@contextlib.contextmanager
def lance_errors(action: str) -> Iterator[None]:
    """Raise the typed counterpart of whatever pylance raises inside the block.

    Panics of the native library arrive as a BaseException that `except Exception` does not see.
    """
    try:
        yield
    except (OpsError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise classify(error)(f"cannot {action}: {reason_of(error)}") from error


Dataset = lance.LanceDataset
listing_again = retry(retry=retry_if_exception_type(DatasetMissing), stop=stop_after_attempt(5), reraise=True)
"""For what lists branches: Lance reads the file of each, and one that is deleted meanwhile fails the whole list."""
AUTO_CLEANUP_PREFIX = "lance.auto_cleanup."
SYSTEM_PREFIX = "__lance"
"""Begins the names of what Lance keeps among the indexes for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRef:
    """A Lance branch of a dataset: where it forked and the identity of this lifetime of the name."""

    name: str
    parent_branch: str | None
    parent_version: int
    identifier: tuple[tuple[int, str], ...]
    is_bare: bool = False
    """Whether it is a reference without data, as a fence of this tool: it pins nothing, and nobody can open it."""


def refuse_file(uri: str) -> None:
    """Raise `LanceFailure` where a local file is in the place of a dataset or of its versions. Reads.

    Lance asks again and again for two seconds before it says so, with every dataset that is opened.
    """
    if "://" in uri:
        return
    try:
        os.stat(os.path.join(uri, "_versions", ""))
    except NotADirectoryError as error:
        raise LanceFailure(f"cannot open {uri}: {reason_of(error)}") from error
    except OSError:
        return  # missing or not readable: Lance tells which


_EMPTY_JSON = "EOF while parsing a value at line 1 column 0"


@contextlib.contextmanager
def _naming_empty_references() -> Iterator[None]:
    """Raise an error that names the command to run for an empty branch reference; Lance names its own code. Pure."""
    try:
        yield
    except Exception as error:
        if _EMPTY_JSON not in str(error):
            raise
        raise OSError(
            "a branch reference there is an empty file, as a full disk leaves it; `omnigraph-ops check` says what "
            "settles it"
        ) from error


_ELSEWHERE = """Lance 9 and later look for branches elsewhere when there is a '?' in the path; nothing was written, \
the branch may be whole; rename the folder of the graph"""


class LanceGateway:
    """Opens datasets with the storage options of one graph."""

    may_rebuild_indexes = True
    """Whether the parameters of an index are known, so that it may be built anew where folding fails."""

    def __init__(self, storage_options: dict[str, str] | None) -> None:
        self.storage_options = storage_options

    def open(self, uri: str, *, branch: str | None = None, version: int | None = None) -> Dataset:
        """The dataset at its HEAD, or at one version, of main or of a branch. Reads."""
        action = f"open {_spelled(uri, branch, version)}"
        try:
            with lance_errors(action):
                refuse_file(uri)
                if branch is None:
                    return lance.dataset(uri, version=version, storage_options=self.storage_options)
                return lance.dataset(uri, storage_options=self.storage_options).checkout_version((branch, version))
        except DatasetMissing as error:
            if branch is None or "?" not in uri:
                raise
            raise DatasetMissing(f"cannot {action}: {_ELSEWHERE}") from error

    def refuse_another(self, dataset: Dataset) -> None:
        """Raise `CommitConflict` unless the version that is open is still the stored one of that number. Reads.

        A dataset that was dropped and made anew has the same numbers: Lance would commit to it what was made for the
        old one, whose files are gone.
        """
        uri, version = str(dataset.uri), int(dataset.version)
        try:
            stored = self.open(uri, version=version)
        except DatasetMissing:
            raise CommitConflict(f"version {version} of {uri} is gone; nothing was committed") from None
        if _ordered(stored) != _ordered(dataset):
            raise CommitConflict(f"{uri} was replaced, it has another version {version} now; nothing was committed")

    def clone(self, dataset: Dataset, uri: str) -> Dataset:
        """A shallow clone of the open version: metadata of its own, files of the original. Writes below `uri`."""
        with lance_errors(f"clone {dataset.uri}"):
            return dataset.shallow_clone(uri, int(dataset.version), storage_options=self.storage_options)

    def create(self, uri: str, table: pa.Table) -> Dataset:
        """A new dataset with the parameters the engine uses for every dataset it creates. Writes."""
        with lance_errors(f"create {uri}"):
            return lance.write_dataset(
                table,
                uri,
                mode="create",
                enable_stable_row_ids=True,
                data_storage_version="2.2",
                storage_options=self.storage_options,
            )

    def append(self, dataset: Dataset, table: pa.Table) -> Dataset:
        """Append rows to the dataset (and branch) that is open. Writes."""
        with lance_errors(f"append to {dataset.uri}"):
            return lance.write_dataset(table, dataset, mode="append", storage_options=self.storage_options)

    def update(self, dataset: Dataset, values: dict[str, str], *, where: str) -> None:
        """Set columns of the rows that a filter finds to SQL expressions, on the branch that is open. Writes."""
        with lance_errors(f"update {dataset.uri}"):
            dataset.update(values, where=where)

    @listing_again
    def branches(self, dataset: Dataset) -> tuple[BranchRef, ...]:
        """The Lance branches of a dataset, sorted by name, without main. Reads."""
        with lance_errors(f"list the branches of {dataset.uri}"), _naming_empty_references():
            listed: dict[str, Any] = dict(dataset.branches.list())
        return tuple(
            BranchRef(
                name=name,
                parent_branch=info["parent_branch"],
                parent_version=info["parent_version"],
                identifier=tuple((int(v), str(u)) for v, u in info["branch_identifier"]),
                is_bare=info["manifest_size"] == 0,
            )
            for name, info in sorted(listed.items())
        )

    def delete_branch(self, dataset: Dataset, name: str) -> bool:
        """Delete a Lance branch; False when it is already gone; `LanceFailure` for one below `main/`. Destroys."""
        if is_below_main(name):
            raise LanceFailure(f"Lance would delete all of {dataset.uri} with its branch {name!r}; nothing was deleted")
        with contextlib.suppress(DatasetMissing), lance_errors(f"delete branch {name} of {dataset.uri}"):
            dataset.branches.delete(name)
            return True
        return False

    def tags(self, dataset: Dataset) -> tuple[tuple[str, str | None, int], ...]:
        """Tags as (name, branch, version), sorted by name. Reads."""
        with lance_errors(f"list the tags of {dataset.uri}"):
            listed: dict[str, Any] = dict(dataset.tags.list())
        return tuple((name, info.get("branch"), int(info["version"])) for name, info in sorted(listed.items()))

    def strip_auto_cleanup(self, dataset: Dataset) -> bool:
        """Delete `lance.auto_cleanup.*` config, one commit if any was set; whether it was. Writes.

        With those keys any commit may collect versions that the graph manifest still pins.
        """
        keys = auto_cleanup_keys(dataset)
        if not keys:
            return False
        with lance_errors(f"remove auto-cleanup from {dataset.uri}"):
            dataset.delete_config_keys(list(keys))
        return True


_COLUMN = 1
"""The number of a column in the message of a manifest."""


def manifest_of(dataset: Dataset) -> bytes:
    """The manifest of the open version, as Lance writes it this time. Pure."""
    manifest: bytes = dataset._ds.serialized_manifest()
    return manifest


def message_fields(message: bytes) -> Any:
    """The fields of a message of Lance, without an object for each of its parts. Pure."""
    return UnknownFieldSet(Empty.FromString(message))


def _ordered(dataset: Dataset) -> bytes:
    """What the manifest of the open version says: equal for two open versions if and only if they are one. Pure.

    Lance writes a map in another order each time, such as the bases of what a branch shares, so the order of the
    fields of the message counts no more, nor that of the bytes of a column, whose metadata are a map, too.
    """
    fields = [(field.field_number, field.data) for field in message_fields(manifest_of(dataset))]
    in_order = [(number, sorted(data) if number == _COLUMN else data) for number, data in fields]
    return "\n".join(sorted(map(repr, in_order))).encode()


def version_print(dataset: Dataset) -> str:
    """A digest of the open version, which no other version has, whatever its number. Pure."""
    return hashlib.sha256(_ordered(dataset)).hexdigest()


def auto_cleanup_keys(dataset: Dataset) -> tuple[str, ...]:
    """The `lance.auto_cleanup.*` keys of a dataset's config. Reads."""
    with lance_errors(f"read the config of {dataset.uri}"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return tuple(sorted(k for k in dataset.config() if k.startswith(AUTO_CLEANUP_PREFIX)))


def described(dataset: Dataset) -> list[Any]:
    """What Lance says of the indexes of the version that is open, without its own. Reads."""
    return [index for index in every_index(dataset) if not index.name.startswith(SYSTEM_PREFIX)]


def every_index(dataset: Dataset) -> list[Any]:
    """What Lance says of all indexes of the version that is open, its own included. Reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return list(dataset.describe_indices())


def is_blob(field: pa.Field) -> bool:
    """Whether a column holds blobs, in files of their own perhaps. Pure."""
    metadata = field.metadata or {}
    extension = metadata.get(b"ARROW:extension:name", b"").decode() or getattr(field.type, "extension_name", "")
    return metadata.get(b"lance-encoding:blob") == b"true" or str(extension).startswith("lance.blob")


def fields_of(column: Any) -> Iterator[Any]:
    """A column of Lance's schema, and every field that is nested in it. Pure."""
    yield column
    for child in column.children():
        yield from fields_of(child)


def base_roots(dataset: Dataset) -> tuple[str, ...]:
    """Where else than below its own root the open version has files: other datasets and registered bases. Reads."""
    with lance_errors(f"read the base paths of {dataset.uri}"):
        return tuple(str(base.path) for base in dataset.base_paths().values())


def fragment_print(fragment: Any) -> str:
    """A digest of what a fragment is: its files, deleted rows, row ids, and when they were written. Pure."""
    # `to_json` says the same, and copies every value first.
    deleted, ids = fragment.deletion_file, fragment.row_id_meta
    written = (fragment.created_at_version_meta, fragment.last_updated_at_version_meta)
    overlays = fragment.to_json()["overlays"] if fragment.overlays else []
    parts = [
        *(fragment.id, fragment.physical_rows, [vars(file) for file in fragment.files], overlays),
        *(deleted and deleted.asdict(), ids and ids.asdict(), *(meta and meta.json() for meta in written)),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def live_rows(dataset: Dataset) -> int:
    """Rows that are not deleted, at the version that is open. Reads."""
    with lance_errors(f"count the rows of {dataset.uri}"):
        return int(dataset.count_rows())


def _spelled(uri: str, branch: str | None, version: int | None) -> str:
    at = "" if version is None else f" at version {version}"
    return uri + (f" branch {branch}" if branch else "") + at


TEXT, BYTES, NUMBER = FieldProto.TYPE_STRING, FieldProto.TYPE_BYTES, FieldProto.TYPE_UINT64
ONE, MANY = FieldProto.LABEL_OPTIONAL, FieldProto.LABEL_REPEATED


def message_classes(package: str, messages: Mapping[str, Mapping[str, tuple[Any, ...]]]) -> dict[str, Any]:
    """The message classes by name, made here: compiled ones would be tied to the version of their compiler. Pure.

    Args:
        package: a name that nothing else in this process has.
        messages: of each message its fields, as (number, type or name of a message, label if it is repeated).
    """
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    file.dependency.extend([any_pb2.DESCRIPTOR.name, timestamp_pb2.DESCRIPTOR.name])
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, *label) in fields.items():
            made = message.field.add(name=field, number=number, label=label[0] if label else ONE)
            if isinstance(kind, str):
                made.type_name = f".{kind}" if "." in kind else f".{package}.{kind}"
            else:
                made.type = kind
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{n}")) for n in messages}

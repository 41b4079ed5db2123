"""Read a Lance manifest file itself: the transaction of a version, without trusting a library's class names.

pylance cannot tell ReserveFragments from other operations and raises on some Rewrites, so repair
reads the protobuf. File layout: ... manifest ..., then a 16-byte footer `<position u64, major u16,
minor u16, b"LANC">`; at `position` a u32 length and the Manifest message; `index_section` is the offset of a
length-prefixed list of the index segments, `transaction_section` that of an inlined, length-prefixed Transaction and
`transaction_file` its name under `_transactions/`. The operation of a Transaction is one of the fields from 100 on.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.layout import any_version_of, manifest_file_name, old_manifest_file_name
from omnigraph_ops.lance.commits import OPERATION_PROPERTY, Manifest
from omnigraph_ops.lance.gateway import BYTES, MANY, NUMBER, SYSTEM_PREFIX, TEXT, message_classes
from omnigraph_ops.storage.inventory import sizes_below
from omnigraph_ops.storage.store import Storage

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_EMPTY_BITMAP = 8
"""Bytes of a Roaring bitmap without any member."""
_DAMAGED = (struct.error, DecodeError, ValueError, IndexError)
_MESSAGES: dict[str, dict[str, tuple[Any, ...]]] = {
    "Manifest": {
        "index_section": (6, NUMBER),
        "timestamp": (7, "google.protobuf.Timestamp"),
        "max_fragment_id": (11, NUMBER),
        "transaction_file": (12, TEXT),
        "writer_version": (13, "WriterVersion"),
        "base_paths": (18, "BasePath", MANY),
        "transaction_section": (21, NUMBER),
    },
    "WriterVersion": {"library": (1, BYTES), "version": (2, BYTES)},
    "BasePath": {"id": (1, NUMBER), "is_dataset_root": (3, NUMBER), "path": (4, TEXT)},
    "IndexSection": {"indices": (1, "IndexMetadata", MANY)},
    "IndexMetadata": {
        "uuid": (1, "UUID"),
        "name": (3, TEXT),
        "fragment_bitmap": (5, BYTES),
        "index_details": (6, "google.protobuf.Any"),
        "base_id": (9, NUMBER),
        "files": (10, "IndexFile", MANY),
    },
    "UUID": {"uuid": (1, BYTES)},
    "IndexFile": {"path": (1, TEXT), "size_bytes": (2, NUMBER)},
    "Transaction": {
        "read_version": (1, NUMBER),
        "uuid": (2, BYTES),
        "transaction_properties": (4, "Entry", MANY),
        "delete": (101, "Delete"),
    },
    "Entry": {"key": (1, BYTES), "value": (2, BYTES)},
    "Delete": {"predicate": (3, BYTES)},
}
"""What is read of Lance's table.proto and transaction.proto: (number, type); everything else stays an unknown field.

Texts that are only shown are bytes here, which no parser refuses.
"""

OPERATIONS: dict[int, str] = {
    100: "Append",
    101: "Delete",
    102: "Overwrite",
    103: "CreateIndex",
    104: "Rewrite",
    105: "Merge",
    106: "Restore",
    107: "ReserveFragments",
    108: "Update",
    109: "Project",
    110: "UpdateConfig",
    111: "DataReplacement",
    112: "UpdateMemWalState",
    113: "Clone",
    114: "UpdateBases",
}
"""Field numbers of the operations in lance's transaction.proto, with the names the engine prints."""


class UnreadableTransaction(Exception):
    """The transaction of a version is missing or cannot be decoded; the text is for the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """What a Lance manifest and its transaction say about the commit of one version."""

    version: int
    operation: str
    committed_at_us: int | None = None
    """By the writer's clock."""
    read_version: int | None = None
    writer: str | None = None
    predicate: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    transaction_id: str | None = None

    @property
    def mark(self) -> str | None:
        """Which operation of this tool made it, None for a commit of anybody else. Pure."""
        return dict(self.properties).get(OPERATION_PROPERTY)


def version_record(storage: Storage, chain: str, version: int) -> VersionRecord:
    """The commit that made a version of a chain, given by its folder. Reads.

    An operation number that this tool does not know comes back as `Unknown(n)`: never as harmless.

    Raises:
        UnreadableTransaction: the manifest or its transaction is missing or damaged.
    """
    try:
        raw = _stored_manifest(storage, chain, version).content
        manifest = manifest_message(raw)
        return _record(version, manifest, _transaction(storage, chain, manifest, raw))
    except FileNotFoundError:
        raise UnreadableTransaction(f"missing Lance transaction for version {version}") from None
    except _DAMAGED as error:
        raise UnreadableTransaction(f"failed to read Lance transaction for version {version}: {error}") from None


def committed_at_us(storage: Storage, chain: str, version: int) -> int | None:
    """When a version of a chain was made, by its writer's clock; None: nobody can read that. Reads."""
    try:
        return _committed_at_us(manifest_message(_stored_manifest(storage, chain, version).content))
    except (FileNotFoundError, *_DAMAGED):
        return None


def stored_versions(storage: Storage, folder: str) -> frozenset[int]:
    """The versions of a chain whose manifest is there, by the names alone. Reads: one listing."""
    names = storage.list(f"{folder}/_versions" if folder else "_versions")
    return frozenset(v for v in map(any_version_of, names) if v is not None)


def read_manifest(storage: Storage, chain: str, version: int) -> Manifest:
    """The manifest file of a version, by the folder of its chain. Reads.

    Raises:
        CorruptGraph: it cannot be read.
    """
    try:
        return _stored_manifest(storage, chain, version)
    except FileNotFoundError:
        raise CorruptGraph(f"the manifest of version {version} of {chain} is missing") from None


def name_after(manifest: Manifest) -> str:
    """The file name of the version after that one, in the same naming. Pure."""
    old = manifest.name == old_manifest_file_name(manifest.version)
    return (old_manifest_file_name if old else manifest_file_name)(manifest.version + 1)


def highest_fragment_id(manifest: Manifest) -> int:
    """The highest fragment id that was ever given in a chain; -1 where none was. Raises `CorruptGraph`. Pure."""
    with legible(manifest.name):
        message = manifest_message(manifest.content)
        return int(message.max_fragment_id) if message.HasField("max_fragment_id") else -1


def writer_of(manifest: Manifest) -> str | None:
    """The library that wrote a version, as `lance 9.0.0`; None where that is not recorded. Pure.

    Raises:
        CorruptGraph: the manifest cannot be read.
    """
    with legible(manifest.name):
        return _writer(manifest_message(manifest.content))


def index_segments(raw: bytes, name: str) -> tuple[Any, ...]:
    """The IndexMetadata of every index segment of a manifest file. Raises `CorruptGraph`. Pure."""
    with legible(name):
        message = manifest_message(raw)
        if not message.HasField("index_section"):
            return ()
        return tuple(_IndexSection.FromString(_message_at(raw, message.index_section)).indices)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIndex:
    """An index segment as a manifest names it."""

    uuid: str
    """As its folder is called."""
    name: str
    files: frozenset[tuple[str, int]]
    """What it consists of, below its folder, with sizes; empty where Lance did not record that."""
    covers_rows: bool
    """One that covers none may have no file."""
    base: str | None = None
    """The recorded root below which it lies; None for the chain of the manifest."""

    def missing(self, stored: Mapping[str, int]) -> frozenset[str]:
        """What of it is not, or not whole, among these files of its folder, given with their sizes. Pure."""
        if self.files or any(stored.values()) or not self.covers_rows or self.name.startswith(SYSTEM_PREFIX):
            return frozenset(path for path, size in self.files if stored.get(path, 0) < max(size, 1))
        return frozenset({"all of its files"})


def stored_indexes(raw: bytes, name: str) -> tuple[StoredIndex, ...]:
    """The index segments of a manifest file, with what each has to consist of. Raises `CorruptGraph`. Pure."""
    segments = index_segments(raw, name)
    with legible(name):
        bases = {base.id: base.path for base in manifest_message(raw).base_paths}
        return tuple(
            StoredIndex(
                uuid=str(uuid.UUID(bytes=segment.uuid.uuid)),
                name=segment.name,
                files=frozenset((file.path, file.size_bytes) for file in segment.files),
                covers_rows=len(segment.fragment_bitmap) > _EMPTY_BITMAP,
                base=bases.get(segment.base_id) if segment.HasField("base_id") else None,
            )
            for segment in segments
        )


def lost_indexes(storage: Storage, chain: str, version: int) -> frozenset[str]:
    """The indexes of a version that lack a file, by name; those that lie in another place are not looked for. Reads.

    Raises:
        CorruptGraph: the manifest cannot be read.
    """
    manifest = read_manifest(storage, chain, version)
    segments = [s for s in stored_indexes(manifest.content, manifest.name) if s.base is None]
    return frozenset(s.name for s in segments if s.missing(sizes_below(storage, f"{chain}/_indices/{s.uuid}")))


def index_uuids(raw: bytes, name: str) -> frozenset[str]:
    """Which index segments a manifest file names, as their folders are called. Raises `CorruptGraph`. Pure."""
    return frozenset(index.uuid for index in stored_indexes(raw, name))


def manifest_message(raw: bytes) -> Any:
    """The Manifest message of a manifest file; what of it is not read stays in it. Raises within `legible`. Pure."""
    return _Manifest.FromString(_message_at(raw, _position(raw)))


def with_message(raw: bytes, message: Any) -> bytes:
    """The manifest file with another Manifest message, which it ends with; offsets into the rest stay right. Pure."""
    position, body = _position(raw), message.SerializeToString()
    if len(_message_at(raw, position)) + position + _LENGTH.size + _FOOTER.size != len(raw):
        raise ValueError("it does not end with its manifest")
    return b"".join((raw[:position], _LENGTH.pack(len(body)), body, raw[-_FOOTER.size :]))


@contextlib.contextmanager
def legible(name: str) -> Iterator[None]:
    """Raise `CorruptGraph` for a manifest file that cannot be read. Pure."""
    try:
        yield
    except _DAMAGED as error:
        raise CorruptGraph(f"a Lance manifest cannot be read ({name}): {error}") from None


def _stored_manifest(storage: Storage, chain: str, version: int) -> Manifest:
    name = manifest_file_name(version)
    try:
        return Manifest(version=version, name=name, content=storage.read(f"{chain}/_versions/{name}"))
    except FileNotFoundError:
        name = old_manifest_file_name(version)
        return Manifest(version=version, name=name, content=storage.read(f"{chain}/_versions/{name}"))


def _transaction(storage: Storage, chain: str, manifest: Any, raw: bytes) -> bytes:
    if manifest.HasField("transaction_section"):
        return _message_at(raw, manifest.transaction_section)
    if not manifest.transaction_file:
        raise FileNotFoundError(chain)
    return storage.read(f"{chain}/_transactions/{manifest.transaction_file}")


def _position(raw: bytes) -> int:
    position, _, _, magic = _FOOTER.unpack(raw[-_FOOTER.size :])
    if magic != b"LANC" or position >= len(raw):
        raise ValueError("not a Lance manifest")
    return int(position)


def _message_at(raw: bytes, position: int) -> bytes:
    (length,) = _LENGTH.unpack_from(raw, position)
    message = raw[position + _LENGTH.size : position + _LENGTH.size + length]
    if len(message) != length:
        raise ValueError("truncated message")
    return message


def _record(version: int, manifest: Any, raw: bytes) -> VersionRecord:
    transaction = _Transaction.FromString(raw)
    operation = _operation_name(transaction)
    properties = ((_text(entry.key), _text(entry.value)) for entry in transaction.transaction_properties)
    return VersionRecord(
        version=version,
        operation=operation,
        committed_at_us=_committed_at_us(manifest),
        read_version=transaction.read_version if transaction.HasField("read_version") else None,
        writer=_writer(manifest),
        predicate=_text(transaction.delete.predicate) if transaction.delete.HasField("predicate") else None,
        properties=tuple(sorted(properties)),
        transaction_id=_text(transaction.uuid) if transaction.HasField("uuid") else None,
    )


def _committed_at_us(manifest: Any) -> int | None:
    at = manifest.timestamp
    return int(at.seconds) * 1_000_000 + int(at.nanos) // 1000 if manifest.HasField("timestamp") else None


def _writer(manifest: Any) -> str | None:
    said = manifest.writer_version
    return " ".join(_text(word) for word in (said.library, said.version) if word) or None


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _operation_name(transaction: Any) -> str:
    unknown: Any = UnknownFieldSet(transaction)
    known = {descriptor.number for descriptor, _ in transaction.ListFields()}
    numbers = [n for n in known | {field.field_number for field in unknown} if 100 <= n < 200]
    if len(numbers) != 1:
        raise ValueError(f"expected one operation, found {len(numbers)}")
    return OPERATIONS.get(numbers[0], f"Unknown({numbers[0]})")


_MADE = message_classes("omnigraph_ops.lance", _MESSAGES)
_Manifest, _IndexSection, _Transaction = _MADE["Manifest"], _MADE["IndexSection"], _MADE["Transaction"]


# Operations that change no row: all that a maintenance unit may commit under its sidecar.
CONTENT_PRESERVING = frozenset({"UpdateConfig", "CreateIndex", "ReserveFragments", "Rewrite"})


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Operation names in version order, up to the first version that cannot be read."""

    operations: tuple[str, ...]
    problem: str | None = None
    records: tuple[VersionRecord, ...] = ()
    """The commits behind the operations, one each."""

    @property
    def preserves_content(self) -> bool:
        """Whether every version is known and none changed a row. Unknown is not. Pure."""
        return self.problem is None and CONTENT_PRESERVING.issuperset(self.operations)


def commits_after(storage: Storage, chain: str, after: int, upto: int) -> tuple[VersionRecord, ...]:
    """The commits that made the versions `after + 1 ... upto` of a chain, given by its folder. Reads.

    Raises:
        CorruptGraph: one of them cannot be read.
    """
    try:
        return tuple(version_record(storage, chain, version) for version in range(after + 1, upto + 1))
    except UnreadableTransaction as error:
        raise CorruptGraph(f"{chain}: {error}") from None


def history(storage: Storage, table_path: str, *, after: int, upto: int) -> History:
    """Operations of the versions `after + 1 ... upto` of a table's main chain. Reads."""
    records: list[VersionRecord] = []
    problem = None
    for version in range(after + 1, upto + 1):
        try:
            records.append(version_record(storage, table_path, version))
        except UnreadableTransaction as error:
            problem = str(error)
            break
    return History(operations=tuple(r.operation for r in records), problem=problem, records=tuple(records))

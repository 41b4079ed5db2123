"""Read a Lance manifest file itself: the transaction of a version, without trusting a library's class names.

pylance cannot tell ReserveFragments from other operations and raises on some Rewrites, so repair
reads the protobuf. File layout: ... manifest ..., then a 16-byte footer `<position u64, major u16,
minor u16, b"LANC">`; at `position` a u32 length and the Manifest message (lance table.proto);
`index_section` (field 6) is the offset of a length-prefixed list of the index segments,
`transaction_section` (21) is the offset of an inlined, length-prefixed Transaction and
`transaction_file` (field 12) its name under `_transactions/`; `timestamp` (7) is when the version was
committed, `max_fragment_id` (11) the highest fragment id that was ever given, `writer_version` (13) which library
wrote it. In a Transaction, field 1 is the read version, 2 its id, 4 the map of properties, and the operation one of
the fields from 100 on.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.layout import manifest_file_name, old_manifest_file_name, version_path
from omnigraph_ops.lance.commits import Manifest
from omnigraph_ops.storage.store import Storage

T = TypeVar("T")
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_INDEX_SECTION, _TIMESTAMP, _HIGHEST_FRAGMENT_ID = 6, 7, 11
_TRANSACTION_FILE, _WRITER, _TRANSACTION_SECTION = 12, 13, 21
_READ_VERSION, _TRANSACTION_ID, _PROPERTIES, _DELETE, _PREDICATE = 1, 2, 4, 101, 3

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


def operation_of(storage: Storage, table_path: str, version: int, branch: str | None = None) -> str:
    """The Lance operation that made `version`, e.g. `Rewrite`; raises as `version_record`. Reads."""
    return version_record(storage, table_path, version, branch).operation


def version_record(storage: Storage, table_path: str, version: int, branch: str | None = None) -> VersionRecord:
    """The commit that made `version`. Reads.

    An operation number that this tool does not know comes back as `Unknown(n)`: never as harmless.

    Raises:
        UnreadableTransaction: the manifest or its transaction is missing or damaged.
    """
    try:
        raw = _read_manifest(storage, version_path(table_path, version, branch), version)
        manifest = _message_at(raw, _manifest_position(raw))
        return _record(version, manifest, _transaction_bytes(storage, table_path, branch, raw))
    except FileNotFoundError:
        raise UnreadableTransaction(f"missing Lance transaction for version {version}") from None
    except (struct.error, DecodeError, ValueError, IndexError) as error:
        raise UnreadableTransaction(f"failed to read Lance transaction for version {version}: {error}") from None


def read_manifest(storage: Storage, table_path: str, version: int) -> Manifest:
    """The manifest file of a version of a main chain. Reads.

    Raises:
        CorruptGraph: it cannot be read.
    """
    for name_of in (manifest_file_name, old_manifest_file_name):
        with contextlib.suppress(FileNotFoundError):
            raw = storage.read(f"{table_path}/_versions/{name_of(version)}")
            return Manifest(version=version, name=name_of(version), content=raw)
    raise CorruptGraph(f"the manifest of version {version} of {table_path} is missing")


def name_after(manifest: Manifest) -> str:
    """The file name of the version after that one, in the same naming. Pure."""
    old = manifest.name == old_manifest_file_name(manifest.version)
    return (old_manifest_file_name if old else manifest_file_name)(manifest.version + 1)


def highest_fragment_id(manifest: Manifest) -> int:
    """The highest fragment id that was ever given in a chain; -1 where none was. Raises `CorruptGraph`. Pure."""
    with _legible(manifest):
        found = _header(manifest.content).get(_HIGHEST_FRAGMENT_ID, -1)
    return found if isinstance(found, int) else -1


def writer_of(manifest: Manifest) -> str | None:
    """The library that wrote a version, as `lance 9.0.0`; None where that is not recorded. Pure.

    Raises:
        CorruptGraph: the manifest cannot be read.
    """
    with _legible(manifest):
        return _lenient(_writer, _header(manifest.content).get(_WRITER))


def index_messages(manifest: Manifest) -> tuple[bytes, ...]:
    """The IndexMetadata messages of a version, one per index segment. Raises `CorruptGraph`. Pure."""
    with _legible(manifest):
        section = _header(manifest.content).get(_INDEX_SECTION)
        return repeated(_message_at(manifest.content, section), 1) if isinstance(section, int) else ()


def repeated(message: bytes, number: int) -> tuple[bytes, ...]:
    """Every value of a field of messages, strings or bytes. Pure."""
    unknown: Any = UnknownFieldSet(Empty.FromString(message))
    return tuple(f.data for f in unknown if f.field_number == number and isinstance(f.data, bytes))


def single(message: bytes, number: int) -> bytes:
    """The last value of such a field, empty where there is none. Pure."""
    return next(reversed(repeated(message, number)), b"")


def field_numbers(message: bytes) -> frozenset[int]:
    """The numbers of the fields that a message has. Pure."""
    return frozenset(_fields(message))


@contextlib.contextmanager
def _legible(manifest: Manifest) -> Iterator[None]:
    try:
        yield
    except (struct.error, DecodeError, ValueError, IndexError) as error:
        raise CorruptGraph(f"a Lance manifest cannot be read ({manifest.name}): {error}") from None


def _read_manifest(storage: Storage, path: str, version: int) -> bytes:
    try:
        return storage.read(path)
    except FileNotFoundError:
        return storage.read(f"{path.rpartition('/')[0]}/{old_manifest_file_name(version)}")


def _transaction_bytes(storage: Storage, table_path: str, branch: str | None, raw: bytes) -> bytes:
    fields = _header(raw)
    section = fields.get(_TRANSACTION_SECTION)
    if isinstance(section, int):
        return _message_at(raw, section)
    name = fields.get(_TRANSACTION_FILE)
    if not isinstance(name, bytes) or not name:
        raise FileNotFoundError(table_path)
    folder = table_path if branch is None else f"{table_path}/tree/{branch}"
    return storage.read(f"{folder}/_transactions/{name.decode()}")


def _header(raw: bytes) -> dict[int, object]:
    """The fields of the manifest message itself. Pure."""
    return _fields(_message_at(raw, _manifest_position(raw)))


def _manifest_position(raw: bytes) -> int:
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


def _fields(message: bytes) -> dict[int, object]:
    """Field number to last value; messages and strings as bytes. Pure."""
    unknown: Any = UnknownFieldSet(Empty.FromString(message))
    return {f.field_number: f.data for f in unknown}


def _record(version: int, manifest: bytes, transaction: bytes) -> VersionRecord:
    operation = _operation_name(transaction)
    header, body = _fields(manifest), _fields(transaction)
    read_version = body.get(_READ_VERSION)
    return VersionRecord(
        version=version,
        operation=operation,
        committed_at_us=_lenient(_microseconds, header.get(_TIMESTAMP)),
        read_version=read_version if isinstance(read_version, int) else None,
        writer=_lenient(_writer, header.get(_WRITER)),
        predicate=_lenient(_predicate, body.get(_DELETE)) if operation == "Delete" else None,
        properties=_properties(transaction),
        transaction_id=_lenient(_text, body.get(_TRANSACTION_ID)),
    )


def _lenient(decode: Callable[[bytes], T | None], raw: object) -> T | None:
    """What is only shown never makes a version unreadable. Pure."""
    if not isinstance(raw, bytes):
        return None
    try:
        return decode(raw)
    except (DecodeError, ValueError):
        return None


def _microseconds(timestamp: bytes) -> int:
    fields = _fields(timestamp)
    seconds, nanos = fields.get(1, 0), fields.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise ValueError("not a timestamp")
    return seconds * 1_000_000 + nanos // 1000


def _writer(message: bytes) -> str | None:
    fields = _fields(message)
    words = [_text(value) for number, value in sorted(fields.items()) if number in {1, 2}]
    return " ".join(words) or None


def _predicate(delete: bytes) -> str | None:
    value = _fields(delete).get(_PREDICATE)
    return None if value is None else _text(value)


def _properties(transaction: bytes) -> tuple[tuple[str, str], ...]:
    unknown: Any = UnknownFieldSet(Empty.FromString(transaction))
    pairs = (_lenient(_pair, f.data) for f in unknown if f.field_number == _PROPERTIES)
    return tuple(sorted(pair for pair in pairs if pair is not None))


def _pair(entry: bytes) -> tuple[str, str]:
    fields = _fields(entry)
    return _text(fields.get(1, b"")), _text(fields.get(2, b""))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _operation_name(transaction: bytes) -> str:
    numbers = [n for n in _fields(transaction) if 100 <= n < 200]
    if len(numbers) != 1:
        raise ValueError(f"expected one operation, found {len(numbers)}")
    return OPERATIONS.get(numbers[0], f"Unknown({numbers[0]})")

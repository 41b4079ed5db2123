"""Read a Lance manifest file itself: the transaction of a version, without trusting a library's class names.

pylance cannot tell ReserveFragments from other operations and raises on some Rewrites, so repair
reads the protobuf. File layout: ... manifest ..., then a 16-byte footer `<position u64, major u16,
minor u16, b"LANC">`; at `position` a u32 length and the Manifest message (lance table.proto);
`transaction_section` (field 21) is the offset of an inlined, length-prefixed Transaction and
`transaction_file` (field 12) its name under `_transactions/`.
"""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from omnigraph_ops.edges.storage import Storage
from omnigraph_ops.graph.layout import version_path

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_TRANSACTION_FILE, _TRANSACTION_SECTION = 12, 21

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


def operation_of(storage: Storage, table_path: str, version: int, branch: str | None = None) -> str:
    """The Lance operation that made `version`, e.g. `Rewrite`. Reads.

    An operation number that this tool does not know comes back as `Unknown(n)`: never as harmless.

    Raises:
        UnreadableTransaction: the manifest or its transaction is missing or damaged.
    """
    path = version_path(table_path, version, branch)
    try:
        raw = storage.read(path)
    except FileNotFoundError:
        raise UnreadableTransaction(f"missing Lance transaction for version {version}") from None
    try:
        return _operation_name(_transaction_bytes(storage, table_path, branch, raw))
    except FileNotFoundError:
        raise UnreadableTransaction(f"missing Lance transaction for version {version}") from None
    except (struct.error, DecodeError, ValueError, IndexError) as error:
        raise UnreadableTransaction(f"failed to read Lance transaction for version {version}: {error}") from None


def _transaction_bytes(storage: Storage, table_path: str, branch: str | None, raw: bytes) -> bytes:
    fields = _fields(_message_at(raw, _manifest_position(raw)))
    section = fields.get(_TRANSACTION_SECTION)
    if isinstance(section, int):
        return _message_at(raw, section)
    name = fields.get(_TRANSACTION_FILE)
    if not isinstance(name, bytes) or not name:
        raise FileNotFoundError(table_path)
    folder = table_path if branch is None else f"{table_path}/tree/{branch}"
    return storage.read(f"{folder}/_transactions/{name.decode()}")


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


def _operation_name(transaction: bytes) -> str:
    numbers = [n for n in _fields(transaction) if 100 <= n < 200]
    if len(numbers) != 1:
        raise ValueError(f"expected one operation, found {len(numbers)}")
    return OPERATIONS.get(numbers[0], f"Unknown({numbers[0]})")

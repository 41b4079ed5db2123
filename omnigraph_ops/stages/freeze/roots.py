"""Roots that Lance branches record, as places in the graph, and the manifests that record them rewritten.

A Lance manifest ends with a length-prefixed Manifest message and a 16-byte footer that points at it. Field 18 of
the message lists the roots of other chains (`BasePath`: 3 is a dataset root, 4 the path); everything else, unknown
fields too, is copied byte for byte, and offsets into what precedes the message stay right.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

from omnigraph_ops.errors import CorruptGraph
from omnigraph_ops.graph.graph import Graph

Rename = Callable[[str], str]

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_BASE_PATHS, _PATH = 18, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


def below_root(graph: Graph, recorded: str) -> str:
    """A recorded root relative to the graph; `CorruptGraph` when it is not in this graph. Reads links."""
    plain = recorded.rstrip("/")
    if plain.startswith(f"{graph.uri}/"):
        return plain[len(graph.uri) + 1 :]
    found = _same_directory(graph, plain)
    if found is None:
        raise CorruptGraph(
            f"files are recorded at {recorded!r}, which is not in {graph.uri}: they belong to another graph or to an "
            "unregistered place and are no part of a file list"
        )
    return found


def rename_roots(manifest: bytes, rename: Rename) -> bytes:
    """The manifest file with every recorded root renamed; `CorruptGraph` for what is no manifest. Pure."""
    try:
        position, major, minor, magic = _FOOTER.unpack(manifest[-_FOOTER.size :])
        (length,) = _LENGTH.unpack_from(manifest, position)
        message = manifest[position + _LENGTH.size : -_FOOTER.size]
        if magic != b"LANC" or len(message) != length:
            raise ValueError("not a Lance manifest")
        renamed = b"".join(
            _field(number, _bytes(_base_path(body, rename))) if number == _BASE_PATHS else whole
            for number, whole, body in _fields(message)
        )
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptGraph(f"a Lance manifest of the cut cannot be read: {error}") from None
    footer = _FOOTER.pack(position, major, minor, magic)
    return b"".join((manifest[:position], _LENGTH.pack(len(renamed)), renamed, footer))


def recorded_roots(manifest: bytes) -> tuple[str, ...]:
    """The roots that a manifest file records, in order; raises as `rename_roots`. Pure."""
    found: list[str] = []

    def note(path: str) -> str:
        found.append(path)
        return path

    rename_roots(manifest, note)
    return tuple(found)


def _same_directory(graph: Graph, recorded: str) -> str | None:
    """The place below the graph, where the recorded root is this very directory spelled otherwise. Reads links."""
    if not graph.context.location.is_local or not os.path.isabs(recorded):
        return None
    real, root = os.path.realpath(recorded), os.path.realpath(graph.uri)
    return real[len(root) + 1 :] if real.startswith(f"{root}/") else None


def _base_path(message: bytes, rename: Rename) -> bytes:
    return b"".join(
        _field(number, _bytes(rename(body.decode()).encode())) if number == _PATH else whole
        for number, whole, body in _fields(message)
    )


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(number, the field as it is, the content of a length-delimited one) of every field, in order. Pure."""
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        kind, body = key & 7, b""
        if kind == _VARINT:
            _, at = _read_varint(message, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        elif kind == _BYTES:
            size, at = _read_varint(message, at)
            body, at = message[at : at + size], at + size
        else:
            raise ValueError(f"unexpected wire type {kind}")
        if at > len(message):
            raise ValueError("truncated message")
        yield key >> 3, message[start:at], body


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + payload


def _bytes(content: bytes) -> bytes:
    return _varint(len(content)) + content

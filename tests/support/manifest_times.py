"""Lance manifests that say another time: what no library offers, and what a clock or a time zone can do to a table."""

from __future__ import annotations

import struct
from pathlib import Path

from omnigraph_ops.stages.freeze.roots import _bytes, _field, _fields, _varint

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_TIMESTAMP = 7


def set_commit_times(dataset: Path, seconds: int) -> int:
    """Let every version of the main chain have been committed at that moment; how many there are. Writes."""
    manifests = sorted((dataset / "_versions").glob("*.manifest"))
    for manifest in manifests:
        manifest.write_bytes(_with_time(manifest.read_bytes(), seconds))
    return len(manifests)


def _with_time(manifest: bytes, seconds: int) -> bytes:
    position, major, minor, magic = _FOOTER.unpack(manifest[-_FOOTER.size :])
    message = manifest[position + _LENGTH.size : -_FOOTER.size]
    stamp = _field(_TIMESTAMP, _bytes(b"\x08" + _varint(seconds)))
    changed = b"".join(stamp if number == _TIMESTAMP else whole for number, whole, _ in _fields(message))
    footer = _FOOTER.pack(position, major, minor, magic)
    return b"".join((manifest[:position], _LENGTH.pack(len(changed)), changed, footer))

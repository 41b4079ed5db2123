"""What the message of a Lance manifest says, without an object for each of its parts."""

from __future__ import annotations

from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

_COLUMN, _FRAGMENT = 1, 2
"""The numbers of a column and of a fragment in the message."""
_ID = 1
"""The number of the id in the message of a fragment."""


def ordered(manifest: bytes) -> bytes:
    """What a manifest says, whatever the order of its maps: equal for two manifests if and only if they are one. Pure.

    Lance writes a map in another order each time, such as the bases of what a branch shares, so the order of the
    fields of the message counts no more, nor that of the bytes of a column, whose metadata are a map, too.
    """
    fields = [(field.field_number, field.data) for field in _fields(manifest)]
    in_order = [(number, sorted(data) if number == _COLUMN else data) for number, data in fields]
    return "\n".join(sorted(map(repr, in_order))).encode()


def fragments_in(manifest: bytes) -> list[bytes]:
    """The message of each fragment, in their order. Pure."""
    return [field.data for field in _fields(manifest) if field.field_number == _FRAGMENT]


def fragment_id(fragment: bytes) -> int:
    """The id in the message of a fragment, which leaves it out where it is zero. Pure."""
    return next((int(field.data) for field in _fields(fragment) if field.field_number == _ID), 0)


def _fields(message: bytes) -> Any:
    return UnknownFieldSet(Empty.FromString(message))

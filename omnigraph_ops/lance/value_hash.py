"""A 64-bit hash per value of an Arrow array, the same however the values are laid out in files."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0x6E756C6C6E756C6C)


def hash_values(array: Any) -> Hashes:
    """One hash per value; equal values of one type hash equal, nulls unlike any value but a null. Pure."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    hashes = _hash_non_null(array)
    if array.null_count:
        hashes[np.asarray(pc.is_null(array))] = _NULL
    return hashes


def _hash_non_null(array: Any) -> Hashes:
    kind = array.type
    if len(array) == 0 or pa.types.is_null(kind):
        return np.zeros(len(array), dtype=np.uint64)
    if pa.types.is_boolean(kind):
        return _hash_fixed(array.cast(pa.uint8()), 1)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _hash_fixed(array, kind.bit_width // 8)
    if _is_plain_vector(array):
        return _hash_vectors(array)
    if _is_binary_like(kind):
        return _hash_bytes(array)
    return np.fromiter((_digest(repr(value).encode("utf-8", "replace")) for value in array.to_pylist()), np.uint64)


def _is_binary_like(kind: Any) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(bool(check(kind)) for check in checks)


def _is_plain_vector(array: Any) -> bool:
    kind = array.type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_primitive(kind.value_type):
        return False
    return bool(kind.list_size > 0 and kind.value_type.bit_width % 8 == 0)


def _hash_fixed(array: Any, width: int) -> Hashes:
    raw = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    return _fold(raw.reshape(len(array), width))


def _hash_vectors(array: Any) -> Hashes:
    size = array.type.list_size
    values = array.values.slice(array.offset * size, len(array) * size)
    width = array.type.value_type.bit_width // 8
    raw = np.frombuffer(values.buffers()[1], np.uint8, len(values) * width, values.offset * width)
    if not values.null_count:
        return _fold(raw.reshape(len(array), size * width))
    # Whether a batch has a null element anywhere depends on the layout: the other rows hash as without it.
    valid = np.asarray(pc.is_valid(values))
    filled = np.where(valid[:, None], raw.reshape(len(values), width), np.uint8(0))
    hashes = _fold(filled.reshape(len(array), size * width))
    elements = valid.reshape(len(array), size)
    partial = ~elements.all(axis=1)
    hashes[partial] = _mix(hashes[partial] ^ _fold(elements[partial].astype(np.uint8)))
    return hashes


def _fold(rows: npt.NDArray[np.uint8]) -> Hashes:
    """Mix the bytes of each row, eight at a time."""
    width = rows.shape[1]
    padded = np.zeros((len(rows), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = rows
    words = padded.view(np.uint64)
    hashes = np.full(len(rows), width, np.uint64)
    with np.errstate(over="ignore"):
        for column in range(words.shape[1]):
            hashes = _mix((hashes + _GOLDEN) ^ words[:, column])
    return hashes


def _mix(value: Hashes) -> Hashes:
    value = (value ^ (value >> np.uint64(30))) * _M1
    value = (value ^ (value >> np.uint64(27))) * _M2
    return value ^ (value >> np.uint64(31))


def _hash_bytes(array: Any) -> Hashes:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    kind = np.int64 if large else np.int32
    bounds = np.frombuffer(offsets, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize).tolist()
    view = memoryview(data) if data is not None else memoryview(b"")
    return np.fromiter((_digest(view[a:b]) for a, b in itertools.pairwise(bounds)), np.uint64, len(array))


def _digest(data: Any) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")

"""Values as hashes, equal exactly when the values are; and as text that is only text."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from omnigraph_ops.lance.evidence import hash_values
from omnigraph_ops.views.view import MAX_TEXT, readable, safe, short

VALUES = {
    "bool": pa.array([True, False, None, True]),
    "int": pa.array([1, 2, None, 1], pa.int32()),
    "float": pa.array([float("nan"), 0.5, None, float("nan")]),
    "date": pa.array([datetime.date(2026, 1, 1), datetime.date(2026, 1, 2), None, datetime.date(2026, 1, 1)]),
    "decimal": pa.array([Decimal("1.5"), Decimal("2.5"), None, Decimal("1.5")]),
    "text": pa.array(["a", "", None, "a"]),
    "large text": pa.array(["a", "None", None, "a"], pa.large_string()),
    "bytes": pa.array([b"\x00", b"", None, b"\x00"]),
    "fixed bytes": pa.array([b"ab", b"cd", None, b"ab"], pa.binary(2)),
    "vector": pa.array([[1.0, 2.0], [2.0, 1.0], None, [1.0, 2.0]], pa.list_(pa.float32(), 2)),
    "vector with a hole": pa.array([[1.0, None], [2.0, 1.0], None, [1.0, None]], pa.list_(pa.float32(), 2)),
    "list": pa.array([["a"], [], None, ["a"]]),
    "struct": pa.array([{"a": 1}, {"a": None}, None, {"a": 1}]),
    "dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "order": pa.array([[1, 2], [2, 1], None, [1, 2]]),
    "large list": pa.array([["a", "b"], ["ab"], None, ["a", "b"]], pa.large_list(pa.string())),
    "lists": pa.array([[[1], [2]], [[1, 2]], None, [[1], [2]]]),
    "pairs": pa.array([[("a", 1)], [("a", 2)], None, [("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "vector of words": pa.array([["a", "b"], ["b", "a"], None, ["a", "b"]], pa.list_(pa.string(), 2)),
    "nanoseconds": pa.array([[1000], [1001], None, [1000]], pa.list_(pa.timestamp("ns"))),
    "far dates": pa.array([{"a": 2**58}, {"a": -(2**58)}, None, {"a": 2**58}], pa.struct({"a": pa.date64()})),
}


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.list_(pa.float32(), 2))], ids=str)
def test_values_in_lists_are_told_apart_by_their_bits(kind: pa.DataType) -> None:
    one, other = (np.array([bits, 0], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001))
    zeros = np.array([0.0, 0.0], np.float32), np.array([-0.0, 0.0], np.float32)
    arrays = [pa.FixedSizeListArray.from_arrays(pa.array(vector), 2) for vector in (one, other, *zeros)]
    whole = pa.concat_arrays(arrays)
    lists = whole.cast(kind) if kind.value_type == pa.float32() else pa.ListArray.from_arrays(range(5), whole)
    assert len(set(hash_values(lists).tolist())) == 4


def test_a_hole_in_one_vector_changes_no_other_hash() -> None:
    kind = pa.list_(pa.float32(), 2)
    whole, holed = pa.array([[1.0, 2.0]], kind), pa.array([[1.0, 2.0], [None, 2.0], [0.0, 2.0]], kind)
    assert hash_values(whole)[0] == hash_values(holed)[0]
    assert len(set(hash_values(holed).tolist())) == 3, "a hole is not a zero"


@pytest.mark.parametrize("name", VALUES)
def test_equal_values_hash_equal_and_others_do_not(name: str) -> None:
    first, second, null, again = hash_values(VALUES[name]).tolist()
    assert first == again
    assert len({first, second, null}) == 3


@pytest.mark.parametrize("name", VALUES)
def test_a_slice_hashes_like_the_whole(name: str) -> None:
    whole = hash_values(VALUES[name])
    assert np.array_equal(hash_values(VALUES[name].slice(1, 3)), whole[1:])


def test_nothing_hashes_to_nothing() -> None:
    for array in VALUES.values():
        assert len(hash_values(array.slice(0, 0))) == 0
    assert len(set(hash_values(pa.nulls(3)).tolist())) == 1


def test_a_null_is_no_empty_value_and_no_zero() -> None:
    assert len(set(hash_values(pa.array([0, None])).tolist())) == 2
    assert len(set(hash_values(pa.array(["", None])).tolist())) == 2
    assert len(set(hash_values(pa.array([b"", None], pa.large_binary())).tolist())) == 2


def test_wide_rows_differ_in_any_byte() -> None:
    vectors = np.zeros((200, 96), np.float32)
    for row in range(1, 97):
        vectors[row, row - 1] = 1
    array = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 96)
    assert len(set(hash_values(array).tolist())) == 97


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("null", '"null"'),
        (True, "true"),
        (1, "1"),
        (0.1, "0.1"),
        (float("nan"), "nan"),
        (b"\x01\x02", "2 bytes 0x0102"),
        (b"\x00" * 20, "20 bytes 0x0000000000000000…"),
        ([1, 2], "[1, 2]"),
        ({"a": 1, "b": None}, "{a: 1, b: null}"),
        ({"kind": 0, "position": 7, "size": 1234}, "blob of 1,234 bytes"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ("grüße 東京 🙂", '"grüße 東京 🙂"'),
    ],
)
def test_values_are_readable(value: object, text: str) -> None:
    assert readable(value) == text


def test_long_values_are_cut_and_say_how_long_they_are() -> None:
    assert readable("x" * 1000) == f'"{"x" * MAX_TEXT}… (1,000 characters)"'
    one, other = [0.5] * 768, [0.5] * 767 + [0.25]
    assert readable(one).startswith("[0.5, 0.5, 0.5, 0.5, … 768 values #")
    assert readable(one) != readable(other)


def test_what_moves_a_cursor_or_reorders_text_is_escaped() -> None:
    hostile = "\x1b[2Jgone\r\n\u202eright to left\u200b\x00"
    assert safe(hostile) == "\\x1b[2Jgone\\r\\n\\u202eright to left\\u200b\\x00"
    assert readable(hostile).isprintable()
    assert short("\n" * 500).isprintable()

"""ULIDs as the engine writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.graph.ids import encode_ulid, is_ulid, new_ulid, now_us

MILLIS, RANDOM = st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1)


def test_known_values() -> None:
    assert encode_ulid(0, 0) == "0" * 26
    assert encode_ulid(2**48 - 1, 2**80 - 1) == "7" + "Z" * 25
    # The example of the ULID specification.
    assert encode_ulid(1_469_918_176_385, 0)[:10] == "01ARYZ6S41"


@given(MILLIS, RANDOM, MILLIS, RANDOM)
def test_order_is_that_of_time_then_randomness(m1: int, r1: int, m2: int, r2: int) -> None:
    assert ((m1, r1) < (m2, r2)) == (encode_ulid(m1, r1) < encode_ulid(m2, r2))
    assert is_ulid(encode_ulid(m1, r1))


def test_fresh_ones_differ_and_carry_the_time() -> None:
    at = now_us()
    made = {new_ulid(at) for _ in range(100)}
    assert len(made) == 100
    assert {text[:10] for text in made} == {encode_ulid(at // 1000, 0)[:10]}


@pytest.mark.parametrize(
    "text", ["", "0" * 25, "0" * 27, "8" + "0" * 25, "0" * 25 + "I", "0" * 25 + "a", "0" * 26 + "\n"]
)
def test_refused(text: str) -> None:
    assert not is_ulid(text)

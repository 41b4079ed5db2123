"""The engine's duration grammar: an integer and one unit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.durations import parse_duration
from omnigraph_ops.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("90s", 90),
        ("30m", 1800),
        ("12h", 43_200),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("+5m", 300),
        (" 7d\n", 604_800),
        ("007d", 604_800),
        ("18446744073709551615s", 2**64 - 1),
    ],
)
def test_accepted(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "  ", "\t\n"])
def test_empty(text: str) -> None:
    with pytest.raises(InvalidInput, match="duration is empty"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text",
    ["1h30m", "500ms", "1.5h", "7 d", "-1d", "d", "++5", "+", "1_000s", "\u0667d", "18446744073709551616", "9" * 5000],
)
def test_invalid_number(text: str) -> None:
    with pytest.raises(InvalidInput, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["7D", "7d5", "banana", "7y", "1h30"])
def test_unknown_unit(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"unknown duration unit '.+'\. Supported: s, m, h, d, w"):
        parse_duration(text)


@given(st.text(max_size=12))
def test_any_text_is_seconds_or_one_sentence(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except InvalidInput as error:
        assert "duration" in str(error)

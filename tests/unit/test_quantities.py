"""The grammar of durations: an integer and one unit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.quantities import DURATION, FROM_AN_HOUR, count, duration, exact_bytes, parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("90s", 90),
        ("30m", 1800),
        ("12h", 43_200),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("+5m", 300),
        (" 7d\n", 604_800),
        ("007d", 604_800),
        ("365000d", 31_536_000_000),
        ("31536000000s", 31_536_000_000),
    ],
)
def test_accepted(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds
    assert re.search(DURATION, text)
    assert parse_duration(duration(seconds)) == seconds


@given(st.integers(0, 50_000), st.sampled_from("smhdw"), st.sampled_from(["", "+", "00", " +0"]))
def test_a_form_knows_what_is_at_least_an_hour(number: int, unit: str, before: str) -> None:
    text = f"{before}{number}{unit}"
    assert bool(re.search(FROM_AN_HOUR, text)) is (parse_duration(text) >= 3600)


@pytest.mark.parametrize(("text", "digits"), [("7", "7"), ("0", "0"), (" +5 ", "5")])
def test_a_number_alone_is_no_duration(text: str, digits: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_duration(text)
    assert f"has no unit: write {digits}d for days, {digits}s for seconds" in str(refused.value)
    assert not re.search(DURATION, text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0d"), (90, "90s"), (5400, "90m"), (7200, "2h"), (86_400, "1d"), (1_209_600, "14d")]
)
def test_seconds_as_a_person_writes_them(seconds: int, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0"), (1, "1"), (1024, "1KiB"), (1536 * 1024**2, "1536MiB"), (20 * 1024**3, "20GiB")),
        *((5 * 10**8, "500MB"), (4 * 10**9, "4GB"), (10**12, "1TB"), (1024**4, "1TiB"), (1_500_000, "1500kB")),
    ],
)
def test_bytes_as_a_person_writes_them(count: int, text: str) -> None:
    assert exact_bytes(count) == text
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((0, "table"), "0 tables"),
        ((1, "table"), "1 table"),
        ((1200, "more version"), "1,200 more versions"),
        ((1, "index", "indexes"), "1 index"),
        ((2, "index", "indexes"), "2 indexes"),
    ],
)
def test_so_many_of_something(words: tuple[int, str] | tuple[int, str, str], text: str) -> None:
    assert count(*words) == text


@pytest.mark.parametrize("text", ["", "  ", "\t\n"])
def test_empty(text: str) -> None:
    with pytest.raises(InvalidInput, match="duration is empty"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1h30m", "500ms", "1.5h", "7 d", "-1d", "d", "++5", "+", "1_000s", "\u0667d"])
def test_invalid_number(text: str) -> None:
    with pytest.raises(InvalidInput, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["365001d", "31536000001s", "52143w", "99999999999999d", "18446744073709551616s", f"{'9' * 5000}d"]
)
def test_what_is_longer_than_a_thousand_years_is_a_slip(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"is longer than 365000d, about 1,000 years$") as refused:
        parse_duration(text)
    assert len(str(refused.value)) < 120


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

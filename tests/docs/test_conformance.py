"""tests/docs/conformance.yaml names tests that exist, lists every item once, and its page counts truthfully."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "tests/docs/conformance.yaml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/reference/conformance.md").read_text(encoding="utf-8")
ENGINES: list[dict[str, Any]] = yaml.safe_load(TEXT)
TEST = re.compile(r"(tests/[\w/.]+\.py)::(\w+)")
COUNTS = re.compile(
    r"^(\d+) items: (\d+) covered, (\d+) covered in part, (\d+) not applicable, (\d+) not covered\.$", re.MULTILINE
)
# Items per section of the checklist of each stamp.
CHECKLIST = {
    "Stamp 3": {"O": 19, "R": 7, "K": 13, "V": 25, "P": 7, "S": 5, "X": 10},
    "Stamp 6": {"C": 13, "R": 7, "K": 13, "V": 20, "S": 2, "L": 4, "G": 4, "X": 8},
}
STATES = ("covered", "partly", "not applicable", "not covered")


def items(stamp: str) -> list[dict[str, Any]]:
    """Every item of one stamp, in the order of the file."""
    (engine,) = (engine for engine in ENGINES if engine["engine"].startswith(f"{stamp} "))
    return [item for section in engine["sections"] for item in section["items"]]


ITEMS = [item for stamp in CHECKLIST for item in items(stamp)]


@cache
def names_in(file: str) -> frozenset[str]:
    """Test functions that a file defines."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))


@pytest.mark.parametrize(("file", "name"), sorted(set(TEST.findall(TEXT))))
def test_every_named_test_exists(file: str, name: str) -> None:
    assert (ROOT / file).is_file()
    assert name in names_in(file)


def test_nothing_that_looks_like_a_test_escapes_the_check() -> None:
    assert len(TEST.findall(TEXT)) == TEXT.count("::")
    assert [test for item in ITEMS for test in item.get("tests", ()) if not TEST.fullmatch(test)] == []


@pytest.mark.parametrize("stamp", CHECKLIST)
def test_every_item_is_listed_once_and_in_order(stamp: str) -> None:
    expected = [f"{letter}{n}" for letter, count in CHECKLIST[stamp].items() for n in range(1, count + 1)]
    assert [item["id"] for item in items(stamp)] == expected


def test_every_item_has_a_state_and_nothing_that_the_page_leaves_out() -> None:
    assert [item for item in ITEMS if item["state"] not in STATES] == []
    assert {key for item in ITEMS for key in item} == {"id", "behaviour", "state", "tests", "note"}


@pytest.mark.parametrize("stamp", CHECKLIST)
def test_what_counts_as_covered_names_a_test(stamp: str) -> None:
    claims = [item for item in items(stamp) if item["state"] in {"covered", "partly"}]
    assert [item["id"] for item in claims if not item.get("tests")] == []


def test_what_is_not_covered_whole_says_what_is_left_open() -> None:
    assert [item["id"] for item in ITEMS if item["state"] != "covered" and not item.get("note")] == []


def test_the_counts_are_true() -> None:
    states = Counter(item["state"] for item in ITEMS)
    (stated,) = COUNTS.findall(PAGE)
    assert tuple(map(int, stated)) == (states.total(), *(states[state] for state in STATES))
    assert len(re.findall(r"^\| [A-Z]\d+ \|", PAGE, re.MULTILINE)) == states.total()

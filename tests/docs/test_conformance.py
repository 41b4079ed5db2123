"""docs/conformance.md names tests that exist, lists every item once, and counts truthfully."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/conformance.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([A-Z]\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/.]+\.py)::(\w+)`")
COUNTS = re.compile(
    r"^(\d+) items: (\d+) covered, (\d+) covered in part, (\d+) not applicable, (\d+) not covered\.$", re.MULTILINE
)
# Items per section of the checklist of each stamp.
CHECKLIST = {
    "Stamp 3": {"O": 19, "R": 7, "K": 13, "V": 25, "P": 7, "S": 5, "X": 10},
    "Stamp 6": {"C": 13, "R": 7, "K": 13, "V": 20, "S": 2, "L": 4, "G": 4, "X": 8},
}
# How a cell begins where tests do not cover the whole item.
REST = ("partly: ", "not applicable: ", "not covered (")


def rows(section: str) -> list[tuple[str, str]]:
    """Id and last cell of every row of one stamp."""
    return ROW.findall(TEXT.partition(f"\n## {section} ")[2].partition("\n## ")[0])


def kind_of(cell: str) -> str:
    return next((start for start in REST if cell.startswith(start)), "covered")


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


@pytest.mark.parametrize("section", CHECKLIST)
def test_every_item_is_listed_once_and_in_order(section: str) -> None:
    expected = [f"{letter}{n}" for letter, count in CHECKLIST[section].items() for n in range(1, count + 1)]
    assert [item for item, _ in rows(section)] == expected


@pytest.mark.parametrize("section", CHECKLIST)
def test_what_counts_as_covered_names_a_test_first(section: str) -> None:
    claims = [(item, cell) for item, cell in rows(section) if kind_of(cell) in {"covered", REST[0]}]
    bare = [item for item, cell in claims if not TEST.match(cell.removeprefix(REST[0]))]
    assert bare == []


def test_the_counts_are_true() -> None:
    kinds = Counter(kind_of(cell) for section in CHECKLIST for _, cell in rows(section))
    (stated,) = COUNTS.findall(TEXT)
    assert tuple(map(int, stated)) == (kinds.total(), kinds["covered"], *(kinds[start] for start in REST))

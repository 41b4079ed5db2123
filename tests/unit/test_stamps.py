"""Differences between engine generations stay in `graph/`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "omnigraph_ops"


@pytest.mark.parametrize("folder", ["stages", "coordination", "outcomes", "cli"])
def test_nobody_above_the_format_asks_which_stamp_a_graph_has(folder: str) -> None:
    files = sorted((PACKAGE / folder).rglob("*.py"))
    assert files
    for path in files:
        compared = [
            node
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Compare) and any(_is_stamp(side) for side in [node.left, *node.comparators])
        ]
        assert compared == [], f"{path} compares a stamp"


def _is_stamp(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "stamp"

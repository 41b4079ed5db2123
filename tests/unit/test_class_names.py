"""No two classes share a name: a reader who meets one knows which it is."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_two_classes_share_a_name() -> None:
    modules = [path for folder in ("omnigraph_ops", "plugins") for path in (ROOT / folder).rglob("*.py")]
    names = Counter(
        node.name
        for path in modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == set()

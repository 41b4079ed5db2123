"""Who may import what: dags -> plugins -> omnigraph_ops, and heavy libraries only at the edges."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "omnigraph_ops"
HEAVY = {"lance", "pyspark", "pyarrow", "pandas", "numpy"}
STAGES = ("stages", "coordination", "cli")


def modules(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)
    assert files, f"{folder} has no modules"
    return files


def imported(path: Path, *, everywhere: bool = True) -> set[str]:
    """Top-level names of the packages a file imports, at module level or anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if everywhere else _module_level(tree.body)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test):
            yield from _module_level(node.body)
        if isinstance(node, ast.Try):
            yield from _module_level(node.body)


def inside(path: Path, *folders: str) -> bool:
    return path.relative_to(PACKAGE).parts[0] in folders


def test_the_package_knows_no_airflow() -> None:
    assert [p for p in modules(PACKAGE) if imported(p) & {"airflow", "omnigraph_airflow"}] == []


def test_only_lance_and_spark_import_pylance() -> None:
    guilty = [p for p in modules(PACKAGE) if "lance" in imported(p) and not inside(p, "lance", "spark", "demo")]
    assert guilty == []


def test_only_the_spark_package_imports_pyspark() -> None:
    assert [p for p in modules(PACKAGE) if "pyspark" in imported(p) and not inside(p, "spark")] == []


def test_arrow_stays_in_the_format_and_the_edges() -> None:
    allowed = ("lance", "storage", "graph", "demo", "spark")
    assert [p for p in modules(PACKAGE) if "pyarrow" in imported(p) and not inside(p, *allowed)] == []


def test_object_stores_stay_at_their_edge() -> None:
    assert [p for p in modules(PACKAGE) if imported(p) & {"s3fs", "fsspec"} and not inside(p, "storage")] == []


@pytest.mark.parametrize("folder", ["dags", "plugins"])
def test_what_airflow_parses_is_light(folder: str) -> None:
    guilty = [p for p in modules(ROOT / folder) if imported(p, everywhere=False) & HEAVY]
    assert guilty == []


def test_the_format_knows_no_stage() -> None:
    stages = {f"omnigraph_ops.{name.removesuffix('.py')}" for name in STAGES}
    for path in modules(PACKAGE / "graph"):
        found = {
            n.module or ""
            for n in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(n, ast.ImportFrom)
        }
        assert not any(module.startswith(tuple(stages)) for module in found), path


def test_no_stage_asks_which_stamp_it_has() -> None:
    for name in STAGES:
        target = PACKAGE / name
        for path in [target] if target.is_file() else modules(target):
            compared = [
                node
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Compare) and any(_is_stamp(side) for side in [node.left, *node.comparators])
            ]
            assert compared == [], f"{path} compares a stamp"


def _is_stamp(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "stamp"

"""The engine's `nearest` finds as many rows after maintenance as before, whatever was deleted and whoever compacted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.interop.engine import Engine, engine

pytestmark = pytest.mark.interop
SCHEMA = "node Doc {\n  num: String @key\n  old: Bool\n  body: String? @index\n  vec: Vector(4)? @index\n}\n"
ROWS, LOADS = 900, 3
ORDERS = ("nearest($d.vec, $v)", 'bm25($d.body, "lance")', 'rrf(nearest($d.vec, $v), bm25($d.body, "lance"))')


def document(number: int) -> dict[str, object]:
    """Every fourth is old, and the best answer to each of the queries."""
    old = number % 4 == 0
    body = f"{'lance lance lance' if old else 'lance other words here'} w{number}"
    vector = [1.0 + (0 if old else 1) + number % 10 / 100, number / 1e6, 0, 0]
    return {"type": "Doc", "data": {"num": str(number), "old": old, "body": body, "vec": vector}}


def found(oracle: Engine, graph: Path) -> list[int]:
    """How many rows each query finds of ten."""
    numbers = []
    for order in ORDERS:
        query = f"query near($v: Vector(4)) {{ match {{ $d: Doc }} return {{ $d.num }} order {{ {order} }} limit 10 }}"
        done = oracle.run("query", "near", "--store", str(graph), "--json", "-e", query, "--params", PARAMS)
        said = json.loads(done.stdout)
        numbers.append(len(said["rows"] if isinstance(said, dict) else said))
    return numbers


PARAMS = json.dumps({"v": [1, 0, 0, 0]})


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("compacted_by", ["us", "the engine"])
def test_deleted_rows_take_no_place_among_the_nearest(tmp_path: Path, stamp: int, compacted_by: str) -> None:
    oracle, root = engine(stamp), tmp_path / "g.omni"
    oracle.init(root, SCHEMA)
    for load in range(LOADS):
        oracle.load(root, [document(n) for n in range(load, ROWS, LOADS)])
    graph = open_graph(str(root))
    assert not optimize_all(graph).failed
    oracle.run("mutate", "--store", str(root), "-e", "query m() { delete Doc where old = true }", "--quiet")
    assert found(oracle, root) == [10, 10, 10]
    if compacted_by == "the engine":
        oracle.optimize(root)
        assert found(oracle, root)[0] < 10, "the engine's own optimize loses them"
    assert not optimize_all(graph).failed
    assert found(oracle, root) == [10, 10, 10]
    oracle.load(root, [document(n) for n in range(ROWS, ROWS + 30)])
    oracle.optimize(root)
    assert found(oracle, root) == [10, 10, 10]

"""Indexes whose files are gone: the engine's queries fail, until optimize has built the indexes anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.interop.engine import engine
from tests.interop.test_answers import DIMENSION, assert_kept, history, look

pytestmark = pytest.mark.interop
NEW: list[dict[str, object]] = [
    {"type": "Person", "data": {"name": "new", "age": 1, "bio": "nobody asks for it"}},
    {"type": "Project", "data": {"code": "far", "face": [99.0] * DIMENSION}},
]


@pytest.mark.parametrize("stamp", [3, 6])
def test_the_engine_answers_as_before_from_indexes_that_were_built_anew(tmp_path: Path, stamp: int) -> None:
    oracle, graph = engine(stamp), tmp_path / "g.omni"
    history(oracle, graph)
    optimize_all(open_graph(str(graph)))
    whole = look(oracle, graph)
    lost = [path for path in graph.glob("*/*/_indices/*/*") if path.is_file()]
    for path in lost:
        path.unlink()
    assert any(name.startswith("error:") for names in look(oracle, graph).found.values() for name in names)

    report = optimize_all(open_graph(str(graph)))
    assert [table.error for table in report.tables if table.error] == []
    assert_kept(whole, look(oracle, graph), "indexes built anew")
    oracle.load(graph, NEW)
    oracle.optimize(graph)
    assert_kept(whole, look(oracle, graph), "a load and the engine's own optimize")

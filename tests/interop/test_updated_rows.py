"""Rows that were updated and compacted are found by their key: they are updated again, and never inserted twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from tests.interop.engine import Engine, engine, people

pytestmark = pytest.mark.interop


def changed(subject: Engine, graph: Path, *numbers: int, bio: str) -> None:
    rows = [row for n in numbers for row in people(n, 1, bio=bio)]
    subject.load(graph, rows, mode="merge")


def persons(subject: Engine, graph: Path) -> list[dict[str, object]]:
    rows = [json.loads(row) for row in subject.export(graph)]
    return [row["data"] for row in rows if row.get("type") == "Person"]


def optimized(graph: Path) -> None:
    assert not optimize_all(open_graph(str(graph), Settings())).failed


@pytest.mark.parametrize("stamp", [3, 6])
def test_a_merge_by_key_finds_updated_rows_after_a_compaction(stamp: int, tmp_path: Path) -> None:
    subject, graph = engine(stamp), tmp_path / "g.omni"
    subject.init(graph)
    subject.load(graph, people(0, 15))
    changed(subject, graph, 20, bio="one")
    changed(subject, graph, 21, bio="another")
    changed(subject, graph, 3, 5, 9, 22, bio="near")
    optimized(graph)
    subject.load(graph, people(30, 2))
    before = persons(subject, graph)
    changed(subject, graph, 9, 20, 21, 22, bio="again")
    after = persons(subject, graph)
    assert len(after) == len(before)
    assert {row["name"] for row in after if row not in before} == {"p9", "p20", "p21", "p22"}

"""Rows below a cut, as an engine is told of them."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.lance.rows import Clock, columns_below, ends_besides, left_with_fewer

FIRST_YEAR = -719_162
"""Days from 1970 to the first day that Python has."""


def test_dates_and_times_are_text_also_those_that_python_does_not_have(tmp_path: Path) -> None:
    days = pa.array([FIRST_YEAR - 366, 0, 20_000], pa.date32())
    times = pa.array([(FIRST_YEAR - 366) * 86_400_000, 1_001, 20_000 * 86_400_000], pa.date64())
    table = pa.table({"n": [1, 2, 3], "day": days, "at": times, "name": ["a", None, "c"]})
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"))
    below = columns_below(dataset, Clock(column="n", nanoseconds=1, sql_type=None), 3, ("day", "at", "name"))
    assert below.to_pylist() == [
        {"day": "0000-01-01", "at": "0000-01-01T00:00:00.000Z", "name": "a"},
        {"day": "1970-01-01", "at": "1970-01-01T00:00:01.001Z", "name": None},
    ]


def test_the_ends_of_edges_besides_some(tmp_path: Path) -> None:
    table = pa.table({"id": ["1", "2", "3"], "src": ["a", "b", "c"], "dst": ["b", "c", "d"]})
    dataset = lance.write_dataset(table, str(tmp_path / "e.lance"))
    found = ends_besides(dataset, ("src", "dst"), pa.array(["a", "b", "d"]), pa.array(["1", "3"]))
    assert found.to_pylist() == ["b"]


@pytest.mark.parametrize(
    ("edges", "nodes", "least", "node"),
    [
        (["1"], None, 1, None),
        (["1"], None, 2, "a"),
        (["1", "2"], None, 1, "a"),
        (["1", "2"], ["a"], 1, None),
        (["1", "2", "3"], ["a"], 1, "b"),
        ([], None, 1, None),
    ],
)
def test_a_node_that_would_have_too_few_edges(
    tmp_path: Path, edges: list[str], nodes: list[str] | None, least: int, node: str | None
) -> None:
    """Of nodes that lose no edge nothing is said, as few as they have: c has one."""
    table = pa.table({"id": ["1", "2", "3", "4"], "src": ["a", "a", "b", "c"]})
    dataset = lance.write_dataset(table, str(tmp_path / "e.lance"))
    going = None if nodes is None else pa.array(nodes)
    assert left_with_fewer(dataset, pa.array(edges, pa.string()), going, least) == node

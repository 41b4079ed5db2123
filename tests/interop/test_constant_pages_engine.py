"""One long value among nulls: merged, the engine could not read the table, so its fragments stay apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.models.optimize import SkipReason
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.stages.recovery.check import check
from tests.interop.engine import engine

pytestmark = pytest.mark.interop
SCHEMA = "node Note {\n    name: String @key\n    text: String?\n}\n"
LOADS, ROWS, VALUE = 6, 8_000, "h" * 60_000
"""Of 2.9 GB, were each null as long as the value."""


def rows(number: int) -> list[dict[str, object]]:
    """One load; of all rows the last one has a text."""
    found: list[dict[str, object]] = [{"name": f"n{number}_{n}"} for n in range(ROWS)]
    if number == LOADS - 1:
        found[-1]["text"] = VALUE
    return [{"type": "Note", "data": data} for data in found]


@pytest.mark.parametrize("stamp", [3, 6])
@pytest.mark.parametrize("small", [0, 10**9], ids=["rounds", "at once"])
def test_the_engine_reads_what_it_read(tmp_path: Path, stamp: int, small: int) -> None:
    oracle, root = engine(stamp), tmp_path / "graph"
    oracle.init(root, SCHEMA)
    for number in range(LOADS):
        oracle.load(root, rows(number))
    before, graph = oracle.export(root), open_graph(str(root), Settings(small_table_bytes=small))
    stats = {table.table_key: table for table in optimize_all(graph).tables}["node:Note"]
    assert (stats.skipped, stats.error, stats.fragments_added) == (SkipReason.UNREADABLE, None, 0)
    assert (oracle.export(root), check(graph).status) == (before, CheckStatus.CLEAN)

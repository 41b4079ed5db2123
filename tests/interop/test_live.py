"""The engine writes while this tool maintains: every accepted row stays, and both end converged."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models import CheckStatus
from omnigraph_ops.optimize import optimize_all, plan_optimize
from omnigraph_ops.recovery import check, recover
from omnigraph_ops.repair import preview_repair
from omnigraph_ops.settings import Settings
from tests.crash.harness_state import check_lineage
from tests.interop.engine import Engine, engine, people

pytestmark = pytest.mark.interop
LOADS, PER_LOAD = 10, 6


class Writer(threading.Thread):
    """Loads one batch after the other with the engine's command line; notes what the engine accepted."""

    def __init__(self, oracle: Engine, graph: Path) -> None:
        super().__init__(daemon=True)
        self.oracle, self.graph = oracle, graph
        self.accepted: set[str] = set()
        self.refused: list[str] = []

    def run(self) -> None:
        for number in range(1, LOADS + 1):
            start = number * 100
            data = self.graph.with_suffix(f".{number}.jsonl")
            data.write_text("".join(json.dumps(row) + "\n" for row in people(start, PER_LOAD)))
            done = self.oracle.run(
                "load", "--data", str(data), "--mode", "append", "--quiet", str(self.graph), check=False
            )
            if done.returncode == 0:
                self.accepted |= {f"p{n}" for n in range(start, start + PER_LOAD)}
            else:
                self.refused.append(done.stderr)


@pytest.mark.parametrize("stamp", (3, 6))
@pytest.mark.parametrize("small_table_bytes", [10**9, 0], ids=["one", "two"])
def test_a_live_writer_loses_nothing(tmp_path: Path, stamp: int, small_table_bytes: int) -> None:
    oracle, graph = engine(stamp), tmp_path / "g.omni"
    oracle.init(graph)
    for load in range(3):
        oracle.load(graph, people(load * 10, 10))
    settings = Settings(small_table_bytes=small_table_bytes)
    writer = Writer(oracle, graph)
    writer.start()
    while writer.is_alive():
        try:
            optimize_all(open_graph(str(graph), settings))
        except OpsError:
            continue  # refused before its first effect: the writer was in its window
    writer.join()
    opened = open_graph(str(graph), settings)
    recover(opened, grace_seconds=0)
    if check(opened).status is not CheckStatus.CLEAN:
        oracle.optimize(graph)  # a read-write open decides what is the engine's
    assert check(open_graph(str(graph))).status is CheckStatus.CLEAN
    assert [r.table_key for r in preview_repair(open_graph(str(graph))).drifted] == []
    names = {row["data"]["name"] for row in map(json.loads, oracle.export(graph)) if row.get("type") == "Person"}
    assert {f"p{n}" for n in range(30)} | writer.accepted <= names
    assert not optimize_all(open_graph(str(graph), Settings(exclusive=True))).failed
    assert plan_optimize(open_graph(str(graph))).productive() == ()
    check_lineage(opened, None)

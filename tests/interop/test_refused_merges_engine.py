"""A load of rows that a branch has already, then a merge: engine 0.9.0 opens that graph only after `recover`."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.harness_state import QUICK
from tests.interop.engine import engine, people

pytestmark = pytest.mark.interop
REFUSED = "already exists for identity"


def test_the_merge_is_rolled_back_and_the_engine_goes_on(tmp_path: Path) -> None:
    oracle, root = engine(6), tmp_path / "graph"
    oracle.init(root)
    oracle.load(root, people(0, 6))
    oracle.run("branch", "create", "--uri", str(root), "side")
    oracle.load(root, people(0, 6), mode="merge", branch="side")
    rows, on_side = oracle.export(root), oracle.export(root, "side")
    merge = ("branch", "merge", "--uri", str(root), "side")
    assert REFUSED in oracle.run(*merge, check=False).stderr
    assert REFUSED in oracle.run("export", "--store", str(root), check=False).stderr
    graph = open_graph(str(root), QUICK)
    assert check(graph).status is CheckStatus.PENDING
    (outcome,) = recover(graph, grace_seconds=0).outcomes
    assert (outcome.action, check(graph).status) == ("rolled_back", CheckStatus.CLEAN)
    assert (oracle.export(root), oracle.export(root, "side")) == (rows, on_side)
    oracle.load(root, people(40, 2), mode="merge")
    oracle.run(*merge)
    assert set(rows) < set(oracle.export(root))
    assert all(table["error"] is None for table in oracle.optimize(root).values() if "error" in table)

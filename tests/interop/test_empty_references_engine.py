"""An empty branch reference, as a full disk leaves it, stops the engine; after `recover` it makes that branch again."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.harness_state import QUICK
from tests.interop.engine import Engine, engine, people

pytestmark = pytest.mark.interop
SIDE = "side"


def _made(root: Path, stamp: int) -> tuple[Engine, Path]:
    """A graph, and where the reference of a table to its branch `side` was, which the engine has deleted."""
    oracle = engine(stamp)
    oracle.init(root)
    oracle.load(root, people(0, 6))
    oracle.run("branch", "create", "--uri", str(root), SIDE)
    oracle.load(root, people(20, 2), branch=SIDE)
    reference, *_ = sorted(root.glob(f"nodes/*/_refs/branches/{SIDE}.json"))
    oracle.run("branch", "delete", "--uri", str(root), "--yes", SIDE)
    oracle.run("branch", "create", "--uri", str(root), SIDE)
    return oracle, reference


@pytest.mark.parametrize("stamp", [3, 6])
def test_the_engine_makes_the_branch_again(tmp_path: Path, stamp: int) -> None:
    root = tmp_path / "graph"
    oracle, reference = _made(root, stamp)
    rows = oracle.export(root)
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_bytes(b"")
    assert oracle.export(root) == rows, "one of a table stops no open by itself"
    with pytest.raises(AssertionError, match=r"EOF while parsing|branch side already exists"):
        oracle.load(root, people(20, 2), branch=SIDE)
    if stamp == 6:  # the sidecar of that load is looked at by every open, for the branches of its tables
        with pytest.raises(AssertionError, match="EOF while parsing"):
            oracle.load(root, people(40, 2))
    graph = open_graph(str(root), QUICK)
    found = check(graph)
    assert not found.status.is_settled
    assert any(str(reference.relative_to(root)) in text and "omnigraph-ops recover" in text for text in found.advice)
    assert not any("open the graph read-write" in text for text in found.advice)
    recover(graph, grace_seconds=0)
    assert not reference.exists()
    oracle.load(root, people(20, 2), branch=SIDE)
    assert (oracle.export(root), check(graph).status) == (rows, CheckStatus.CLEAN)
    oracle.run("branch", "merge", "--uri", str(root), SIDE)
    oracle.run("branch", "delete", "--uri", str(root), "--yes", SIDE)
    assert (len(oracle.export(root)) > len(rows), check(graph).status) == (True, CheckStatus.CLEAN)

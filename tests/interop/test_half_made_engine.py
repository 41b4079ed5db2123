"""Branches that a killed engine 0.7.2 made or deleted by half stop it; after `recover` it makes them again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph_ops.graph.layout import COMMITS_DIR, MANIFEST_DIR, SCHEMA_APPLY_LOCK, branch_reference
from omnigraph_ops.graph.opening import open_graph
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.orphans.apply import apply_orphans
from omnigraph_ops.stages.orphans.plan import plan_orphans
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from tests.crash.harness_state import QUICK
from tests.interop.engine import EVOLVED_SCHEMA, Engine, engine, people
from tests.support.orphans import age

pytestmark = pytest.mark.interop
SIDE = "side"


def _unrefer(root: Path, dataset: str) -> None:
    root.joinpath(dataset, "_refs", "branches", f"{SIDE}.json").unlink()


def _made_by_half(root: Path) -> None:
    _unrefer(root, COMMITS_DIR)
    shutil.rmtree(root / COMMITS_DIR / "tree" / SIDE)


def _deleted_but_for_the_files(root: Path) -> None:
    _unrefer(root, MANIFEST_DIR)


def _made(tmp_path: Path) -> tuple[Engine, Path]:
    oracle, root = engine(3), tmp_path / "graph"
    oracle.init(root)
    oracle.load(root, people(0, 6))
    oracle.run("branch", "create", "--uri", str(root), SIDE)
    return oracle, root


@pytest.mark.parametrize("act", [_made_by_half, _deleted_but_for_the_files])
def test_a_branch_can_be_made_again(tmp_path: Path, act: Callable[[Path], None]) -> None:
    oracle, root = _made(tmp_path)
    act(root)
    rows = oracle.export(root)
    refused = [
        oracle.run("branch", verb, "--uri", str(root), SIDE, check=False).returncode for verb in ("delete", "create")
    ]
    assert all(refused)
    graph = open_graph(str(root), QUICK)
    assert check(graph).status is CheckStatus.PENDING
    assert recover(graph, grace_seconds=0).status is CheckStatus.CLEAN
    oracle.run("branch", "create", "--uri", str(root), SIDE)
    oracle.load(root, people(20, 2), mode="merge", branch=SIDE)
    assert oracle.export(root) == rows
    oracle.run("branch", "merge", "--uri", str(root), SIDE)
    oracle.run("branch", "delete", "--uri", str(root), SIDE)
    assert (len(oracle.export(root)) > len(rows), check(graph).status) == (True, CheckStatus.CLEAN)


def test_a_branch_below_main_goes_without_the_graph(tmp_path: Path) -> None:
    """The engine accepts the name, and Lance deletes all of the graph manifest with it."""
    oracle, root, name = engine(3), tmp_path / "graph", "main/x"
    oracle.init(root)
    oracle.load(root, people(0, 6))
    oracle.run("branch", "create", "--uri", str(root), name)
    (root / branch_reference(COMMITS_DIR, name)).unlink()
    shutil.rmtree(root / COMMITS_DIR / "tree" / "main")
    rows, graph = oracle.export(root), open_graph(str(root), QUICK)
    assert recover(graph, grace_seconds=0).status is CheckStatus.CLEAN
    assert (oracle.export(root), graph.branches(), check(graph).advice) == (rows, (), ())
    oracle.run("branch", "create", "--uri", str(root), name)
    oracle.load(root, people(20, 2), mode="merge", branch=name)
    oracle.run("branch", "merge", "--uri", str(root), name)
    assert len(oracle.export(root)) > len(rows)


def test_a_schema_is_applied_again(tmp_path: Path) -> None:
    """The lock of a schema apply that was killed as it removed it is a branch, too."""
    oracle, root = _made(tmp_path)
    tree = root / MANIFEST_DIR / "tree"
    shutil.copytree(tree / SIDE, tree / SCHEMA_APPLY_LOCK)
    with pytest.raises(AssertionError, match="exit 1"):
        oracle.apply_schema(root, EVOLVED_SCHEMA)
    graph = open_graph(str(root), QUICK)
    assert [o.action for o in recover(graph, grace_seconds=0).outcomes] == ["rolled_back"]
    oracle.run("branch", "delete", "--uri", str(root), SIDE)
    oracle.apply_schema(root, EVOLVED_SCHEMA)


def test_the_engine_works_on_with_a_commit_graph_that_lacks_its_reference(tmp_path: Path) -> None:
    """It was killed between the files of the branch and the reference to them; nothing tells that there is a fault."""
    oracle, root = _made(tmp_path)
    _unrefer(root, COMMITS_DIR)
    oracle.load(root, people(20, 2), mode="merge", branch=SIDE)
    rows = oracle.export(root, SIDE)
    age(root)
    graph = open_graph(str(root), QUICK)
    assert apply_orphans(graph, plan_orphans(graph)).files_removed == 0
    assert oracle.export(root, SIDE) == rows
    assert [o.action for o in recover(graph, grace_seconds=0).outcomes] == ["rolled_forward"]
    assert (check(graph).advice, oracle.export(root, SIDE)) == ((), rows)
    oracle.run("branch", "create", "--uri", str(root), "--from", SIDE, "of-side")
    oracle.load(root, people(40, 2), mode="merge", branch=SIDE)
    rows = oracle.export(root, SIDE)
    oracle.run("branch", "delete", "--uri", str(root), "of-side")
    oracle.run("branch", "merge", "--uri", str(root), SIDE)
    oracle.run("branch", "delete", "--uri", str(root), SIDE)
    assert (oracle.export(root), check(graph).advice) == (rows, ())

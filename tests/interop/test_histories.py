"""Alternating histories of the real engine and this tool: neither may notice the other."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.models.optimize import OptimizeDecision
from omnigraph_ops.stages.cleanup.apply import cleanup_all
from omnigraph_ops.stages.cleanup.plan import plan_cleanup
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize
from omnigraph_ops.stages.repair.run import apply_repair, preview_repair
from tests.interop.engine import EVOLVED_SCHEMA, Engine, engine, people

pytestmark = pytest.mark.interop
STAMPS = (3, 6)
EXCLUSIVE = Settings(exclusive=True)


def tool_optimize(graph: Path, settings: Settings = EXCLUSIVE) -> None:
    report = optimize_all(open_graph(str(graph), settings))
    assert not report.failed, report.failed
    again = plan_optimize(open_graph(str(graph)))
    assert [t.table_key for t in again.tables if t.decision is OptimizeDecision.OPTIMIZE] == []


def assert_engine_idle(oracle: Engine, graph: Path) -> None:
    committed = {key: t for key, t in oracle.optimize(graph).items() if t["committed"]}
    assert committed == {}


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("settings", [EXCLUSIVE, Settings(exclusive=True, small_table_bytes=0)], ids=["one", "two"])
def test_engine_has_nothing_left_to_do(tmp_path: Path, stamp: int, settings: Settings) -> None:
    oracle, graph = engine(stamp), tmp_path / "g.omni"
    oracle.init(graph)
    for load in range(4):
        oracle.load(graph, people(load * 20, 20))
    oracle.load(graph, people(10, 5, bio="moved to rust"), mode="merge")
    oracle.delete_person(graph, "p3")
    rows = oracle.export(graph)
    tool_optimize(graph, settings)
    assert oracle.export(graph) == rows
    assert_engine_idle(oracle, graph)
    oracle.load(graph, people(500, 10))
    assert len(oracle.export(graph)) > len(rows)


@pytest.mark.parametrize("stamp", STAMPS)
def test_engine_works_on_demo_graphs(tmp_path: Path, stamp: int) -> None:
    oracle, graph = engine(stamp), tmp_path / "demo.omni"
    write_demo_graph(
        str(graph),
        DemoSpec(stamp=stamp, loads=3, rows=40, deletes=3, updates=4, lazy_branches=1, written_branches=1),
    )
    branches = ("main", "lazy-1", "review/hires-1")
    rows = {b: oracle.export(graph, b) for b in branches}
    tool_optimize(graph)
    assert {b: oracle.export(graph, b) for b in branches} == rows
    assert_engine_idle(oracle, graph)


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("seed", range(4))
def test_alternating_history(tmp_path: Path, stamp: int, seed: int) -> None:
    """Loads, merges, deletes, branches, schema changes, optimize by either, repair and cleanup by us."""
    oracle, graph = engine(stamp), tmp_path / "g.omni"
    oracle.init(graph)
    rng, serial = random.Random(seed), 0
    branches: list[str] = []
    evolved = False
    for step in range(10):
        move = rng.choice(["load", "load", "merge", "delete", "tool", "engine", "branch", "write", "schema", "clean"])
        if move == "load" or step == 0:
            oracle.load(graph, people(serial, 10))
            serial += 10
        elif move == "merge":
            oracle.load(graph, people(0, 4, bio=f"changed in step {step}"), mode="merge")
        elif move == "delete":
            oracle.delete_person(graph, f"p{rng.randrange(serial)}")
        elif move == "branch":
            oracle.run("branch", "create", "--uri", str(graph), f"b{step}")
            branches.append(f"b{step}")
        elif move == "write" and branches:
            oracle.load(graph, people(1000 + 10 * step, 3), branch=rng.choice(branches))
        elif move == "schema" and not evolved and not branches:
            source = tmp_path / "evolved.pg"
            source.write_text(EVOLVED_SCHEMA)
            oracle.run("schema", "apply", "--schema", str(source), "--store", str(graph))
            evolved = True
        else:
            _maintain(oracle, graph, move, branches)
    _maintain(oracle, graph, "tool", branches)
    assert_engine_idle(oracle, graph)


def _maintain(oracle: Engine, graph: Path, move: str, branches: list[str]) -> None:
    everything = ["main", *branches]
    _heal(graph)
    rows = {b: oracle.export(graph, b) for b in everything}
    if move == "engine":
        oracle.run("optimize", "--json", str(graph), check=False)
    elif move == "clean":
        opened = open_graph(str(graph))
        report = cleanup_all(opened, plan_cleanup(opened, RetentionPolicy(keep_versions=2)))
        assert not report.failed, report.failed
    else:
        tool_optimize(graph)
    assert {b: oracle.export(graph, b) for b in everything} == rows


def _heal(graph: Path) -> None:
    """0.7.2 leaves deletes that matched nothing unpublished: a person would force them."""
    opened = open_graph(str(graph))
    preview = preview_repair(opened)
    if preview.drifted:
        assert not apply_repair(opened, preview, force=True).refused


@pytest.mark.parametrize("stamp", STAMPS)
def test_fence_keeps_engine_writers_out(tmp_path: Path, stamp: int) -> None:
    from omnigraph_ops.coordination.fence import fenced

    oracle, graph = engine(stamp), tmp_path / "g.omni"
    oracle.init(graph)
    oracle.load(graph, people(0, 5))
    rows = oracle.export(graph)
    with fenced(open_graph(str(graph))):
        for arguments in (("optimize", str(graph)), ("branch", "create", "--uri", str(graph), "x")):
            refused = oracle.run(*arguments, check=False)
            assert refused.returncode != 0
            assert "schema apply" in refused.stderr
        assert oracle.export(graph) == rows
    oracle.load(graph, people(100, 5))
    assert len(oracle.export(graph)) > len(rows)

"""An open graph is as it was opened: who wants it otherwise derives another one."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.graph import HeldFence, RunContext
from omnigraph_ops.progress import Run


@pytest.fixture(params=["a graph", "plain Lance"])
def graph(tmp_path: Path, request: pytest.FixtureRequest) -> Graph:
    if request.param == "a graph":
        write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=1, rows=1))
    else:
        lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "g" / "items.lance"))
    return open_graph(str(tmp_path / "g"), Settings())


@pytest.mark.parametrize("name", ["settings", "run", "run_context", "catalog", "format", "context", "own_fence"])
def test_nothing_of_an_open_graph_can_be_assigned(graph: Graph, name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(graph, name, None)


def test_a_derived_graph_shares_what_was_opened_and_leaves_the_first_as_it_was(graph: Graph) -> None:
    before, run, settings = graph.run_context, Run(), Settings(concurrency=1)
    derived = graph.with_run(run).with_settings(settings)
    assert (type(derived), derived.target) == (type(graph), graph.target)
    assert (derived.run, derived.settings) == (run, settings)
    assert derived.catalog is graph.catalog
    assert derived.storage is graph.storage
    assert graph.run_context is before


@pytest.mark.parametrize("said", [False, True])
def test_a_fence_makes_a_run_alone_for_as_long_as_it_is_up(graph: Graph, said: bool) -> None:
    fence = HeldFence(((1, "a"),))
    context = RunContext(settings=Settings(exclusive=said), fence=fence)
    assert context.exclusive
    fence.take_down()
    assert graph.under(context).is_alone() is said


def test_a_fence_whose_lock_is_gone_keeps_nobody_away(graph: Graph) -> None:
    fence = HeldFence(((1, "a"),))
    assert not graph.under(RunContext(settings=Settings(), fence=fence)).is_alone()
    assert not fence.is_up

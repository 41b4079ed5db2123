"""The two windows: how long a rewrite executes is no part of the time its table is armed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor
from tests.support.leases import is_free

PAUSE_SECONDS = 86_400.0


class SlowExecutor(InProcessExecutor):
    """Executes like the real one, but a day passes, and it looks whether the graph is free meanwhile."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.passed = 0.0
        self.storage = open_graph(str(root)).storage
        self.armed: list[frozenset[str]] = []
        self.leased: list[bool] = []

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        self.passed += PAUSE_SECONDS
        self.armed.append(sidecar_names(self.storage))
        self.leased.append(not is_free(self.storage))
        yield from super().execute(dataset, orders)


@pytest.mark.slow
def test_a_slow_rewrite_is_neither_armed_nor_leased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "g.omni"
    write_demo_graph(str(root), DemoSpec(node_types=1, loads=3, rows=20))
    executor = SlowExecutor(root)
    # What a window lasts is measured by this clock alone, so no machine is too busy for the comparison below.
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + executor.passed)
    stats = optimize_table(open_graph(str(root), Settings(small_table_bytes=0)), "node:Person", executor=executor)
    assert executor.armed == [frozenset()]
    assert executor.leased == [False]
    assert [w.unit for w in stats.windows] == ["fold", "rewrite"]
    (rewrite,) = [w for w in stats.windows if w.unit == "rewrite"]
    assert executor.passed == PAUSE_SECONDS
    assert rewrite.seconds < PAUSE_SECONDS, "the window must not hold the execution"

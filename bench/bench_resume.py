"""Claim: a killed driver costs at most the tasks in flight, and a conflict in one group costs that group.

A driver process is killed at random moments of its rewrite, then the rewrite is run again: printed are the
tasks that were executed twice, over the tasks in flight (one, in process). Then one of 20 groups loses to a
delete that lands between execution and commit: printed are the groups executed again.

    python bench/bench_resume.py
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.coordination.rewrite_journal import TaskOrder, TaskOutcome, attempts, open_journals
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.lance.gateway import Dataset
from omnigraph_ops.stages.optimize.run import optimize_table
from omnigraph_ops.stages.optimize.table_run import InProcessExecutor

TABLE = "node:Person"
GROUPS, ROWS, KILLS = 20, 400, 5
SETTINGS = Settings(small_table_bytes=0, target_rows_per_fragment=2 * ROWS)
_RUN = "import sys; from bench.bench_resume import victim; victim(sys.argv[1])"


class Counting(InProcessExecutor):
    """Counts what it executes, and lets a delete land before the commit."""

    def __init__(self, graph: Graph, deletes: int = 0) -> None:
        self.graph, self.deletes, self.executed = graph, deletes, 0

    def execute(self, dataset: Dataset, orders: Sequence[TaskOrder]) -> Iterator[TaskOutcome]:
        for outcome in super().execute(dataset, orders):
            self.executed += 1
            yield outcome
        if self.deletes:
            self.deletes -= 1
            _delete_one(self.graph)


def victim(root: str) -> None:
    """What the killed process runs."""
    print("ready", flush=True)
    optimize_table(open_graph(root, SETTINGS), TABLE)


def killed_at(folder: str, moment: float) -> tuple[int, int]:
    """Kill a run at that share of its rewrite; tasks that were finished then, and executed by the next run."""
    root = str(Path(folder) / f"killed-{moment:.3f}.omni")
    write_demo_graph(root, DemoSpec(node_types=1, loads=2 * GROUPS, rows=ROWS))
    graph = open_graph(root, SETTINGS)
    path = _entry(graph).path
    with subprocess.Popen([sys.executable, "-c", _RUN, root], stdout=subprocess.PIPE) as process:
        while process.poll() is None and _finished(graph, path) < moment * GROUPS:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    finished = _finished(graph, path)
    executor = Counting(graph)
    optimize_table(graph, TABLE, executor=executor)
    return finished, executor.executed


def conflict(folder: str) -> int:
    """Groups that are executed again when one of them loses."""
    root = str(Path(folder) / "conflict.omni")
    write_demo_graph(root, DemoSpec(node_types=1, loads=2 * GROUPS, rows=ROWS))
    graph = open_graph(root, SETTINGS)
    executor = Counting(graph, deletes=1)
    optimize_table(graph, TABLE, executor=executor)
    return executor.executed - GROUPS


def _finished(graph: Graph, path: str) -> int:
    return sum(len(attempts(graph.storage, path, i)) for i in open_journals(graph.storage, path))


def _entry(graph: Graph) -> TableEntry:
    entry = graph.state().get(TABLE)
    assert entry is not None
    return entry


def _delete_one(graph: Graph) -> None:
    entry = _entry(graph)
    head = graph.open_head(entry)
    (first,) = head.to_table(columns=["id"], limit=1).column("id").to_pylist()
    head.delete(f"id = '{first}'")
    publish(graph, (table_update(graph, entry, graph.open_head(entry)),), actor=None)


def main() -> None:
    chance = random.Random(6)
    with tempfile.TemporaryDirectory() as folder:
        for moment in sorted(chance.uniform(0.05, 0.95) for _ in range(KILLS)):
            finished, executed = killed_at(folder, moment)
            again = finished + executed - GROUPS if finished else 0
            print(f"killed with {finished:2} of {GROUPS} finished: {executed:2} executed, {again} of them again")
        lost = conflict(folder)
        print(f"one of {GROUPS} groups conflicts: {lost} executed again, ratio {lost / 1:.1f}")


if __name__ == "__main__":
    main()

"""Claim: planning, and a second optimize, cost in proportion to tables, not to their versions or rows; and what
changed is added to that, whatever else is there.

Graphs of 10, 100 and 1,000 tables, then 10 tables of 10, 100 and 1,000 versions. Printed: seconds of `plan`, of
an `optimize` with nothing to do, and of one after a load of 5 tables; and the ratio of each step of ten to the one
before. The claim holds when the ratios are near 10 for tables and near 1 for versions, and when the last column
minus the one before it does not grow with the tables.

    make bench
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.stages.optimize.run import optimize_all, plan_optimize

_NAMED = {"node:Person", "node:Company", "node:Doc"}
_CHANGED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds."""

    plan: float
    idle: float
    changed: float


def timed(action: Callable[[], object]) -> float:
    """The best of two: the first pays for imports and caches."""
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def generated(graph: Graph) -> list[TableEntry]:
    """The tables of generated types: they share one schema. Reads."""
    return [e for e in graph.state().entries if e.table_key.startswith("node:") and e.table_key not in _NAMED]


def grow(uri: str, versions: int) -> None:
    """Config commits: versions without fragments. Writes."""
    dataset = lance.dataset(uri)
    while dataset.version < versions:
        dataset.update_config({"bench.version": str(dataset.version)})
        dataset = lance.dataset(uri)


def with_versions(graph: Graph, versions: int) -> None:
    """Give every generated table so many versions: one is grown and copied. Writes."""
    first, *others = generated(graph)
    place = Path(graph.table_uri(first))
    grow(str(place), versions)
    for entry in others:
        shutil.rmtree(graph.table_uri(entry))
        shutil.copytree(place, graph.table_uri(entry))
    updates = tuple(table_update(graph, e, graph.open_head(e)) for e in generated(graph))
    publish(graph, updates, actor=None)


def load(graph: Graph) -> None:
    """Append a row to a few tables and publish it. Writes."""
    updates = []
    for entry in generated(graph)[:_CHANGED]:
        dataset = graph.open_head(entry)
        row = dataset.to_table(limit=1)
        ids = pa.array([f"new-{dataset.version}"], pa.string())
        row = row.set_column(row.schema.get_field_index("id"), row.schema.field("id"), ids)
        lance.write_dataset(row, dataset, mode="append")
        updates.append(table_update(graph, entry, graph.open_head(entry)))
    publish(graph, tuple(updates), actor=None)


def measure(tables: int, versions: int) -> Measured:
    """One graph with nothing to do, then with a few tables to do."""
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder) / "g.omni")
        write_demo_graph(root, DemoSpec(node_types=len(_NAMED) + tables, loads=1, rows=4))
        graph = open_graph(root, Settings())
        if versions:
            with_versions(graph, versions)
        keys = tuple(e.table_key for e in generated(graph))
        assert plan_optimize(graph, tables=keys).productive() == ()
        plan = timed(lambda: plan_optimize(graph, tables=keys))
        idle = timed(lambda: optimize_all(graph, tables=keys))
        load(graph)
        started = time.perf_counter()
        report = optimize_all(graph, tables=keys)
        changed = time.perf_counter() - started
        assert sum(t.committed for t in report.tables) == _CHANGED
    found = Measured(plan=plan, idle=idle, changed=changed)
    print(
        f"{tables:>5} tables, {versions or 'few':>5} versions: plan {found.plan:6.3f} s, optimize with nothing to do "
        f"{found.idle:6.3f} s, with {_CHANGED} tables loaded {found.changed:6.3f} s"
    )
    return found


def main() -> None:
    by_tables = [measure(tables, 0) for tables in (10, 100, 1000)]
    by_versions = [measure(10, versions) for versions in (10, 100, 1000)]
    for name, series in (("tables", by_tables), ("versions", by_versions)):
        for what in ("plan", "idle", "changed"):
            steps = itertools.pairwise(getattr(m, what) for m in series)
            print(f"{what:>8} as {name} grow tenfold: x " + ", ".join(f"{b / a:.2f}" for a, b in steps))


if __name__ == "__main__":
    main()

"""Claim: planning a cleanup costs in proportion to versions x tables, up to 500 versions of 50 tables.

Graphs of doubling size: first the tables at a fixed number of versions, then the versions at a fixed number
of tables. Printed: seconds, files in the plan, and the ratio of each step to the one before; the claim
holds when no ratio is much above 2.

    make bench
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import lance

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.publish import publish, table_update
from omnigraph_ops.graph.state import TableEntry
from omnigraph_ops.models.cleanup import RetentionPolicy
from omnigraph_ops.stages.cleanup.plan import plan_cleanup

_NAMED_TYPES = 3
_COMPACT_EVERY = 20
"""Appends between two compactions: what a nightly run leaves of a table that is loaded often."""


def grow(uri: str, versions: int) -> None:
    """Append and compact until the dataset has so many versions. Writes."""
    dataset = lance.dataset(uri)
    row = dataset.to_table(limit=1)
    while dataset.version < versions:
        for _ in range(_COMPACT_EVERY):
            dataset = lance.write_dataset(row, dataset, mode="append")
        dataset.optimize.compact_files()


def copied_tables(graph: Graph, tables: int) -> Iterator[TableEntry]:
    """Generated types share one schema: their tables become copies of the first of them. Writes."""
    entries = [e for e in graph.state().entries if e.table_key.startswith("node:")]
    generated = [e for e in entries if e.table_key.removeprefix("node:") not in {"Person", "Company", "Doc"}][:tables]
    first = Path(graph.table_uri(generated[0]))
    for entry in generated[1:]:
        place = Path(graph.table_uri(entry))
        shutil.rmtree(place)
        shutil.copytree(first, place)
    yield from generated


def measure(versions: int, tables: int) -> float:
    """Seconds to plan the cleanup of such a graph."""
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder) / "g.omni")
        write_demo_graph(root, DemoSpec(node_types=_NAMED_TYPES + tables, loads=1, rows=4, index_after_load=0))
        graph = open_graph(root, Settings())
        first = next(
            e
            for e in graph.state().entries
            if e.table_key not in {"node:Person", "node:Company", "node:Doc"} and e.table_key.startswith("node:")
        )
        grow(graph.table_uri(first), versions)
        entries = tuple(copied_tables(graph, tables))
        publish(graph, tuple(table_update(graph, e, graph.open_head(e)) for e in entries), actor=None)
        started = time.perf_counter()
        plan = plan_cleanup(graph, RetentionPolicy(keep_versions=10), tables=tuple(e.table_key for e in entries))
        seconds = time.perf_counter() - started
    assert not [t for t in plan.tables if t.refused]
    print(f"{versions:>4} versions x {tables:>3} tables: {seconds:6.2f} s, {plan.total_files:>7,} files in the plan")
    return seconds


def main() -> None:
    by_tables = [measure(125, tables) for tables in (12, 25, 50)]
    by_versions = [by_tables[-1], *(measure(versions, 50) for versions in (250, 500))]
    for name, series in (("tables", by_tables), ("versions", by_versions)):
        ratios = ", ".join(f"{b / a:.2f}" for a, b in itertools.pairwise(series))
        print(f"as {name} double: x {ratios}")


if __name__ == "__main__":
    main()

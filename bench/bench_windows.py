"""Claim: neither armed window grows with the work that it commits, that of a rewrite or that of folding.

Two tables, one ten times the other, both optimized with two windows. Printed: rewrite time and window of
each, and their ratios. The claim holds when the windows' ratios stay near 1 while that of the whole grows.

    make bench
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize.run import optimize_table

TABLE = "node:Person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One optimize of one table, in seconds and bytes."""

    rows: int
    bytes_rewritten: int
    total: float
    fold_window: float
    rewrite_window: float


def measure(rows: int) -> Measured:
    """Write a graph of 10 loads and optimize its largest table in two windows."""
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder) / "g.omni")
        write_demo_graph(root, DemoSpec(node_types=1, loads=10, rows=rows))
        graph = open_graph(root, Settings(small_table_bytes=0))
        started = time.perf_counter()
        stats = optimize_table(graph, TABLE)
        total = time.perf_counter() - started
    windows = {w.unit: w.seconds for w in stats.windows}
    return Measured(
        rows=rows * 10,
        bytes_rewritten=stats.bytes_rewritten,
        total=total,
        fold_window=windows["fold"],
        rewrite_window=windows["rewrite"],
    )


def main() -> None:
    small, large = measure(2_000), measure(40_000)
    for m in (small, large):
        print(
            f"{m.rows:>8} rows, {m.bytes_rewritten:>10} bytes: total {m.total:.2f} s, "
            f"fold window {m.fold_window:.3f} s, rewrite window {m.rewrite_window:.3f} s"
        )
    print(f"ratio of bytes rewritten   {large.bytes_rewritten / small.bytes_rewritten:.1f}")
    print(f"ratio of total time        {large.total / small.total:.1f}")
    print(f"ratio of fold windows      {large.fold_window / small.fold_window:.1f}")
    print(f"ratio of rewrite windows   {large.rewrite_window / small.rewrite_window:.1f}")


if __name__ == "__main__":
    main()

"""Claim: planning the removal of orphans costs in proportion to the files of the graph, up to 100,000 of them.

A generated graph with 25,000, 50,000 and 100,000 files left behind, spread over its tables. Printed: seconds to list
them all and to decide, the share of a bare recursive listing of the same folder, and the ratio of each step to
the one before; the claim holds when no ratio is much above 2.

    make bench
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from pathlib import Path

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.orphans.plan import plan_orphans

_WEEK = 7 * 86_400


def leave_behind(root: str, count: int) -> None:
    """Spread so many old data files that nothing refers to over the tables of a graph. Writes."""
    graph = open_graph(root)
    folders = [Path(graph.table_uri(e), "data") for e in graph.state().entries]
    then = time.time() - 2 * _WEEK
    for number in range(count):
        path = folders[number % len(folders)] / f"{number:024b}{number:026x}.lance"
        path.write_bytes(b"x")
        os.utime(path, (then, then))


def bare_listing(root: str) -> tuple[int, float]:
    """Files and seconds of `os.walk` with a `stat` of every file: the least that a listing costs. Reads."""
    started = time.perf_counter()
    files = 0
    for folder, _, names in os.walk(root):
        for name in names:
            os.stat(os.path.join(folder, name))
            files += 1
    return files, time.perf_counter() - started


def measure(count: int) -> float:
    """Seconds to plan the removal of so many files."""
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder) / "g.omni")
        write_demo_graph(root, DemoSpec(loads=6, rows=20))
        leave_behind(root, count)
        files, bare = bare_listing(root)
        started = time.perf_counter()
        plan = plan_orphans(open_graph(root), older_than_seconds=_WEEK)
        seconds = time.perf_counter() - started
    assert len(plan.files) == count
    print(f"{files:>8,} files: plan {seconds:6.2f} s, {seconds / bare:4.1f} x a bare listing")
    return seconds


def main() -> None:
    series = [measure(count) for count in (25_000, 50_000, 100_000)]
    print("as files double: x " + ", ".join(f"{b / a:.2f}" for a, b in itertools.pairwise(series)))


if __name__ == "__main__":
    main()

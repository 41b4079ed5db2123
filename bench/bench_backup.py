"""Claim: a backup takes no longer than what gives as much by hand: `cp -r`, `sync` and `sha256sum` of every file.

A dataset of large files, and a graph of many small ones, alternately by `cp -r`, the same with `sync`, the same with
`sha256sum`, and by `backup`, three times; printed are the best of each and the ratio to that third way, then what an
incremental backup and `verify` take.

    python bench/bench_backup.py
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.quantities import human_bytes
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup

ROUNDS = 3
FILES, FILE_BYTES = 12, 32 * 1024 * 1024
_WIDTH = 1024
BY_HAND = "with sha256sum"


def large(root: Path) -> Graph:
    """A folder with one dataset of large files of noise. Writes."""
    noise = np.random.default_rng(7)
    for _ in range(FILES):
        values = noise.integers(0, 256, FILE_BYTES, dtype=np.uint8)
        column = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(_WIDTH), FILE_BYTES // _WIDTH, [None, pa.py_buffer(values.tobytes())]
        )
        lance.write_dataset(pa.table({"noise": column}), str(root / "noise.lance"), mode="append")
    return open_graph(str(root), Settings())


def small(root: Path) -> Graph:
    """A graph of many small files. Writes."""
    write_demo_graph(str(root), DemoSpec(node_types=6, loads=40, rows=20))
    return open_graph(str(root), Settings())


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def by_hand(graph: Graph, target: Path, *more: str) -> None:
    """What a person would do, one command after the other. Writes."""
    for command in (f"cp -r '{graph.uri}' '{target}'", *more):
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, cwd=target.parent)


def measure(name: str, graph: Graph, folder: Path) -> None:
    """Print the ratios for one graph."""
    best: dict[str, float] = {}
    for number in range(ROUNDS):
        summed = f"find summed-{number} -type f -exec sha256sum {{}} +"
        ways: dict[str, Callable[[], object]] = {
            "cp -r": lambda n=number: by_hand(graph, folder / f"cp-{n}"),
            "with sync": lambda n=number: by_hand(graph, folder / f"synced-{n}", "sync"),
            BY_HAND: lambda n=number, s=summed: by_hand(graph, folder / f"summed-{n}", "sync", s),
            "backup": lambda n=number: backup_graph(graph, str(folder / f"backup-{n}")),
        }
        for way, work in ways.items():
            best[way] = min(best.get(way, 1e9), seconds(work))
            subprocess.run(["sync"], check=True)
    made = next((folder / f"backup-{ROUNDS - 1}").iterdir())
    options = BackupOptions(incremental_from=str(made))
    best["incremental"] = seconds(lambda: backup_graph(graph, str(folder / f"backup-{ROUNDS - 1}"), options))
    best["verify"] = seconds(lambda: verify_backup(str(made)))
    files = [p for p in (made / "files").rglob("*") if p.is_file()]
    size = sum(p.stat().st_size for p in files)
    print(f"{name}: {len(files):,} files, {human_bytes(size)}")
    for way, spent in best.items():
        print(f"  {way:<14} {spent:6.2f} s, {spent / best[BY_HAND]:5.2f}, {human_bytes(int(size / spent))}/s")


def main() -> None:
    for name, make in (("large files", large), ("small files", small)):
        folder = Path(tempfile.mkdtemp())
        try:
            measure(name, make(folder / "graph"), folder)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()

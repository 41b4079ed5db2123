"""Claim: optimizing a gigabyte that is to be compacted, as a whole process, takes no longer than the engine's own
`optimize`. The other two shapes are measured without a claim: they take longer than with the engine (README.md).

Three shapes: much data with few indexes to speak of (1 GB, 12 tables), mostly indexes, and 200 small tables. The same
graph is copied for every run; the ways take turns, each a process of its own, three times, and the best of each counts.
Without OMNIGRAPH_BIN_STAMP6 only bare pylance is compared. *Bare* folds every index and compacts every table, four
tables at a time, and does nothing else: no lease, no sidecar, no publish, no check of what was written. *Again* runs on
what the first run of that way left: nothing is to be done.

    OMNIGRAPH_BIN_STAMP6=/path/to/omnigraph python bench/bench_optimize.py [SHAPE ...]
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPEATS = 3
COMPARED = {"ours": ("engine", "bare pylance"), "ours, again": ("engine, again",), "bare pylance": ("engine",)}


BARE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import lance
def one(uri):
    dataset = lance.dataset(uri)
    for index in dataset.describe_indices():
        dataset.optimize.optimize_indices(index_names=[index.name], num_indices_to_merge=1)
    dataset.optimize.compact_files(target_rows_per_fragment=1048576)
with ThreadPoolExecutor(4) as pool:
    list(pool.map(one, sys.argv[1:]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process: seconds from its start to its end; what it and the processes that it started took."""

    seconds: float
    cpu: float
    """Seconds of all cores."""
    megabytes: float
    """The most that each of them held, added up."""


def process(command: list[str]) -> Run:
    """Run a command to its end."""
    started = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        said.seek(0)
        assert os.waitstatus_to_exitcode(status) == 0, said.read().decode()
    used = [usage, *left_behind()]
    return Run(
        seconds=seconds,
        cpu=sum(u.ru_utime + u.ru_stime for u in used),
        megabytes=sum(u.ru_maxrss for u in used) / 1024,
    )


def left_behind() -> Iterator[resource.struct_rusage]:
    """What processes took that a command started and did not wait for, as ours does with its text indexers."""
    with contextlib.suppress(ChildProcessError):
        while True:
            yield os.wait4(-1, 0)[2]


def adopt_what_is_left() -> None:
    """Make this process the parent of what its children leave behind."""
    subreaper = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
    assert ctypes.CDLL(None).prctl(subreaper, 1, 0, 0, 0) == 0


def ways(engine: str | None) -> dict[str, list[str]]:
    """The commands, each to be followed by what it works on."""
    found = {"ours": [sys.executable, "-m", "omnigraph_ops", "optimize"], "bare pylance": [sys.executable, "-c", BARE]}
    return found | ({"engine": [engine, "optimize"]} if engine else {})


def measured(original: Path, paths: list[str]) -> dict[str, list[Run]]:
    """The runs of every way on copies of a graph, and of a second run right after it."""
    copy, runs = original.with_name("copy.omni"), dict[str, list[Run]]()
    for _ in range(REPEATS):
        for name, command in ways(os.environ.get("OMNIGRAPH_BIN_STAMP6")).items():
            shutil.copytree(original, copy)
            os.sync()
            targets = [str(copy / path) for path in paths] if name == "bare pylance" else [str(copy)]
            runs.setdefault(name, []).append(process([*command, *targets]))
            if name != "bare pylance":
                runs.setdefault(f"{name}, again", []).append(process([*command, *targets]))
            shutil.rmtree(copy)
    return runs


def told(runs: dict[str, list[Run]]) -> None:
    """The best run of every way, ours over the others, and the floor: the calls of the library with nothing around."""
    best = {name: min(found, key=lambda r: r.seconds) for name, found in runs.items()}
    for name, run in best.items():
        print(f"  {name:<13} {run.seconds:6.2f} s, {run.cpu:6.2f} CPU s, {run.megabytes:6.0f} MB")
    for one, others in COMPARED.items():
        for name in filter(best.__contains__, others):
            time_, cpu, memory = (
                getattr(best[one], k) / getattr(best[name], k) for k in ("seconds", "cpu", "megabytes")
            )
            print(f"  {one} over {name}: {time_:.2f} of the time, {cpu:.2f} of the CPU, {memory:.2f} of the memory")


def main(*names: str) -> None:
    adopt_what_is_left()
    for name in names or ("data", "indexes", "small"):
        with tempfile.TemporaryDirectory() as folder:
            original = Path(folder) / "original.omni"
            made = subprocess.run(
                [sys.executable, str(Path(__file__).with_name("shapes.py")), name, str(original)],
                stdout=subprocess.PIPE,
                check=True,
            )
            paths = json.loads(made.stdout)
            size = sum(f.stat().st_size for f in original.rglob("*") if f.is_file())
            print(f"{name}: {len(paths)} tables, {size / 1e9:.2f} GB")
            told(measured(original, paths))


if __name__ == "__main__":
    main(*sys.argv[1:])

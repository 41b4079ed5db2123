"""Measure where Spark begins to pay on this deployment: the same rewrite in process and as a submit, at two sizes.

Each way costs a fixed time plus time per byte; the threshold is where the two lines cross. The graphs that are
rewritten are generated in a scratch folder that the Spark workers must reach as this process does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from omnigraph_ops import serde
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.edges.java import spark_environment
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.optimize import optimize_table
from omnigraph_ops.rewrites.outcome import SubmitOutcome
from omnigraph_ops.settings import Settings

TABLE = "node:Person"
LOADS = 8
ROWS = (2_000, 100_000)
"""People per load of the small and the large graph: bytes a factor of fifty apart."""
_APPLICATION = Path(__file__).parent / "spark" / "rewrite_table.py"
_SUBMIT_SECONDS = 1_800

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Seconds of a rewrite as a fixed part and a part per byte."""

    fixed_seconds: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Both lines, and the bytes from which on Spark is faster; None: never on this deployment."""

    master: str
    in_process: Line
    spark: Line
    threshold_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured rewrite."""

    bytes: int
    seconds: float


def calibrate(*, master: str = "local[*]", scratch: str | None = None, on_progress: Say | None = None) -> Calibration:
    """Rewrite generated tables both ways and compare. Writes and removes files in the scratch folder.

    Args:
        scratch: a folder that the Spark workers reach under the same path; default the temporary folder.

    Raises:
        InvalidInput: the scratch folder is not one.
        OpsError: a submit failed; its last line is in the message.
    """
    if scratch is not None and not Path(scratch).is_dir():
        raise InvalidInput(f"the scratch folder {scratch} is not a folder; nothing was measured")
    say = on_progress or (lambda _text: None)
    here, there = [], []
    with tempfile.TemporaryDirectory(prefix="omnigraph-calibrate-", dir=scratch) as folder:
        for rows in ROWS:
            say(f"in process, {rows * LOADS:,} rows")
            here.append(_in_process(_graph(folder, f"here-{rows}", rows)))
            say(f"on {master}, {rows * LOADS:,} rows")
            there.append(_submitted(_graph(folder, f"there-{rows}", rows), master))
    in_process, spark = line(*here), line(*there)
    return Calibration(master=master, in_process=in_process, spark=spark, threshold_bytes=crossing(in_process, spark))


def line(small: Sample, large: Sample) -> Line:
    """The line through two samples; noise never makes it fall or start below zero. Pure."""
    per_byte = max(large.seconds - small.seconds, 0.001) / max(large.bytes - small.bytes, 1)
    fixed = max(small.seconds - small.bytes * per_byte, 0.0)
    return Line(fixed_seconds=round(fixed, 3), bytes_per_second=round(1 / per_byte, 1))


def crossing(in_process: Line, spark: Line) -> int | None:
    """The bytes from which on Spark takes less time, None when it never does. Pure."""
    gain = 1 / in_process.bytes_per_second - 1 / spark.bytes_per_second
    head_start = spark.fixed_seconds - in_process.fixed_seconds
    if head_start <= 0 and gain >= 0:
        return 0
    return int(head_start / gain) if gain > 0 else None


def text(found: Calibration) -> str:
    """The result and what to set. Pure."""
    lines = [
        f"{name:<11} {found_line.fixed_seconds:7.2f} s + {found_line.bytes_per_second / 1e6:8.1f} MB/s"
        for name, found_line in (("in process", found.in_process), (f"{found.master}", found.spark))
    ]
    if found.threshold_bytes is None:
        return "\n".join([*lines, "Spark does not pay here at any size: it rewrites no faster per byte"])
    return "\n".join([*lines, f"Spark pays from here on: OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES={found.threshold_bytes}"])


def _graph(folder: str, name: str, rows: int) -> str:
    root = str(Path(folder) / name)
    write_demo_graph(root, DemoSpec(node_types=1, loads=LOADS, rows=rows, index_after_load=0))
    return root


def _in_process(root: str) -> Sample:
    graph = open_graph(root, Settings(small_table_bytes=0))
    started = time.perf_counter()
    stats = optimize_table(graph, TABLE)
    return Sample(bytes=stats.bytes_rewritten, seconds=time.perf_counter() - started)


def _submitted(root: str, master: str) -> Sample:
    result = f"{root}.json"
    submit = Path(sys.executable).with_name("spark-submit")
    arguments = ["--graph", root, "--table", TABLE, "--result-uri", result]
    command = [str(submit), "--master", master, str(_APPLICATION), *arguments]
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **spark_environment()},
            capture_output=True,
            text=True,
            timeout=_SUBMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OpsError(f"spark-submit could not be run: {error}; no graph of yours was touched") from None
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise OpsError(f"spark-submit to {master} failed: {last}; no graph of yours was touched")
    stats = serde.from_json(SubmitOutcome, Path(result).read_bytes()).stats
    if stats is None:
        raise OpsError(f"spark-submit to {master} left no statistics; no graph of yours was touched")
    return Sample(bytes=stats.bytes_rewritten, seconds=seconds)

"""The same rewrites in process and in one submit of a measuring application, `spark/measure.py`."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omnigraph_ops import serde
from omnigraph_ops.calibration.lines import Sample
from omnigraph_ops.calibration.scratch import environment, scratch_errors
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo.tables import write_wide_table
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.optimize import Seconds
from omnigraph_ops.spark.submit import reason, run_submit, spark_submit
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize

ROWS = 6_000
"""Rows per fragment, 3.5 MB: the large table has 230 MB of them."""
TASKS = (1, 16)
"""Compaction tasks of the small and the large table: far enough apart for a slope, and work for many cores."""
FRAGMENTS_PER_TASK = 4
DATASET = "wide.lance"
RUNS = 2
"""Of each piece of work, of which the faster one counts."""
_APPLICATION = Path(__file__).parents[1] / "spark" / "measure.py"
_SUBMIT_SECONDS = 1_800


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A generated table, of which every measurement rewrites a copy."""

    folder: Path
    bytes: int
    """What a rewrite reads, as `plan` counts it."""
    settings: Settings


def write_table(folder: Path, *, rows: int, tasks: int) -> Table:
    """Generate a table that is rewritten in so many tasks, with so many rows per fragment. Writes."""
    with scratch_errors():
        write_wide_table(str(folder / DATASET), fragments=tasks * FRAGMENTS_PER_TASK, rows=rows)
    settings = Settings(small_table_bytes=0, target_rows_per_fragment=rows * FRAGMENTS_PER_TASK)
    (plan,) = plan_optimize(open_graph(str(folder / DATASET), settings)).tables
    return Table(folder=folder, bytes=plan.rewrite_bytes, settings=settings)


def in_process(table: Table) -> Sample:
    """The best of two runs in this process: the first one also warms it up. Writes, and removes its copies."""
    seconds = []
    for _ in range(RUNS):
        with _copies(table) as (root,):
            graph = open_graph(root, table.settings)
            (entry,) = graph.state().entries
            started = time.perf_counter()
            optimize_table(graph, entry.table_key)
            seconds.append(time.perf_counter() - started)
    return Sample(size=table.bytes, seconds=min(seconds))


def submitted(small: Table, large: Table, master: str) -> tuple[Sample, Sample, float]:
    """The best of two runs of each table in one submit, and what the submit took besides. Writes, and removes it all.

    The first run also starts the workers and is no sample.

    Raises:
        OpsError: it failed; what it said is in the message.
    """
    with _copies(small, 1 + RUNS) as smalls, _copies(large, RUNS) as larges:
        started = time.perf_counter()
        warm_up, *runs = _submit((*smalls, *larges), large, master)
        whole = time.perf_counter() - started
    samples = (
        Sample(size=small.bytes, seconds=min(runs[:RUNS])),
        Sample(size=large.bytes, seconds=min(runs[RUNS:])),
    )
    return (*samples, whole - sum(runs) - min(warm_up, samples[0].seconds))


def _submit(roots: Sequence[str], table: Table, master: str) -> tuple[float, ...]:
    folder = table.folder.parent
    result, log = folder / "result.json", folder / "submit.log"
    command = [spark_submit("calibrate"), "--master", master, str(_APPLICATION), "--result", str(result), *roots]
    code = _run(command, _environment(folder, table.settings), log)
    if code != 0 or not result.exists():
        raise OpsError(f"spark-submit to {master} failed: {reason(log.read_text(errors='replace'))}")
    return serde.from_json(Seconds, result.read_bytes()).of_each


def _run(command: list[str], environment: dict[str, str], log: Path) -> int:
    """Run a submit to its end. Starts a process."""
    try:
        return run_submit(command, environment, log, most_seconds=_SUBMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise OpsError(f"spark-submit took longer than {_SUBMIT_SECONDS} s") from None


def _environment(folder: Path, settings: Settings) -> dict[str, str]:
    return environment(folder) | {
        "OMNIGRAPH_OPS_SMALL_TABLE_BYTES": str(settings.small_table_bytes),
        "OMNIGRAPH_OPS_TARGET_ROWS_PER_FRAGMENT": str(settings.target_rows_per_fragment),
    }


@contextlib.contextmanager
def _copies(table: Table, count: int = 1) -> Iterator[tuple[str, ...]]:
    """Roots of copies to rewrite, gone after the block. Writes."""
    folders = [table.folder.with_name(f"{table.folder.name}-{number}") for number in range(count)]
    try:
        with scratch_errors():
            for folder in folders:
                shutil.copytree(table.folder, folder)
        yield tuple(str(folder / DATASET) for folder in folders)
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

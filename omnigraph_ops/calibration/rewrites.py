"""Lines through measured work, its scratch folder, and rewrites: in process, and in a submit of the job `measure`."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo.tables import write_wide_table
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.optimize import Seconds
from omnigraph_ops.spark.java import spark_environment
from omnigraph_ops.spark.submit import Submitter
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize

Unit = Literal["bytes", "files", "rows"]
_NOISE = 0.1
"""Spark is not called faster for less than this: two runs of the same work differ by as much."""
ROWS = 6_000
"""Rows per fragment, 3.5 MB: the large table has 230 MB of them."""
TASKS = (1, 16)
"""Compaction tasks of the small and the large table: far enough apart for a slope, and work for many cores."""
FRAGMENTS_PER_TASK = 4
DATASET = "wide.lance"
RUNS = 2
"""Of each piece of work, of which the faster one counts."""
_SUBMIT_SECONDS = 1_800


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured piece of work."""

    size: int
    """Bytes, files or rows."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Seconds of a job as a fixed part, and a part per byte, file or row: the speed after the start."""

    fixed_seconds: float
    bytes_per_second: float | None = None
    """None where files or rows are counted."""
    files_per_second: float | None = None
    """None where bytes or rows are counted."""
    rows_per_second: float | None = None
    """None where bytes or files are counted."""
    rises: bool = True
    """Whether the large sample took longer than the small one; where it did not, the speed means nothing."""

    @property
    def per_second(self) -> float:
        """Bytes, files or rows per second, whichever are counted. Pure."""
        rates = (self.bytes_per_second, self.files_per_second, self.rows_per_second)
        return next(rate for rate in rates if rate is not None)


def line(small: Sample, large: Sample, start_seconds: float = 0.0, unit: Unit = "bytes") -> Line:
    """The line through two samples after a start; noise never makes it fall or start below zero. Pure."""
    more = large.seconds - small.seconds
    each = max(more, 0.001) / max(large.size - small.size, 1)
    return Line(
        fixed_seconds=round(max(small.seconds - small.size * each, 0.0) + start_seconds, 3),
        rises=more > 0,
        **{f"{unit}_per_second": round(1 / each, 1)},
    )


def crossing(in_process: Line, spark: Line) -> int | None:
    """From how many bytes, files or rows on Spark takes less time; None when never, or nobody can tell. Pure."""
    if not (in_process.rises and spark.rises):
        return None
    head_start = spark.fixed_seconds - in_process.fixed_seconds
    gain = 1 / in_process.per_second - 1 / spark.per_second
    if head_start <= 0 and gain >= 0:
        return 0
    return int(head_start / gain) if gain * in_process.per_second > _NOISE else None


@contextlib.contextmanager
def scratch_folder(parent: str | None) -> Iterator[Path]:
    """A folder for everything that a calibration writes, gone after the block. Writes."""
    # An empty text is a variable that nobody set, and no name of the working directory.
    if parent is not None and not (parent.strip() and Path(parent).is_dir()):
        raise InvalidInput(f"the scratch folder {parent!r} is not a folder; nothing was measured")
    with contextlib.ExitStack() as stack:
        with scratch_errors():
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="omnigraph-calibrate-", dir=parent))
        # Drivers and workers have working directories of their own.
        yield Path(made).resolve()


@contextlib.contextmanager
def scratch_errors() -> Iterator[None]:
    """A full or read-only scratch folder as one sentence. Pure."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"the scratch folder cannot be used: {error}; nothing was measured") from None


def environment(folder: Path) -> dict[str, str]:
    """The environment of a submit: this one, but for settings that would bend the measurement. Reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH_OPS_")}
    return {**kept, **spark_environment(), "SPARK_LOCAL_DIRS": str(folder)}


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
    measured = environment(large.folder.parent) | {
        "OMNIGRAPH_OPS_SMALL_TABLE_BYTES": str(large.settings.small_table_bytes),
        "OMNIGRAPH_OPS_TARGET_ROWS_PER_FRAGMENT": str(large.settings.target_rows_per_fragment),
    }
    submit = Submitter(master=master, environment=measured)
    with _copies(small, 1 + RUNS) as smalls, _copies(large, RUNS) as larges:
        started = time.perf_counter()

        def in_time() -> None:
            if time.perf_counter() - started > _SUBMIT_SECONDS:
                raise OpsError(f"spark-submit took longer than {_SUBMIT_SECONDS} s")

        warm_up, *runs = submit("measure", (*smalls, *larges), Seconds, in_time).of_each
        whole = time.perf_counter() - started
    samples = (
        Sample(size=small.bytes, seconds=min(runs[:RUNS])),
        Sample(size=large.bytes, seconds=min(runs[RUNS:])),
    )
    return (*samples, whole - sum(runs) - min(warm_up, samples[0].seconds))


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

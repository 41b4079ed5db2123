"""Measure where Spark begins to pay: the same rewrite in process and as a submit. No stage uses it.

Measure where Spark begins to pay on this deployment: the same rewrite in process and as a submit, at two sizes. Each
way costs a fixed time plus time per byte; the threshold is where the two lines cross.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omnigraph_ops import serde
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo.tables import write_wide_table
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.models.optimize import Seconds
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.quantities import human_bytes
from omnigraph_ops.spark.submit import reason, run_submit, spark_environment, spark_submit
from omnigraph_ops.stages.optimize.run import optimize_table, plan_optimize
from omnigraph_ops.views.view import Section, View

_FRAGMENTS_PER_TASK = 4
_DATASET = "wide.lance"
_RUNS = 2
_APPLICATION = Path(__file__).parent / "spark" / "measure.py"
_SUBMIT_SECONDS = 1_800
_UNTOUCHED = "no graph of yours was touched"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured rewrite."""

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A generated table, of which every measurement rewrites a copy."""

    folder: Path
    bytes: int
    """What a rewrite reads, as `plan` counts it."""
    settings: Settings


@contextlib.contextmanager
def scratch_folder(parent: str | None) -> Iterator[Path]:
    """A folder for everything that a calibration writes, gone after the block. Writes."""
    if parent is not None and not Path(parent).is_dir():
        raise InvalidInput(f"the scratch folder {parent} is not a folder; nothing was measured")
    with contextlib.ExitStack() as stack:
        with scratch_errors():
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="omnigraph-calibrate-", dir=parent))
        # Drivers and workers have working directories of their own.
        yield Path(made).resolve()


def write_table(folder: Path, *, rows: int, tasks: int) -> Table:
    """Generate a table that is rewritten in so many tasks, with so many rows per fragment. Writes."""
    with scratch_errors():
        write_wide_table(str(folder / _DATASET), fragments=tasks * _FRAGMENTS_PER_TASK, rows=rows)
    settings = Settings(small_table_bytes=0, target_rows_per_fragment=rows * _FRAGMENTS_PER_TASK)
    (plan,) = plan_optimize(open_graph(str(folder / _DATASET), settings)).tables
    return Table(folder=folder, bytes=plan.rewrite_bytes, settings=settings)


def in_process(table: Table) -> Sample:
    """The best of two runs in this process: the first one also warms it up. Writes, and removes its copies."""
    seconds = []
    for _ in range(_RUNS):
        with _copies(table) as (root,):
            graph = open_graph(root, table.settings)
            (entry,) = graph.state().entries
            started = time.perf_counter()
            optimize_table(graph, entry.table_key)
            seconds.append(time.perf_counter() - started)
    return Sample(bytes=table.bytes, seconds=min(seconds))


def submitted(small: Table, large: Table, master: str) -> tuple[Sample, Sample, float]:
    """The best of two runs of each table in one submit, and what the submit took besides. Writes, and removes it all.

    The first run also starts the workers and is no sample.

    Raises:
        OpsError: it failed; what it said is in the message.
    """
    with _copies(small, 1 + _RUNS) as smalls, _copies(large, _RUNS) as larges:
        started = time.perf_counter()
        warm_up, *runs = _submit((*smalls, *larges), large, master)
        whole = time.perf_counter() - started
    samples = (
        Sample(bytes=small.bytes, seconds=min(runs[:_RUNS])),
        Sample(bytes=large.bytes, seconds=min(runs[_RUNS:])),
    )
    return (*samples, whole - sum(runs) - min(warm_up, samples[0].seconds))


def _submit(roots: Sequence[str], table: Table, master: str) -> tuple[float, ...]:
    folder = table.folder.parent
    result, log = folder / "result.json", folder / "submit.log"
    command = [spark_submit("calibrate"), "--master", master, str(_APPLICATION), "--result", str(result), *roots]
    code = _run(command, _environment(folder, table.settings), log)
    if code != 0 or not result.exists():
        raise OpsError(f"spark-submit to {master} failed: {reason(log.read_text(errors='replace'))}; {_UNTOUCHED}")
    return serde.from_json(Seconds, result.read_bytes()).of_each


def _run(command: list[str], environment: dict[str, str], log: Path) -> int:
    """Run a submit to its end; an error says that no graph was touched. Starts a process."""
    try:
        return run_submit(command, environment, log, most_seconds=_SUBMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise OpsError(f"spark-submit took longer than {_SUBMIT_SECONDS} s; {_UNTOUCHED}") from None
    except OpsError as error:
        raise OpsError(f"{error}; {_UNTOUCHED}") from None


def _environment(folder: Path, settings: Settings) -> dict[str, str]:
    """The environment of a submit: this one, but for settings that would bend the measurement. Reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMNIGRAPH_OPS_")}
    return {
        **kept,
        **spark_environment(),
        "SPARK_LOCAL_DIRS": str(folder),
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
        yield tuple(str(folder / _DATASET) for folder in folders)
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def scratch_errors() -> Iterator[None]:
    """A full or read-only scratch folder as one sentence. Pure."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"the scratch folder cannot be used: {error}; nothing was measured") from None


ROWS = 6_000
"""Rows per fragment, 3.5 MB: the large table has 230 MB of them."""
_TASKS = (1, 16)
"""Compaction tasks of the small and the large table: far enough apart for a slope, and work for many cores."""
_NOISE = 0.1
"""Spark is not called faster per byte for less than this: two runs of the same rewrite differ by as much."""
_NEVER = 2**63 - 1


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


def calibrate(
    *,
    master: str = "local[*]",
    scratch: str | None = None,
    rows: int = ROWS,
    progress: Progress = SILENT,
) -> Calibration:
    """Rewrite generated tables both ways and compare. Writes and removes files in the scratch folder.

    Args:
        scratch: a folder that the Spark workers reach under the same path; default the temporary folder.
        rows: rows per fragment of the generated tables; few make it quick and tell nothing.

    Raises:
        InvalidInput: the scratch folder is not one.
        NotInstalled: Spark is not installed in this environment.
        OpsError: a submit failed; what it said is in the message.
    """
    spark_submit("calibrate")  # before the minute that the tables take
    with scratch_folder(scratch) as folder:
        small, large = (write_table(folder / f"tasks-{tasks}", rows=rows, tasks=tasks) for tasks in _TASKS)
        progress(f"in process, {human_bytes(small.bytes)} and {human_bytes(large.bytes)}")
        here = line(in_process(small), in_process(large))
        progress(f"on {master}, the same")
        there = line(*submitted(small, large, master))
    return Calibration(master=master, in_process=here, spark=there, threshold_bytes=crossing(here, there))


def line(small: Sample, large: Sample, start_seconds: float = 0.0) -> Line:
    """The line through two samples after a start; noise never makes it fall or start below zero. Pure."""
    per_byte = max(large.seconds - small.seconds, 0.001) / max(large.bytes - small.bytes, 1)
    fixed = max(small.seconds - small.bytes * per_byte, 0.0) + start_seconds
    return Line(fixed_seconds=round(fixed, 3), bytes_per_second=round(1 / per_byte, 1))


def crossing(in_process: Line, spark: Line) -> int | None:
    """The bytes from which on Spark takes less time, None when it never does. Pure."""
    head_start = spark.fixed_seconds - in_process.fixed_seconds
    gain = 1 / in_process.bytes_per_second - 1 / spark.bytes_per_second
    if head_start <= 0 and gain >= 0:
        return 0
    return int(head_start / gain) if gain * in_process.bytes_per_second > _NOISE else None


def calibration_view(found: Calibration) -> View:
    """The result and what to set. Pure."""
    pays = "at no size: Spark rewrites no faster per byte here"
    if found.threshold_bytes is not None:
        pays = f"from {human_bytes(found.threshold_bytes)} on"
    bound = _NEVER if found.threshold_bytes is None else found.threshold_bytes
    rows = tuple(
        (name, f"{one.fixed_seconds:.2f} s", f"{human_bytes(int(one.bytes_per_second))}/s")
        for name, one in (("in process", found.in_process), (found.master, found.spark))
    )
    return View(
        title="calibrate — the same rewrites in process and on Spark",
        facts=(("Spark pays", pays), ("Set", f"OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES={bound}")),
        sections=(Section(title="Measured", header=("Where", "To start", "Then"), rows=rows),),
    )

"""Measure where Spark begins to pay on this deployment: the same rewrite in process and as a submit, at two sizes.

Each way costs a fixed time plus time per byte; the threshold is where the two lines cross.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_ops.calibration.runs import Sample, in_process, scratch_folder, spark_submit, submitted, write_table
from omnigraph_ops.progress import SILENT, Progress
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.views.view import Section, View

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
    spark_submit()  # before the minute that the tables take
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

"""The line through two measurements, and where two lines cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["bytes", "files", "rows"]
_NOISE = 0.1
"""Spark is not called faster for less than this: two runs of the same work differ by as much."""


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
    rate = round(1 / each, 1)
    return Line(
        fixed_seconds=round(max(small.seconds - small.size * each, 0.0) + start_seconds, 3),
        bytes_per_second=rate if unit == "bytes" else None,
        files_per_second=rate if unit == "files" else None,
        rows_per_second=rate if unit == "rows" else None,
        rises=more > 0,
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

"""The line through two measurements, and where two lines cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["bytes", "files"]
_NOISE = 0.1
"""Spark is not called faster for less than this: two runs of the same work differ by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured piece of work."""

    size: int
    """Bytes or files."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Seconds of a job as a fixed part, and a part per byte or per file."""

    fixed_seconds: float
    bytes_per_second: float | None = None
    """Speed after the start; None where files are counted."""
    files_per_second: float | None = None
    """Speed after the start; None where bytes are counted."""
    rises: bool = True
    """Whether the large sample took longer than the small one; where it did not, the speed means nothing."""

    @property
    def per_second(self) -> float:
        """Bytes or files per second, whichever are counted. Pure."""
        rate = self.files_per_second if self.bytes_per_second is None else self.bytes_per_second
        assert rate is not None, "one of them is counted"
        return rate


def line(small: Sample, large: Sample, start_seconds: float = 0.0, unit: Unit = "bytes") -> Line:
    """The line through two samples after a start; noise never makes it fall or start below zero. Pure."""
    more = large.seconds - small.seconds
    each = max(more, 0.001) / max(large.size - small.size, 1)
    fixed, rate = round(max(small.seconds - small.size * each, 0.0) + start_seconds, 3), round(1 / each, 1)
    if unit == "files":
        return Line(fixed_seconds=fixed, files_per_second=rate, rises=more > 0)
    return Line(fixed_seconds=fixed, bytes_per_second=rate, rises=more > 0)


def crossing(in_process: Line, spark: Line) -> int | None:
    """The bytes or files from which on Spark takes less time, None when it never does or nobody can tell. Pure."""
    if not (in_process.rises and spark.rises):
        return None
    head_start = spark.fixed_seconds - in_process.fixed_seconds
    gain = 1 / in_process.per_second - 1 / spark.per_second
    if head_start <= 0 and gain >= 0:
        return 0
    return int(head_start / gain) if gain * in_process.per_second > _NOISE else None

"""Where two lines cross, and what noise may not do to them."""

from __future__ import annotations

import pytest

from omnigraph_ops.calibrate import Calibration, Line, Sample, crossing, line, text

MB = 1_000_000


def test_the_line_through_two_samples() -> None:
    found = line(Sample(bytes=MB, seconds=1.5), Sample(bytes=11 * MB, seconds=2.5))
    assert found == Line(fixed_seconds=1.4, bytes_per_second=10 * MB)


def test_noise_makes_no_line_fall_or_start_below_zero() -> None:
    found = line(Sample(bytes=MB, seconds=3.0), Sample(bytes=11 * MB, seconds=2.0))
    assert found.fixed_seconds >= 0
    assert found.bytes_per_second > 0
    assert line(Sample(bytes=MB, seconds=0.0), Sample(bytes=2 * MB, seconds=9.0)).fixed_seconds == 0


@pytest.mark.parametrize(
    ("in_process", "spark", "threshold"),
    [
        # 20 s behind, twice as fast per byte: 2 s per 100 MB are won
        (Line(fixed_seconds=0, bytes_per_second=25 * MB), Line(fixed_seconds=20, bytes_per_second=50 * MB), 1000 * MB),
        (Line(fixed_seconds=0, bytes_per_second=50 * MB), Line(fixed_seconds=20, bytes_per_second=50 * MB), None),
        (Line(fixed_seconds=0, bytes_per_second=50 * MB), Line(fixed_seconds=20, bytes_per_second=25 * MB), None),
        (Line(fixed_seconds=9, bytes_per_second=25 * MB), Line(fixed_seconds=1, bytes_per_second=50 * MB), 0),
    ],
)
def test_the_crossing(in_process: Line, spark: Line, threshold: int | None) -> None:
    assert crossing(in_process, spark) == threshold


def test_the_text_says_what_to_set() -> None:
    some = Line(fixed_seconds=1, bytes_per_second=MB)
    found = Calibration(master="local[2]", in_process=some, spark=some, threshold_bytes=7)
    assert "OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES=7" in text(found)
    never = Calibration(master="local[2]", in_process=some, spark=some, threshold_bytes=None)
    assert "does not pay here at any size" in text(never)

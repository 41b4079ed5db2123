"""Where two lines cross, and what noise may not do to them."""

from __future__ import annotations

import pytest

from omnigraph_ops.calibration.lines import Line, Sample, crossing, line

MB = 1_000_000


def test_the_line_through_two_samples() -> None:
    found = line(Sample(size=MB, seconds=1.5), Sample(size=11 * MB, seconds=2.5))
    assert found == Line(fixed_seconds=1.4, bytes_per_second=10 * MB)


def test_a_start_is_part_of_what_is_fixed() -> None:
    found = line(Sample(size=MB, seconds=1.5), Sample(size=11 * MB, seconds=2.5), 10.0)
    assert found == Line(fixed_seconds=11.4, bytes_per_second=10 * MB)


def test_noise_makes_no_line_fall_or_start_below_zero() -> None:
    found = line(Sample(size=MB, seconds=3.0), Sample(size=11 * MB, seconds=2.0))
    assert found.fixed_seconds >= 0
    assert found.bytes_per_second > 0
    assert line(Sample(size=MB, seconds=0.0), Sample(size=2 * MB, seconds=9.0)).fixed_seconds == 0


@pytest.mark.parametrize(
    ("in_process", "spark", "threshold"),
    [
        # 20 s behind, twice as fast per byte: 2 s per 100 MB are won
        (Line(fixed_seconds=0, bytes_per_second=25 * MB), Line(fixed_seconds=20, bytes_per_second=50 * MB), 1000 * MB),
        (Line(fixed_seconds=0, bytes_per_second=50 * MB), Line(fixed_seconds=20, bytes_per_second=50 * MB), None),
        (Line(fixed_seconds=0, bytes_per_second=50 * MB), Line(fixed_seconds=20, bytes_per_second=25 * MB), None),
        # Faster by less than two runs of the same differ.
        (Line(fixed_seconds=0, bytes_per_second=50 * MB), Line(fixed_seconds=20, bytes_per_second=54 * MB), None),
        (Line(fixed_seconds=9, bytes_per_second=25 * MB), Line(fixed_seconds=1, bytes_per_second=50 * MB), 0),
    ],
)
def test_the_crossing(in_process: Line, spark: Line, threshold: int | None) -> None:
    assert crossing(in_process, spark) == threshold


def test_files_are_counted_the_same_way() -> None:
    here = line(Sample(size=10_000, seconds=0.5), Sample(size=210_000, seconds=8.5), unit="files")
    there = line(Sample(size=10_000, seconds=10.1), Sample(size=210_000, seconds=12.1), unit="files")
    assert here == Line(fixed_seconds=0.1, files_per_second=25_000)
    assert crossing(here, there) == pytest.approx(330_000, abs=1)

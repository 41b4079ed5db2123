"""Calibration for real, on tables too small to tell anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.calibration import calibrate
from omnigraph_ops.progress import Lines
from tests.support.spark_cluster import environment

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-standalone")]


def test_both_ways_are_measured_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    said: list[str] = []
    found = calibrate(master="local[2]", scratch=str(tmp_path), rows=20, progress=Lines(said.append))
    for line in (found.in_process, found.spark):
        assert line.fixed_seconds >= 0
        assert line.bytes_per_second > 0
    # A session starts in no time at all only if none was started.
    assert found.spark.fixed_seconds > 1
    assert found.threshold_bytes is None or found.threshold_bytes >= 0
    assert [text.partition(",")[0] for text in said] == ["in process", "on local[2]"]
    assert list(tmp_path.iterdir()) == []

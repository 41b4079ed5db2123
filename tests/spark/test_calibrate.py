"""Calibration for real, on tables too small to tell anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph_ops.calibration import jobs
from omnigraph_ops.calibration.jobs import calibrate
from omnigraph_ops.models.runs import CalibratedJob
from omnigraph_ops.progress import Lines
from tests.support.spark_cluster import environment
from tests.support.spark_session import submit_in

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-local")]


@pytest.fixture
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.mark.night
@pytest.mark.usefixtures("quick_java")
def test_both_ways_are_measured_and_nothing_is_left(tmp_path: Path) -> None:
    said: list[str] = []
    found = calibrate(master="local[2]", scratch=str(tmp_path), rows=20, progress=Lines(said.append))
    for line in (found.in_process, found.spark):
        assert line.fixed_seconds >= 0
        assert line.per_second > 0
    # A session starts in no time at all only if none was started.
    assert found.spark.fixed_seconds > 1
    assert found.threshold_bytes is None or found.threshold_bytes >= 0
    assert [text.partition(",")[0] for text in said] == ["in process", "on local[2]"]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def few_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fragment is a task of its own, and these tests are not about how long that takes."""
    of = CalibratedJob
    for job in (of.COPY, of.VERIFY, of.RESTORE, of.EVIDENCE, of.EXPIRE):
        monkeypatch.setitem(jobs.JOBS, job, replace(jobs.JOBS[job], amounts=(2, 8)))


@pytest.mark.night
@pytest.mark.usefixtures("quick_java", "few_fragments")
def test_whole_submits_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs.rewrites, "RUNS", 1)
    said: list[str] = []
    found = calibrate(
        job=CalibratedJob.EVIDENCE, master="local[2]", scratch=str(tmp_path), rows=20, progress=Lines(said.append)
    )
    # Two submits of next to nothing: they cost their starts.
    assert found.in_process.fixed_seconds < 1 < found.spark.fixed_seconds
    assert (found.job, found.threshold_files) == ("evidence", None)
    assert [text.partition(",")[0] for text in said] == ["in process", "on local[2]"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("few_fragments")
@pytest.mark.night("all but one")
@pytest.mark.parametrize("job", [job for job in CalibratedJob if job is not CalibratedJob.REWRITE])
def test_every_job_does_the_work_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: SparkSession, job: CalibratedJob
) -> None:
    done: list[str] = []

    def submitter(**_: object) -> object:
        submit = submit_in(session)

        def noted(name: str, *rest: object) -> object:
            done.append(name)
            return submit(name, *rest)  # type: ignore[call-arg, arg-type]

        return noted

    monkeypatch.setattr(jobs, "Submitter", submitter)
    found = calibrate(job=job, master="local[2]", scratch=str(tmp_path), rows=20)
    # The same two sizes, twice each.
    assert done == [job.value] * 4
    units = {CalibratedJob.ORPHANS: "files", CalibratedJob.EXPIRE: "rows"}
    for line in (found.in_process, found.spark):
        counted = {"bytes": line.bytes_per_second, "files": line.files_per_second, "rows": line.rows_per_second}
        assert [unit for unit, rate in counted.items() if rate is not None] == [units.get(job, "bytes")]
    assert list(tmp_path.iterdir()) == []

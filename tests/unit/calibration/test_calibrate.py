"""The result of a calibration as text, and what is left behind by one that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.calibration import jobs
from omnigraph_ops.calibration.jobs import Calibration, calibrate, calibration_view
from omnigraph_ops.calibration.rewrites import Line, Sample, crossing, line
from omnigraph_ops.cli.main import main
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import OpsError
from omnigraph_ops.models.runs import CalibratedJob
from tests.support.stand_ins import INTERRUPT, fake_submit

BYTES, FILES = Line(fixed_seconds=1, bytes_per_second=1024**2), Line(fixed_seconds=1, files_per_second=2000)
ROWS = Line(fixed_seconds=1, rows_per_second=3000)
WHOLE_CALLS = [job for job in CalibratedJob if job is not CalibratedJob.REWRITE]


def facts(job: CalibratedJob, threshold: int | None) -> dict[str, str]:
    if job is CalibratedJob.ORPHANS:
        found = Calibration(job=job, master="local[2]", in_process=FILES, spark=FILES, threshold_files=threshold)
    elif job is CalibratedJob.EXPIRE:
        found = Calibration(job=job, master="local[2]", in_process=ROWS, spark=ROWS, threshold_rows=threshold)
    else:
        found = Calibration(job=job, master="local[2]", in_process=BYTES, spark=BYTES, threshold_bytes=threshold)
    return dict(calibration_view(found).facts)


@pytest.mark.parametrize("job", [job for job in CalibratedJob if job is not CalibratedJob.RESTORE])
@pytest.mark.parametrize("threshold", [0, 7, 5 * 1024**3])
def test_what_is_printed_is_a_setting_with_that_threshold(job: CalibratedJob, threshold: int) -> None:
    name, _, value = facts(job, threshold)["Set"].partition("=")
    settings = Settings.from_env({name: value})
    found = {
        CalibratedJob.REWRITE: settings.spark_threshold_bytes,
        CalibratedJob.COPY: settings.spark_copy_threshold_bytes,
        CalibratedJob.VERIFY: settings.spark_copy_threshold_bytes,
        CalibratedJob.EVIDENCE: settings.spark_from("repair"),
        CalibratedJob.ORPHANS: settings.spark_from("orphans"),
        CalibratedJob.EXPIRE: settings.spark_from("expire-rows"),
    }
    assert found[job] == threshold


def test_a_restore_has_no_setting_and_a_person_is_told_what_to_do() -> None:
    said = facts(CalibratedJob.RESTORE, 7)
    assert said == {
        "Spark pays": "from 7 B on",
        "Set": "nothing: give `restore` the option --spark from so many bytes on: 7",
    }


def test_where_spark_never_pays_the_text_says_what_to_leave() -> None:
    said = {job: facts(job, None)["Set"] for job in CalibratedJob}
    assert said == {
        # Without a value the default would stay, and send tables to Spark.
        CalibratedJob.REWRITE: f"OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES={2**63 - 1}",
        CalibratedJob.COPY: "nothing: leave OMNIGRAPH_OPS_SPARK_COPY_THRESHOLD_BYTES unset",
        CalibratedJob.VERIFY: "nothing: leave OMNIGRAPH_OPS_SPARK_COPY_THRESHOLD_BYTES unset",
        CalibratedJob.RESTORE: "nothing: restore without --spark",
        CalibratedJob.EVIDENCE: "nothing: leave repair out of OMNIGRAPH_OPS_SPARK_STAGES",
        CalibratedJob.ORPHANS: "nothing: leave orphans out of OMNIGRAPH_OPS_SPARK_STAGES",
        CalibratedJob.EXPIRE: "nothing: leave expire-rows out of OMNIGRAPH_OPS_SPARK_STAGES",
    }
    assert facts(CalibratedJob.COPY, None)["Spark pays"] == "at no size: Spark is no faster per byte here"
    assert facts(CalibratedJob.ORPHANS, None)["Spark pays"] == "at no size: Spark is no faster per file here"
    assert facts(CalibratedJob.EXPIRE, None)["Spark pays"] == "at no size: Spark is no faster per row here"


def test_noise_is_no_measurement() -> None:
    flat = line(Sample(size=1, seconds=3.0), Sample(size=9, seconds=2.9))
    assert crossing(flat, BYTES) is crossing(BYTES, flat) is None
    said = dict(calibration_view(Calibration(master="local[2]", in_process=BYTES, spark=flat)).facts)
    assert said["Spark pays"].startswith("unknown: ")
    assert said["Set"] == "nothing: repeat this on an idle machine"


def test_files_are_shown_as_files_and_rows_as_rows() -> None:
    found = Calibration(
        job=CalibratedJob.ORPHANS, master="local[2]", in_process=FILES, spark=FILES, threshold_files=2_000_000
    )
    view = calibration_view(found)
    assert dict(view.facts)["Spark pays"] == "from 2,000,000 files on"
    assert view.sections[0].rows[0] == ("in process", "1.00 s", "2,000 files/s")
    view = calibration_view(
        Calibration(job=CalibratedJob.EXPIRE, master="local[2]", in_process=ROWS, spark=ROWS, threshold_rows=5_000)
    )
    assert dict(view.facts)["Spark pays"] == "from 5,000 rows on"
    assert view.sections[0].rows[0] == ("in process", "1.00 s", "3,000 rows/s")


@pytest.mark.parametrize(("words", "job"), [((), "rewrite"), (("--job", "orphans"), "orphans")])
def test_the_verb_measures_the_job_that_it_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], job: str
) -> None:
    def measured(**said: Any) -> Calibration:
        return Calibration(job=said["job"], master=said["master"], in_process=BYTES, spark=BYTES, threshold_bytes=7)

    monkeypatch.setattr(jobs, "calibrate", measured)
    assert main(["calibrate", *words, "--master", "local[2]", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["job"], found["master"], found["threshold_bytes"]) == (job, "local[2]", 7)
    # What scripts read before there were other jobs.
    assert found["in_process"].items() >= {"fixed_seconds": 1, "bytes_per_second": 1024**2}.items()


@pytest.fixture
def failing_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spark-submit beside a Python that finds no master."""
    (tmp_path / "bin").mkdir()
    fake_submit(tmp_path / "bin", monkeypatch, "echo 'x.SparkException: Could not parse Master URL'; exit 1")


@pytest.mark.night("all but one")
@pytest.mark.slow
@pytest.mark.usefixtures("failing_submit")
@pytest.mark.parametrize("job", WHOLE_CALLS)
def test_a_failed_submit_is_one_sentence_and_nothing_is_left(tmp_path: Path, job: CalibratedJob) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    with pytest.raises(OpsError, match=r"Could not parse Master URL; no graph of yours was touched$") as caught:
        calibrate(job=job, master="odd", scratch=str(folder), rows=20)
    assert "\n" not in str(caught.value)
    assert list(folder.iterdir()) == []


@pytest.mark.night("all but one")
@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("job", WHOLE_CALLS)
def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: CalibratedJob) -> None:
    folder = tmp_path / "scratch"
    for made in (folder, tmp_path / "bin"):
        made.mkdir()
    fake_submit(tmp_path / "bin", monkeypatch, f"{INTERRUPT}; sleep 600")
    with pytest.raises(KeyboardInterrupt):
        calibrate(job=job, master="odd", scratch=str(folder), rows=20)
    assert list(folder.iterdir()) == []

"""Lines and noise, the scratch folder, rewrites in one measured submit: what is said when it fails, what is left."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from omnigraph_ops.calibration.rewrites import (
    Line,
    Sample,
    Table,
    crossing,
    environment,
    line,
    scratch_folder,
    submitted,
    write_table,
)
from omnigraph_ops.errors import InvalidInput, OpsError
from omnigraph_ops.spark.submit import reason
from tests.support.stand_ins import INTERRUPT, fake_submit, java_of

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


@pytest.mark.parametrize("name", ["none", "", " "])
def test_a_scratch_folder_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="is not a folder"), scratch_folder(name and str(tmp_path / name)):
        pass


def test_submits_know_credentials_and_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_of(tmp_path, monkeypatch)
    monkeypatch.setenv("OMNIGRAPH_OPS_ENGINE_ROOT", "/elsewhere")
    monkeypatch.setenv("AWS_REGION", "x")
    found = environment(tmp_path)
    assert "OMNIGRAPH_OPS_ENGINE_ROOT" not in found
    assert (found["AWS_REGION"], found["SPARK_LOCAL_DIRS"]) == ("x", str(tmp_path))
    assert found["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            'Exception in thread "main" org.apache.spark.SparkException: Master must be local\n  at org.x.Y(Y.scala)',
            "Master must be local",
        ),
        (
            "26/11/21 ERROR Backend: Reason: All masters are unresponsive! Giving up.\n"
            "py4j.protocol.Py4JJavaError: An error occurred while calling None.\n"
            ": java.lang.IllegalStateException: stopped",
            "Backend: Reason: All masters are unresponsive! Giving up",
        ),
        (
            "26/11/21 ERROR Executor: lost\nError: there is nothing at /a; nothing was written\nbye",
            "there is nothing at /a",
        ),
        ("spark-class: No such file or directory\n", "spark-class: No such file or directory"),
        ("no space left\nWARNING: Using incubator modules: jdk.incubator.vector\n", "no space left"),
        ("", "it said nothing"),
    ],
)
def test_the_reason_of_a_failed_submit(log: str, said: str) -> None:
    assert reason(log).startswith(said)


def tables(folder: Path) -> tuple[Table, Table]:
    return write_table(folder / "small", rows=2, tasks=1), write_table(folder / "large", rows=2, tasks=2)


def test_a_failed_submit_is_one_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_submit(tmp_path, monkeypatch, "echo 'x.SparkException: Could not parse Master URL'; exit 1")
    small, large = tables(tmp_path)
    with pytest.raises(OpsError, match=r"^Spark did not start on odd, so .*: Could not parse Master URL$"):
        submitted(small, large, "odd")
    assert sorted({p.name for p in tmp_path.iterdir() if p.is_dir()}) == ["java", "large", "small"]


def is_running(process_id: int) -> bool:
    """Whether there is such a process; one that is dead and not yet reaped does not count."""
    try:
        return ") Z " not in Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter where it ends between the open and the read
        return False


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_submit_and_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child"
    fake_submit(tmp_path, monkeypatch, f"sleep 600 & echo $! > {child}; {INTERRUPT}; wait")
    small, large = tables(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        submitted(small, large, "local")
    # A process that was killed ends as soon as it is given the CPU.
    deadline = time.monotonic() + 60
    while is_running(int(child.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(int(child.read_text()))
    assert sorted({p.name for p in tmp_path.iterdir() if p.is_dir()}) == ["java", "large", "small"]


def test_settings_of_the_deployment_do_not_bend_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "environment"
    fake_submit(tmp_path, monkeypatch, f"env > {seen}; exit 1")
    monkeypatch.setenv("OMNIGRAPH_OPS_MAX_REWRITE_BYTES_PER_SECOND", "1")
    monkeypatch.setenv("AWS_REGION", "x")
    small, large = tables(tmp_path)
    with pytest.raises(OpsError):
        submitted(small, large, "local")
    names = seen.read_text()
    assert "MAX_REWRITE_BYTES" not in names
    assert "AWS_REGION=x" in names
    assert "OMNIGRAPH_OPS_TARGET_ROWS_PER_FRAGMENT=8" in names

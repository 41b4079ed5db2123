"""Submitting a job from this process: its value, its errors, and what ends the submit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from omnigraph_ops.errors import NotInstalled, OpsError, StorageError
from omnigraph_ops.models.backup import Tally
from omnigraph_ops.progress import Lines
from omnigraph_ops.spark import submit
from omnigraph_ops.spark.submit import Submitter
from tests.support.stand_ins import fake_submit


def ask(check: object = lambda: None) -> Tally:
    return Submitter(master="local[1]")("count", ("--graph", "g"), Tally, check)  # type: ignore[arg-type]


def test_the_value_of_the_job_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "words"
    script = f'printf "%s\\n" "$@" > {seen}; echo \'{{"value": {{"files": 2, "bytes": 9}}}}\' > "$6"'
    fake_submit(tmp_path, monkeypatch, script)
    assert ask() == Tally(files=2, bytes=9)
    words = seen.read_text().splitlines()
    assert words[:2] == ["--master", "local[1]"]
    assert Path(words[2]) == submit.APPLICATION
    assert (words[3], words[6:]) == ("count", ["--graph", "g"])


def test_a_submit_may_have_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    fake_submit(tmp_path, monkeypatch, f'echo "$OURS $MINE" > {seen}; exit 1')
    monkeypatch.setenv("OURS", "process")
    kept = {"PATH": os.environ["PATH"], "MINE": "own"}
    with pytest.raises(StorageError):
        Submitter(master="local[1]", environment=kept)("count", (), Tally, lambda: None)
    assert seen.read_text().split() == ["own"]


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ('echo \'{"error": "the store is away"}\' > "$6"; exit 1', StorageError, "the store is away"),
        ('echo \'{"error": "no such table", "retryable": false}\' > "$6"; exit 1', OpsError, "no such table"),
        ('echo "{}" > "$6"; echo \'Exception: lost\'; exit 3', StorageError, "code 3 and no outcome: lost; run"),
        ('echo "{}" > "$6"; echo a word; exit 137', StorageError, r"was killed \(SIGKILL\) and left no outcome"),
        ('echo "{}" > "$6"; kill -TERM $$', StorageError, r"was killed \(SIGTERM\) and left no outcome"),
        ("echo 'x.SparkException: Could not parse Master URL'; exit 1", StorageError, "not start .*: Could not parse"),
        (
            "echo 'Error: A JNI error has occurred'; echo 'Exception in main java.lang.OutOfMemoryError: heap'; exit 1",
            StorageError,
            "OutOfMemoryError: heap",
        ),
        ("exit 0", StorageError, "did not start"),
        ("echo '12:00 INFO BlockManager: Initialized'; exit 137", StorageError, "it said nothing"),
    ],
)
def test_a_failed_job_says_whether_to_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: type[OpsError], said: str
) -> None:
    fake_submit(tmp_path, monkeypatch, script)
    with pytest.raises(OpsError, match=said) as caught:
        ask()
    assert type(caught.value) is kind


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_the_submit_starts_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_submit(tmp_path, monkeypatch, "exec sleep 600")
    real, started = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def interrupted(*words: object, **options: object) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = real(*words, **options)  # type: ignore[call-overload]
        if "spark-submit" not in str(words):
            return process
        started.append(process)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask()
    try:
        assert started[0].poll() is not None
    finally:
        started[0].kill()
        started[0].wait()


def test_a_master_on_which_spark_did_not_start_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    fake_submit(
        tmp_path, monkeypatch, f"echo >> {asked}; echo '12:00 ERROR Client: All masters are unresponsive'; exit 1"
    )
    submitter = Submitter(master="spark://away:7077")
    said = []
    for _ in range(2):
        with pytest.raises(StorageError, match=r"not start on spark://away:7077.*: Client: All masters") as caught:
            submitter("count", (), Tally, lambda: None)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert asked.read_text() == "\n"


def test_a_lost_driver_does_not_end_the_submits_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    fake_submit(tmp_path, monkeypatch, f'echo >> {asked}; echo "{{}}" > "$6"; exit 137')
    submitter = Submitter(master="local[1]")
    for _ in range(2):
        with pytest.raises(StorageError, match="no outcome"):
            submitter("count", (), Tally, lambda: None)
    assert asked.read_text() == "\n\n"


def test_a_job_that_waits_for_workers_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "WARN TaskSchedulerImpl: Initial job has not accepted any resources; check your cluster UI"
    fake_submit(tmp_path, monkeypatch, f"for n in 1 2 3 4 5 6; do echo '{line}'; sleep 0.3; done; exit 1")
    said: list[str] = []
    submitter = Submitter(master="spark://m:7077", progress=Lines(said.append))
    with pytest.raises(StorageError):
        submitter("count", (), Tally, lambda: None)
    assert said == [
        "count on spark://m:7077",
        "spark://m:7077 has no free worker, so the job waits for one",
    ]


def test_a_submit_that_is_killed_before_the_job_begins_is_no_word_about_its_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    fake_submit(tmp_path, monkeypatch, f"echo >> {asked}; echo 'WARNING: package x not in java.base'; kill -KILL $$")
    submitter = Submitter(master="local[1]")
    for _ in range(2):
        with pytest.raises(StorageError, match=r"the job count on local\[1\] was killed \(SIGKILL\).*; run the same"):
            submitter("count", (), Tally, lambda: None)
    assert asked.read_text() == "\n\n"


def test_a_check_that_raises_ends_the_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, child = time.monotonic(), tmp_path / "child"
    fake_submit(tmp_path, monkeypatch, f"echo $$ > {child}; exec sleep 600")

    def stopped() -> None:
        if child.exists() and child.read_text().strip():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(stopped)
    assert time.monotonic() - started < 300
    assert not Path(f"/proc/{int(child.read_text())}").exists()


def test_somebody_who_does_not_wait_for_the_end_ends_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child"
    fake_submit(tmp_path, monkeypatch, f"trap '' TERM; echo $$ > {child}; while :; do sleep 1; done")

    def stopped() -> None:
        if child.exists() and child.read_text().strip():
            # A second Ctrl-C, while the submit does not heed the first.
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(stopped)
    assert not Path(f"/proc/{int(child.read_text())}").exists()


def test_an_environment_without_spark_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(NotInstalled, match=r"--spark local\[1\]"):
        ask()

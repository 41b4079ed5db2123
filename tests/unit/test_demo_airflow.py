"""What the demo says while Airflow starts, what it deletes before, and how its processes share a database."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from omnigraph_airflow import demo_airflow
from omnigraph_airflow.demo_airflow import DemoAirflow, DemoError, airflow_environment
from omnigraph_airflow.demo_night import _only_one, run
from sqlalchemy import create_engine


@pytest.fixture
def starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoAirflow:
    """An Airflow whose process runs and is not ready yet."""
    monkeypatch.setattr(demo_airflow, "ALIVE_SECONDS", 1.0)
    airflow = DemoAirflow(tmp_path, 0, {})
    airflow._process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    return airflow


def test_a_person_who_waits_is_told_what_for(starting: DemoAirflow, capsys: pytest.CaptureFixture[str]) -> None:
    lines = list[str]()

    def ready() -> bool:
        lines.extend(capsys.readouterr().out.splitlines())
        return len(lines) > 1

    try:
        starting._wait("Airflow", ready)
    finally:
        starting.stop()
    assert {line.rpartition(",")[0].strip() for line in lines} == {"waiting for Airflow"}


def test_an_airflow_that_ended_is_not_waited_for(starting: DemoAirflow) -> None:
    assert starting._process is not None
    starting._process.kill()
    starting._process.wait()
    with pytest.raises(DemoError, match="stopped while starting"):
        starting._wait("Airflow", lambda: False)


@pytest.mark.parametrize("name", ["airflow", "graph"])
def test_a_folder_that_no_demo_made_is_not_deleted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "of-somebody").touch()
    with pytest.raises(DemoError, match="was not made by the demo"), _only_one(tmp_path):
        pass
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["of-somebody"]


@pytest.mark.parametrize("why", ["Permission denied", "Not a directory"])
def test_a_folder_that_cannot_be_written_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    home = tmp_path / "file" / "home"
    if why == "Permission denied":

        def denied(*_: object, **_named: object) -> None:
            raise PermissionError(errno.EACCES, why, str(home / "lock"))

        monkeypatch.setattr(Path, "mkdir", denied)
    else:
        (tmp_path / "file").touch()
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert run(["--home", str(home)]) == 1
    said = f"demo: {home} cannot be written by this user: {why}; nothing was started; "
    assert capsys.readouterr().err.startswith(said)


_WHILE_IMPORTING = """
import os, runpy, signal, sys

class Sender:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Sender())
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("omnigraph_airflow.demo", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["httpx", "lance"])
def test_an_interrupt_while_modules_are_imported_is_one_word(tmp_path: Path, module: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-c", _WHILE_IMPORTING, module]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "\nStopped.\n", "")


def test_what_an_earlier_demo_made_is_made_anew(tmp_path: Path) -> None:
    for _ in range(2):
        with _only_one(tmp_path):
            assert not (tmp_path / "graph").exists()
            (tmp_path / "graph").mkdir()


def test_its_processes_wait_for_each_other_at_the_database(tmp_path: Path) -> None:
    url = airflow_environment(tmp_path, 1, tmp_path / "g", {})["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    with create_engine(url).connect() as connection:
        waits_ms = connection.exec_driver_sql("PRAGMA busy_timeout").scalar()
        files = [Path(row.file) for row in connection.exec_driver_sql("PRAGMA database_list")]
    assert waits_ms == 120_000
    assert files == [tmp_path / "airflow.db"]

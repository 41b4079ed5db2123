"""The demo as a process of its own: signals end it and its Airflow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

SLOW_TO_STOP = """
import os, signal, sys, time
def stop(*_):
    time.sleep(2)
    sys.exit()
signal.signal(signal.SIGTERM, stop)
with open(os.environ["STARTED"] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, os.environ["STARTED"])
time.sleep(600)
"""


def until(path: Path, demo: subprocess.Popen[str]) -> str:
    """The text of a file that is written while the demo runs."""
    end = time.monotonic() + 120
    while not path.exists():
        assert demo.poll() is None and time.monotonic() < end, "the demo ended, or its Airflow did not start"
        time.sleep(0.1)
    return path.read_text()


@pytest.mark.night("all but one")
@pytest.mark.slow
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_second_signal_does_not_leave_airflow_behind(tmp_path: Path, first: signal.Signals) -> None:
    """As `kill -TERM -<pgid>` of `make demo`, which the demo gets from the group and from make."""
    fake = tmp_path / "path" / "airflow"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "__main__.py").write_text(SLOW_TO_STOP)
    environment = {**os.environ, "PYTHONPATH": str(fake.parent), "STARTED": str(tmp_path / "started")}
    command = [sys.executable, "-m", "omnigraph_airflow.demo", "--home", str(tmp_path / "home")]
    demo = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    airflow = int(until(tmp_path / "started", demo))
    try:
        for number in (first, signal.SIGTERM, signal.SIGHUP):
            os.kill(demo.pid, number)
            time.sleep(0.4)
        said, _ = demo.communicate(timeout=60)
        assert (demo.returncode, said.splitlines()[-1]) == (130, "Stopped."), said
        with pytest.raises(ProcessLookupError):
            os.killpg(airflow, 0)
    finally:
        if demo.poll() is None:
            demo.kill()
        with suppress(ProcessLookupError):
            os.killpg(airflow, signal.SIGKILL)

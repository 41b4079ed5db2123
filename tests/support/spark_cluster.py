"""A standalone Spark cluster of real processes: one master, two workers of one core each."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from omnigraph_ops.spark import application
from omnigraph_ops.spark.java import spark_environment
from tests.support.held import Held

SPARK_HOME = Path(pyspark.__file__).parent
APPLICATION = str(application.__file__)
_READY_SECONDS = 300
# Five JVMs on two cores: what compiles less starts sooner.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")


@dataclass(slots=True)
class Cluster:
    """Processes of one cluster; workers may be killed, with everything they started."""

    home: Path
    master_url: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Start the master, then both workers. Starts processes."""
        master = "org.apache.spark.deploy.master.Master"
        self._spawn("master", master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.master_url = self._wait_for("master", _URL)
        for name in ("worker-1", "worker-2"):
            self.add_worker(name)
        for name in ("worker-1", "worker-2"):
            self._wait_for(name, re.compile(r"(Successfully registered with master)"))

    def add_worker(self, name: str) -> None:
        """Start one more worker. Starts a process."""
        worker = "org.apache.spark.deploy.worker.Worker"
        limits = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(self.home / name))
        self._spawn(name, worker, *limits, "--host", "127.0.0.1", self.master_url)

    def kill(self, name: str) -> None:
        """Kill a worker with its executors, as a lost machine would. Kills processes."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Kill everything. Kills processes."""
        for name in list(self.processes):
            self.kill(name)

    def end_submits(self) -> None:
        """Kill every driver that is left: it would keep the cores from the next test. Kills processes."""
        kept = {os.getpgrp(), *(p.pid for p in self.processes.values())}
        for process in psutil.process_iter(["cmdline"]):
            if self.master_url in (process.info["cmdline"] or ()):
                with contextlib.suppress(ProcessLookupError):
                    group = os.getpgid(process.pid)
                    if group not in kept:
                        os.killpg(group, signal.SIGKILL)

    def wait_for_held(self, held: Held, waiting: int, process: subprocess.Popen[bytes]) -> None:
        """Until so many tasks of the submitted application wait at the gate. Sleeps."""
        said = lambda: f"exit code {process.poll()}: {self.log('driver')[-3000:]}"  # noqa: E731
        held.wait_for(waiting, lambda: process.poll() is not None, said)

    def submit(self, application: str, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        """Submit an application by plain spark-submit. Starts a process."""
        command = [
            str(SPARK_HOME / "bin" / "spark-submit"),
            *("--master", self.master_url, "--executor-memory", "512m", "--driver-memory", "512m"),
            *("--conf", f"spark.driver.extraJavaOptions={_JVM}"),
            *("--conf", f"spark.executor.extraJavaOptions={_JVM}"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
            *(application, *arguments),
        ]
        with (self.home / "driver.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=environment() | settings,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        path = self.home / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _spawn(self, name: str, *command: str) -> None:
        with (self.home / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *command],
                env=environment() | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _JVM},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_for(self, name: str, pattern: re.Pattern[str]) -> str:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            found = pattern.search(self.log(name))
            if found is not None:
                return found[1]
            time.sleep(0.1)
        raise TimeoutError(f"{name} is not ready:\n{self.log(name)[-2000:]}")


def environment() -> dict[str, str]:
    """What master, workers, driver and Python workers need. Reads."""
    paths = os.pathsep.join(p for p in sys.path if p)
    return os.environ | spark_environment() | {"PYTHONPATH": paths, "SPARK_HOME": str(SPARK_HOME)}


@contextlib.contextmanager
def cluster(home: Path) -> Iterator[Cluster]:
    """A running cluster for the block. Starts and kills processes."""
    made = Cluster(home=home)
    try:
        made.start()
        yield made
    finally:
        made.stop()

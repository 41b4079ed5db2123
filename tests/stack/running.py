"""The stack of docker-compose.yaml as processes of this machine: same commands, environment, order and checks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.stack import images
from tests.stack.compose import ROOT, Service, in_order, load
from tests.stack.machine import Machine, image_environment, instances, service_of

READY_SECONDS = 240
"""How long a service may take to be healthy; the file gives it a minute and ten checks."""
MARK = "OMNIGRAPH_STACK"
"""In the environment of every process of a stack, so that what they start is found as well."""


class Stack:
    """Started services, by container name."""

    def __init__(self, home: Path, variables: Mapping[str, str]) -> None:
        self.home = home
        self.variables = variables
        self.services = load(variables)
        self.machine = Machine(home=home, services=self.services)
        self.mark = uuid.uuid4().hex
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Start everything in the order of the file. Starts processes."""
        for service in in_order(self.services):
            self._wait_for_needs(service)
            for instance in instances(service):
                self.start(service, instance)
        for name, service in self.services.items():
            if service.health:
                self.wait_healthy(name)

    def start(self, service: Service, instance: str) -> None:
        """Start one container's process. Starts a process."""
        environment = self.environment(service, instance)
        images.prepare(service, environment)
        words = self.machine.words((*(service.entrypoint or ()), *service.command), instance)
        owner = images.user(service)
        with self.log_file(instance).open("ab") as log:
            self.processes[instance] = subprocess.Popen(
                images.arguments(service, words),
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=owner,
                group=owner,
            )

    def environment(self, service: Service, instance: str) -> dict[str, str]:
        """The environment of a container, and of its health check. Writes folders."""
        home = self.home / "homes" / instance
        home.mkdir(parents=True, exist_ok=True)
        given = {**image_environment(), **service.environment}
        return {
            "PATH": images.search_path(),
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "AIRFLOW_HOME": str(home),
            # The image has the package installed.
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")]),
            # A container's own address; the machine's would be another one.
            "SPARK_LOCAL_IP": "127.0.0.1",
            **{name: self.machine.value(value, instance) for name, value in given.items()},
            MARK: self.mark,
        }

    def healthy(self, instance: str) -> bool:
        """Whether the check of the file passes, once. Starts a process."""
        service = self.services[service_of(instance, self.services)]
        assert service.health is not None
        how, *words = self.machine.words(service.health, instance)
        command = words if how == "CMD" else ["/bin/sh", "-c", *words]
        environment = self.environment(service, instance)
        try:
            done = subprocess.run(command, env=environment, capture_output=True, timeout=10, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def wait_healthy(self, name: str) -> None:
        """Until every container of a service is healthy. Reads."""
        deadline = time.monotonic() + READY_SECONDS
        for instance in instances(self.services[name]):
            while not self.healthy(instance):
                if self.processes[instance].poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{instance} is not healthy:\n{self.log(instance)[-3000:]}")
                time.sleep(0.5)

    def kill(self, instance: str) -> None:
        """End a container at once, with what it started. Kills processes."""
        process = self.processes.pop(instance)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def down(self) -> None:
        """End everything, first politely. Kills processes."""
        for how, seconds in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            if self._ends(seconds):
                break
        for process in self.processes.values():
            process.wait()

    def pids(self) -> list[int]:
        """Every process of this stack, whoever started it. Reads."""
        mark, groups = f"{MARK}={self.mark}".encode(), {process.pid for process in self.processes.values()}
        found = []
        for pid in (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()):
            with contextlib.suppress(OSError):
                # A process that sets its title writes over its environment; a group is left by few.
                if os.getpgid(pid) in groups or mark in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
        return found

    def log_file(self, instance: str) -> Path:
        folder = self.home / "output"
        folder.mkdir(exist_ok=True)
        return folder / f"{instance}.log"

    def log(self, instance: str) -> str:
        """What a container printed. Reads."""
        return self.log_file(instance).read_text(errors="replace")

    def _wait_for_needs(self, service: Service) -> None:
        for needed, condition in service.needs.items():
            if condition == "service_healthy":
                self.wait_healthy(needed)
            elif self.processes[needed].wait(READY_SECONDS) != 0:
                raise RuntimeError(f"{needed} failed:\n{self.log(needed)[-3000:]}")

    def _ends(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for process in self.processes.values():
                process.poll()
            if not self.pids():
                return True
            time.sleep(0.2)
        return False


@contextlib.contextmanager
def running(variables: Mapping[str, str]) -> Iterator[Stack]:
    """A stack for the block, with nothing left of it. Starts and kills processes."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-stack-") as folder:
        # PostgreSQL runs as another user and has to reach its own folder in here.
        Path(folder).chmod(0o711)
        stack = Stack(Path(folder), variables)
        try:
            stack.up()
            yield stack
        finally:
            stack.down()
